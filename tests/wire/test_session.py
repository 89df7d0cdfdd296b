"""MQTT 3.1.1, sections 3.1.2.4, 3.2.2.2 and 4.1: clean session, Session Present, what is kept."""

from __future__ import annotations

import pytest

from tests.wire.clients import (
    UNLIMITED,
    Clients,
    numbered,
    payloads_of,
    send_publishes,
    take_publishes,
)
from tests.wire.packets import Kind, Reason, Will
from tests.wire.peer import Peer

BROKER_OPTIONS = UNLIMITED


@pytest.mark.spec("MQTT-3.1.2-6")
@pytest.mark.spec("MQTT-3.2.2-2")
@pytest.mark.spec("MQTT-3.1.2-23")
@pytest.mark.spec("MQTT-3.1.2-4@3.1.1")
@pytest.mark.spec("MQTT-3.1.2-6@3.1.1")
@pytest.mark.spec("MQTT-3.1.4-3@3.1.1")
@pytest.mark.spec("MQTT-3.2.2-1@3.1.1")
@pytest.mark.spec("MQTT-3.2.2-2@3.1.1")
@pytest.mark.spec("MQTT-3.2.2-3@3.1.1")
@pytest.mark.parametrize("ending", ["disconnect", "close", "abort", "takeover"])
@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize("first", [False, True])
def test_session_present(
    clients: Clients, name: str, first: bool, second: bool, ending: str
) -> None:
    """A stored session exists exactly if the one before was not clean and this one is not."""
    peer = clients.join(name, clean=first, present=False)
    if ending != "takeover":
        getattr(peer, ending)()
    again = clients.join(name, clean=second, present=not first and not second)
    again.disconnect()
    clients.join(name, clean=False, present=not second)


@pytest.mark.spec("MQTT-3.1.2-4@3.1.1")
@pytest.mark.spec("MQTT-4.1.0-1@3.1.1")
@pytest.mark.parametrize("ending", ["disconnect", "close", "abort"])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_subscriptions_are_kept(clients: Clients, name: str, qos: int, ending: str) -> None:
    """All of them, with their QoS, and without those that were given up."""
    peer = clients.durable(name, (f"{name}/a", qos), (f"{name}/+/x", qos), (f"{name}/gone", qos))
    peer.unsubscribe(f"{name}/gone")
    getattr(peer, ending)()
    again = clients.resume(name)
    for topic in (f"{name}/a", f"{name}/b/x"):
        again.publish(topic, b"kept", qos=2)
        again.receive_publish(topic, b"kept", qos=qos)
    again.publish(f"{name}/gone", b"lost", qos=2)
    again.expect_nothing()


@pytest.mark.spec("MQTT-3.1.2-5@3.1.1")
@pytest.mark.spec("MQTT-4.5.0-1@3.1.1")
@pytest.mark.parametrize("ending", ["disconnect", "close", "abort"])
@pytest.mark.parametrize("published", [1, 2])
@pytest.mark.parametrize("granted", [1, 2])
def test_offline_messages_are_kept(
    clients: Clients, name: str, published: int, granted: int, ending: str
) -> None:
    """QoS 1 and 2, in order, as first deliveries, at the lower QoS."""
    peer = clients.durable(name, (f"{name}/#", granted))
    getattr(peer, ending)()
    publisher = clients.join(f"{name}-publisher")
    for payload in numbered(10):
        publisher.publish(f"{name}/t", payload, qos=published)
    again = clients.resume(name)
    for payload in numbered(10):
        again.receive_publish(
            f"{name}/t", payload, qos=min(published, granted), dup=False, retain=False
        )
    again.expect_nothing()


@pytest.mark.parametrize(("published", "granted"), [(0, 1), (0, 2), (1, 0), (2, 0), (0, 0)])
def test_offline_qos_0(clients: Clients, name: str, published: int, granted: int) -> None:
    """4.1, table: what arrives as QoS 0 MAY be kept; Perdure and Mosquitto do not.

    The messages of QoS 1 around them come, in order.
    """
    peer = clients.durable(name, (f"{name}/0", granted), (f"{name}/1", 1))
    peer.disconnect()
    publisher = clients.join(f"{name}-publisher")
    publisher.publish(f"{name}/1", b"before", qos=1)
    publisher.publish(f"{name}/0", b"q0", qos=published)
    publisher.publish(f"{name}/1", b"after", qos=1)
    again = clients.resume(name)
    again.receive_publish(f"{name}/1", b"before", qos=1)
    again.receive_publish(f"{name}/1", b"after", qos=1)


@pytest.mark.spec("MQTT-3.1.2-5@3.1.1")
@pytest.mark.spec("MQTT-4.6.0-6@3.1.1")
@pytest.mark.parametrize("count", [100, 5000])
def test_long_backlog(clients: Clients, name: str, count: int) -> None:
    """In order over several topics and publishers, each once."""
    peer = clients.durable(name, (f"{name}/#", 1))
    peer.disconnect()
    publisher = clients.join(f"{name}-publisher")
    for start in range(0, count, 500):
        payloads = numbered(min(500, count - start), start)
        for payload in payloads:
            packet_id = int(payload) % 500 + 1
            publisher.send(
                clients.build.publish(
                    f"{name}/{int(payload) % 7}", payload, qos=1, packet_id=packet_id
                )
            )
        for packet_id in range(1, len(payloads) + 1):
            publisher.expect_ack(Kind.PUBACK, packet_id)
    again = clients.resume(name)
    got: dict[str, list[int]] = {}
    for _ in range(count):
        found = again.expect_packet(Kind.PUBLISH, qos=1, dup=False)
        got.setdefault(found.topic, []).append(int(found.payload))
        again.send(clients.build.puback(found.packet_id))
    again.expect_nothing()
    for topic, seen in got.items():
        assert seen == list(range(int(topic.rsplit("/", 1)[1]), count, 7))


@pytest.mark.spec("MQTT-4.6.0-6@3.1.1")
@pytest.mark.trap(33)
@pytest.mark.parametrize("qos", [1, 2])
def test_live_messages_join_behind_the_backlog(clients: Clients, name: str, qos: int) -> None:
    """Published while the backlog is delivered: no gap, no repeat, no overtaking."""
    peer = clients.durable(name, (name, qos))
    peer.disconnect()
    publisher = clients.join(f"{name}-publisher")
    send_publishes(publisher, name, numbered(500), qos=1)
    publisher.take(Kind.PUBACK, 500)
    again = clients.resume(name)
    send_publishes(publisher, name, numbered(500, 500), qos=1, first_id=501)
    got = []
    for index in range(1000):
        found = again.take(Kind.PUBLISH)
        got.append(found.payload)
        again.send(
            clients.build.puback(found.packet_id)
            if found.qos == 1
            else clients.build.pubrec(found.packet_id)
        )
        if index % 50 == 0:
            last = 1001 + index
            publisher.send(
                clients.build.publish(name, b"%d" % (1000 + index // 50), qos=1, packet_id=last)
            )
    got += [again.take(Kind.PUBLISH).payload for _ in range(20)]
    assert got == numbered(1020)
    again.fence()


@pytest.mark.parametrize("rounds", [5])
def test_backlog_delivered_in_parts(clients: Clients, name: str, rounds: int) -> None:
    """Each connection reads and acknowledges some; the next one begins where it ended."""
    peer = clients.durable(name, (name, 1))
    peer.disconnect()
    publisher = clients.join(f"{name}-publisher")
    send_publishes(publisher, name, numbered(20 * rounds), qos=1)
    publisher.take(Kind.PUBACK, 20 * rounds)
    for round_ in range(rounds):
        again = clients.resume(name)
        for payload in numbered(20, 20 * round_):
            again.receive_publish(name, payload, qos=1)
        again.disconnect()
    last = clients.resume(name)
    last.publish(name, b"end", qos=1)
    last.receive_publish(name, b"end", qos=1)


@pytest.mark.spec("MQTT-3.1.2-6@3.1.1")
@pytest.mark.trap(46)
def test_clean_session_discards_everything(clients: Clients, name: str) -> None:
    """Subscriptions, pending messages, unacknowledged ones and unreleased identifiers."""
    publisher = clients.join(f"{name}-publisher")
    peer = clients.durable(name, (f"{name}/#", 2))
    publisher.publish(f"{name}/t", b"in flight", qos=2)
    peer.expect_publish(f"{name}/t", b"in flight", qos=2)
    peer.send(clients.build.publish(f"{name}/other", b"unreleased", qos=2, packet_id=77))
    peer.take(Kind.PUBREC, 77)
    peer.disconnect()
    publisher.publish(f"{name}/t", b"pending", qos=1)
    clean = clients.join(name, clean=True, present=False)
    clean.expect_nothing()
    publisher.publish(f"{name}/t", b"not subscribed", qos=1)
    clean.expect_nothing()
    clean.disconnect()
    last = clients.join(name, clean=False, present=False)
    last.expect_nothing()
    last.subscribe((f"{name}/t", 1))
    publisher.publish(f"{name}/t", b"fresh", qos=1)
    last.receive_publish(f"{name}/t", b"fresh", qos=1, dup=False)


@pytest.mark.spec("MQTT-3.1.2-6@3.1.1")
@pytest.mark.spec("MQTT-4.1.0-2@3.1.1")
@pytest.mark.parametrize("ending", ["disconnect", "close", "abort"])
def test_clean_session_ends_with_its_connection(clients: Clients, name: str, ending: str) -> None:
    """Nothing is kept for it, and nothing comes of it when it is back."""
    peer = clients.join(name, clean=True)
    peer.subscribe((name, 2))
    peer.publish(name, b"unacknowledged", qos=1)
    peer.expect_publish(name, b"unacknowledged")
    getattr(peer, ending)()
    publisher = clients.join(f"{name}-publisher")
    publisher.publish(name, b"missed", qos=1)
    again = clients.join(name, clean=True, present=False)
    publisher.publish(name, b"missed too", qos=1)
    again.expect_nothing()


# --- DISCONNECT --------------------------------------------------------------------------


@pytest.mark.spec("MQTT-3.14.4-3@3.1.1")
def test_server_closes_after_disconnect(clients: Clients, name: str) -> None:
    """The server closes if the client has not, and sends nothing."""
    peer = clients.join(name)
    peer.send(clients.build.disconnect())
    peer.expect_closed()


@pytest.mark.spec("MQTT-3.14.4-2@3.1.1")
def test_nothing_behind_disconnect_is_processed(clients: Clients, name: str) -> None:
    watcher = clients.join(f"{name}-watcher")
    watcher.subscribe((f"{name}/#", 1))
    peer = clients.join(name, will=Will(topic=f"{name}/will", payload=b"gone"))
    peer.send(clients.build.publish(f"{name}/before", b"1", qos=0), clients.build.disconnect())
    peer.send(clients.build.publish(f"{name}/behind", b"2", qos=0), b"\xff\xff\xff\xff\xff\xff")
    peer.expect_closed()
    watcher.receive_publish(f"{name}/before", b"1")
    watcher.expect_nothing()


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_publish_and_disconnect_in_one_segment(clients: Clients, name: str, qos: int) -> None:
    """What was sent before DISCONNECT is taken, the end of the connection notwithstanding."""
    watcher = clients.join(f"{name}-watcher")
    watcher.subscribe((name, qos))
    peer = clients.join(name)
    send_publishes(peer, name, numbered(20), qos=qos)
    peer.send(clients.build.disconnect())
    if qos < 2:
        assert payloads_of(take_publishes(watcher, 20)) == numbered(20)
    peer.half_close()
    while peer.receive() is not None:
        pass
    watcher.fence()


# --- takeover ----------------------------------------------------------------------------


@pytest.mark.spec("MQTT-3.1.4-2@3.1.1")
@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize("first", [False, True])
def test_takeover_closes_the_older_connection(
    clients: Clients, name: str, first: bool, second: bool
) -> None:
    older = clients.join(name, clean=first)
    newer = clients.join(name, clean=second)
    older.expect_refusal(Reason.TAKEN_OVER)
    newer.expect_nothing()


@pytest.mark.spec("MQTT-3.1.4-3")
@pytest.mark.spec("MQTT-3.1.4-2@3.1.1")
@pytest.mark.trap(20)
def test_takeover_keeps_what_was_not_acknowledged(clients: Clients, name: str) -> None:
    """The acknowledgements that the older connection sends too late count for nothing."""
    publisher = clients.join(f"{name}-publisher")
    older = clients.durable(name, (name, 1))
    for payload in numbered(5):
        publisher.publish(name, payload, qos=1)
    found = take_publishes(older, 5)
    older.send(clients.build.puback(found[0].packet_id))
    older.fence()
    newer = clients.resume(name)
    older.send(*(clients.build.puback(packet.packet_id) for packet in found))
    older.expect_refusal(Reason.TAKEN_OVER)
    for packet in found[1:]:
        newer.receive_publish(name, packet.payload, dup=True, packet_id=packet.packet_id)
    publisher.publish(name, b"live", qos=1)
    newer.receive_publish(name, b"live", dup=False)


@pytest.mark.trap(42)
@pytest.mark.parametrize("clean", [True, False])
def test_flapping_client(clients: Clients, name: str, clean: bool) -> None:
    """Many connections with one identifier, none closed: the last one works, so does the next."""
    peers = [clients.join(name, clean=clean) for _ in range(30)]
    for peer in peers[:-1]:
        peer.expect_refusal(Reason.TAKEN_OVER)
    last = peers[-1]
    last.subscribe((name, 1))
    last.publish(name, b"x", qos=1)
    last.receive_publish(name, b"x", qos=1)
    last.expect_nothing()
    last.disconnect()
    clients.join(name, clean=clean, present=not clean).expect_nothing()


@pytest.mark.spec("MQTT-4.4.0-1@3.1.1")
@pytest.mark.trap(31)
@pytest.mark.trap(42)
@pytest.mark.parametrize("leave", ["takeover", "abort"])
def test_flapping_client_with_a_backlog(clients: Clients, name: str, leave: str) -> None:
    """Interrupted again and again while it catches up: each message settled once, in order."""
    count = 2000
    clients.durable(name, (name, 1)).disconnect()
    publisher = clients.join(f"{name}-publisher")
    send_publishes(publisher, name, numbered(count), qos=1)
    publisher.take(Kind.PUBACK, count)
    peer = clients.resume(name)
    done = 0
    for round_ in range(20):
        read = round_ * 7 % 50
        found = take_publishes(peer, read)
        assert payloads_of(found) == numbered(read, done)
        keep = read // 2
        peer.send(*(clients.build.puback(packet.packet_id) for packet in found[:keep]))
        peer.fence()
        done += keep
        if leave == "abort":
            peer.abort()
        peer = clients.resume(name)
    rest = numbered(count - done, done)
    for payload in rest:
        peer.receive_publish(name, payload, qos=1)
    peer.expect_nothing()


@pytest.mark.trap(42)
@pytest.mark.parametrize("clean", [True, False])
def test_connects_at_the_same_time(clients: Clients, name: str, clean: bool) -> None:
    """Many CONNECTs under way before any is answered: exactly one connection stays."""
    peers = [clients.peer() for _ in range(20)]
    for peer in peers:
        peer.send(clients.build.connect(name, clean=clean))
    alive = []
    for peer in peers:
        found = peer.receive()
        if found is None:
            continue
        assert (found.kind, found.reason) == (Kind.CONNACK, 0)
        peer.send(clients.build.pingreq())
        if peer.receive() is not None:
            alive.append(peer)
    while len(alive) > 1:  # an older one may have answered before it was taken over
        alive = [peer for peer in alive if _answers(peer)]
    (last,) = alive
    last.subscribe((name, 1))
    last.publish(name, b"x", qos=1)
    last.receive_publish(name, b"x", qos=1)


def _answers(peer: Peer) -> bool:
    peer.send(peer.build.pingreq())
    return peer.receive() is not None


def test_takeover_in_the_middle_of_a_packet(clients: Clients, name: str) -> None:
    """The half packet of the older connection is forgotten with it."""
    older = clients.durable(name, (name, 1))
    raw = clients.build.publish(name, b"half", qos=1, packet_id=1)
    older.send(raw[:-2])
    newer = clients.resume(name)
    older.send(raw[-2:])
    older.expect_refusal(Reason.TAKEN_OVER)
    newer.publish(name, b"whole", qos=1)
    newer.receive_publish(name, b"whole", qos=1)


def test_sessions_are_independent(clients: Clients, name: str) -> None:
    """Fifty durable sessions on one topic, half of them online, each with its own progress."""
    publisher = clients.join(f"{name}-publisher")
    peers = [clients.durable(f"{name}-{index}", (name, 1)) for index in range(50)]
    for peer in peers[::2]:
        peer.disconnect()
    for payload in numbered(10):
        publisher.publish(name, payload, qos=1)
    for index, peer in enumerate(peers):
        client = clients.resume(f"{name}-{index}") if index % 2 == 0 else peer
        for payload in numbered(10):
            client.receive_publish(name, payload, qos=1)
        client.expect_nothing()
