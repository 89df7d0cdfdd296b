"""Shared subscriptions of 3.1.1 clients: ``$share/{group}/{filter}``, by the rules of MQTT 5.0.

3.1.1 does not define them; Perdure, like Mosquitto, gives them to every client.
"""

from __future__ import annotations

import pytest

from tests.support.bounds import HANG_S
from tests.wire.clients import UNLIMITED, Clients, numbered, payloads_of
from tests.wire.harness import Broker
from tests.wire.packets import Kind, Reason
from tests.wire.peer import Peer

BROKER_OPTIONS = UNLIMITED


def drained(peers: list[Peer]) -> list[list[bytes]]:
    """What each of them got so far, acknowledged."""
    found = []
    for peer in peers:
        messages = [packet for packet in peer.drain() if packet.kind is Kind.PUBLISH]
        for message in messages:
            peer.acknowledge(message)
        found.append(payloads_of(messages))
    return found


@pytest.mark.spec("MQTT-4.8.2-3")
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_each_message_goes_to_one_member(clients: Clients, name: str, count: int, qos: int) -> None:
    """All members get something, and each in order."""
    publisher = clients.join(name)
    peers = [clients.join(f"{name}-{index}") for index in range(count)]
    for peer in peers:
        peer.subscribe((f"$share/g/{name}/+", qos))
    for payload in numbered(21):
        publisher.publish(f"{name}/t", payload, qos=qos)
    shares = [[int(payload) for payload in share] for share in drained(peers)]
    assert sorted(number for share in shares for number in share) == list(range(21))
    assert all(share == sorted(share) and share for share in shares)


@pytest.mark.trap(41)
def test_group_plain_and_other_group(clients: Clients, name: str) -> None:
    """Three subscriptions of the same filter that have nothing to do with each other."""
    publisher = clients.join(name)
    filters = [f"$share/a/{name}", f"$share/b/{name}", name]
    peers = [clients.join(f"{name}-{index}") for index in range(3)]
    for peer, topic_filter in zip(peers, filters, strict=True):
        peer.subscribe((topic_filter, 1))
    publisher.publish(name, b"1", qos=1)
    assert drained(peers) == [[b"1"]] * 3
    peers[0].unsubscribe(name, codes=(Reason.NO_SUBSCRIPTION,))
    peers[2].unsubscribe(f"$share/a/{name}", codes=(Reason.NO_SUBSCRIPTION,))
    publisher.publish(name, b"2", qos=1)
    assert drained(peers) == [[b"2"]] * 3
    peers[0].unsubscribe(f"$share/a/{name}")
    publisher.publish(name, b"3", qos=1)
    assert drained(peers) == [[], [b"3"], [b"3"]]


@pytest.mark.trap(41)
def test_own_plain_and_shared_subscription(clients: Clients, name: str) -> None:
    """4.8.2: one client with both gets both copies, and keeps one when it gives up the other.

    Mosquitto sends one copy.
    """
    publisher = clients.join(f"{name}-publisher")
    peer = clients.join(name)
    peer.subscribe((name, 1), (f"$share/g/{name}", 1))
    publisher.publish(name, b"x", qos=1)
    assert drained([peer]) == [[b"x", b"x"]]
    peer.unsubscribe(name)
    publisher.publish(name, b"y", qos=1)
    assert drained([peer]) == [[b"y"]]


@pytest.mark.trap(41)
def test_no_retained_messages(clients: Clients, name: str) -> None:
    """4.8.2: a shared subscription is not sent what is retained. By Mosquitto 2.0 it is."""
    publisher = clients.join(f"{name}-publisher")
    publisher.publish(name, b"kept", qos=1, retain=True)
    peer = clients.join(name)
    peer.subscribe((f"$share/g/{name}", 1))
    peer.expect_nothing()
    publisher.publish(name, b"live", qos=1, retain=True)
    assert drained([peer]) == [[b"live"]]


@pytest.mark.parametrize("ending", ["unsubscribe", "disconnect", "abort"])
def test_member_that_leaves(clients: Clients, name: str, ending: str) -> None:
    publisher = clients.join(name)
    one, two = clients.join(f"{name}-1"), clients.join(f"{name}-2")
    for peer in (one, two):
        peer.subscribe((f"$share/g/{name}", 1))
    if ending == "unsubscribe":
        one.unsubscribe(f"$share/g/{name}")
        one.fence()
    else:
        getattr(one, ending)()
        clients.join(f"{name}-1").close()
    for payload in numbered(6):
        publisher.publish(name, payload, qos=1)
    assert drained([two]) == [numbered(6)]


@pytest.mark.trap(39)
def test_unacknowledged_share_of_an_ended_session(clients: Clients, name: str) -> None:
    """A QoS 1 message that its member never acknowledged passes to another. Mosquitto drops it."""
    publisher = clients.join(name)
    one = clients.join(f"{name}-1")
    one.subscribe((f"$share/g/{name}", 1))
    for payload in numbered(5):
        publisher.publish(name, payload, qos=1)
    for payload in numbered(5):
        one.expect_publish(name, payload, qos=1)
    two = clients.join(f"{name}-2")
    two.subscribe((f"$share/g/{name}", 1))
    one.abort()
    for payload in numbered(5):
        two.receive_publish(name, payload, qos=1)


@pytest.mark.trap(39)
def test_member_that_is_taken_over_keeps_its_share(clients: Clients, name: str) -> None:
    """It is back already: its messages are sent to it again and to nobody else."""
    publisher = clients.join(name)
    one = clients.durable(f"{name}-1", (f"$share/g/{name}", 1))
    for payload in numbered(4):
        publisher.publish(name, payload, qos=1)
    for payload in numbered(4):
        one.expect_publish(name, payload, qos=1)
    two = clients.durable(f"{name}-2", (f"$share/g/{name}", 1))
    again = clients.resume(f"{name}-1")
    for payload in numbered(4):
        again.receive_publish(name, payload, qos=1, dup=True)
    two.expect_nothing()


@pytest.mark.trap(37)
def test_group_of_a_resumed_session(clients: Clients, name: str) -> None:
    """A member that is back takes part without subscribing again; what waited is delivered."""
    publisher = clients.join(name)
    clients.durable(f"{name}-1", (f"$share/g/{name}", 1)).disconnect()
    for payload in numbered(10):
        publisher.publish(name, payload, qos=1)
    again = clients.resume(f"{name}-1")
    for payload in numbered(10):
        again.receive_publish(name, payload, qos=1)
    publisher.publish(name, b"live", qos=1)
    again.receive_publish(name, b"live", qos=1)
    again.expect_nothing()


@pytest.mark.trap(37)
@pytest.mark.trap(38)
def test_group_after_a_kill(broker: Broker, clients: Clients, name: str) -> None:
    """The group is there again with the broker. Mosquitto forgets it when it is killed."""
    publisher = clients.join(name)
    for index in range(2):
        clients.durable(f"{name}-{index}", (f"$share/g/{name}", 1)).disconnect()
    for payload in numbered(10):
        publisher.publish(name, payload, qos=1)
    broker.kill9()
    publisher = clients.join(name)
    members = [clients.resume(f"{name}-{index}") for index in range(2)]
    for payload in numbered(10, 10):
        publisher.publish(name, payload, qos=1)
    got: list[bytes] = []
    deadline = broker.now_s() + HANG_S
    while len(got) < 20:
        assert broker.now_s() < deadline, f"only {got}"
        got += [payload for share in drained(members) for payload in share]
    assert sorted(got, key=int) == numbered(20)


@pytest.mark.trap(36)
@pytest.mark.parametrize("granted", [0, 1])
def test_qos_0_member_of_a_durable_group(clients: Clients, name: str, granted: int) -> None:
    """What is delivered at QoS 0 is done: no window fills, nothing is delivered again."""
    publisher = clients.join(name)
    peer = clients.durable(f"{name}-1", (f"$share/g/{name}", granted))
    for start in range(0, 3000, 500):
        publisher.send(
            *(
                clients.build.publish(name, payload, qos=1, packet_id=index + 1)
                for index, payload in enumerate(numbered(500, start))
            )
        )
        for payload in numbered(500, start):
            peer.receive_publish(name, payload, qos=granted)
        publisher.take(Kind.PUBACK, 500)
    peer.disconnect()
    again = clients.resume(f"{name}-1")
    publisher.publish(name, b"end", qos=1)
    again.receive_publish(name, b"end", qos=granted)
