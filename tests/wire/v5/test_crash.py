"""MQTT 5.0: what was acknowledged, and what a session holds, outlive the process.

Each case kills the broker with SIGKILL (or stops it) between two steps. Mosquitto writes its
state at intervals and fails most of these.
"""

from __future__ import annotations

import pytest

from tests.wire.harness import Broker
from tests.wire.packets import Kind, Prop, Will
from tests.wire.peer import Peer


def die(broker: Broker, how: str) -> None:
    """The process ends and a new one takes its place on the same data."""
    if how == "kill":
        broker.kill9()
    else:
        broker.restart()


def settle(broker: Broker) -> None:
    """Acknowledgements may be written some milliseconds late (a kill then costs a repeat, which
    DUP allows); a PUBACK that was sent after them has them on disk."""
    broker.connect("").publish("settle", b"", qos=1)


both = pytest.mark.parametrize("how", [pytest.param("kill", marks=pytest.mark.sockets), "stop"])


def resume(broker: Broker, name: str) -> Peer:
    """The next connection of an existing session."""
    return broker.connect(name, clean=False, expiry=600, session_present=True)


@both
@pytest.mark.trap(26)
@pytest.mark.parametrize("qos", [1, 2])
def test_acknowledged_messages_survive(broker: Broker, name: str, how: str, qos: int) -> None:
    subscriber = broker.connect(f"{name}-subscriber", expiry=600)
    subscriber.subscribe((f"{name}/t", qos))
    subscriber.disconnect()
    publisher = broker.connect(name)
    for index in range(50):
        publisher.publish(
            f"{name}/t", b"%d" % index, qos=qos, properties=[(Prop.USER, ("n", str(index)))]
        )
    die(broker, how)
    again = resume(broker, f"{name}-subscriber")
    for index in range(50):
        found = again.receive_publish(f"{name}/t", b"%d" % index, qos=qos)
        assert found.all(Prop.USER) == [("n", str(index))]
    again.expect_nothing()


@both
@pytest.mark.trap(53)
def test_retained_messages_survive(broker: Broker, name: str, how: str) -> None:
    publisher = broker.connect(name)
    for qos in (0, 1, 2):
        publisher.publish(
            f"{name}/{qos}", b"kept", qos=qos, retain=True, properties=[(Prop.USER, ("k", "v"))]
        )
    publisher.publish(f"{name}/gone", b"x", qos=1, retain=True)
    publisher.publish(f"{name}/gone", b"", qos=1, retain=True)
    die(broker, how)
    subscriber = broker.connect(f"{name}-subscriber")
    subscriber.subscribe((f"{name}/+", 2))
    found = {}
    for _ in range(3):
        message = subscriber.take_publish()
        assert message.retain
        assert message.all(Prop.USER) == [("k", "v")]
        found[message.topic] = message.qos
    assert found == {f"{name}/{qos}": qos for qos in (0, 1, 2)}
    subscriber.expect_nothing()


@both
@pytest.mark.trap(37)
def test_subscriptions_survive_with_their_options(broker: Broker, name: str, how: str) -> None:
    first = broker.connect(f"{name}-subscriber", expiry=600)
    first.subscribe((f"{name}/a", 1 | 0x08), properties=[(Prop.SUBSCRIPTION_ID, 4000)])
    first.subscribe((f"$share/g/{name}/b", 1))
    first.subscribe((f"{name}/c", 1))
    first.unsubscribe(f"{name}/c")
    first.disconnect()
    die(broker, how)
    again = resume(broker, f"{name}-subscriber")
    publisher = broker.connect(name)
    publisher.publish(f"{name}/c", b"no", qos=1)
    publisher.publish(f"{name}/b", b"shared", qos=1)
    publisher.publish(f"{name}/a", b"plain", qos=1, retain=True)
    messages = [again.take_publish(), again.take_publish()]
    found = {message.payload: message for message in messages}
    assert set(found) == {b"shared", b"plain"}
    assert found[b"plain"].retain
    assert found[b"plain"].all(Prop.SUBSCRIPTION_ID) == [4000]
    again.expect_nothing()
    publisher.publish(f"{name}/a", b"", retain=True)


@both
@pytest.mark.trap(37)
def test_shared_group_survives(broker: Broker, name: str, how: str) -> None:
    """What nobody was given, and what a member did not acknowledge, is delivered afterwards."""
    member = broker.connect(f"{name}-1", expiry=600)
    member.subscribe((f"$share/g/{name}/t", 1))
    publisher = broker.connect(name)
    publisher.publish(f"{name}/t", b"unacknowledged", qos=1)
    member.expect_publish(f"{name}/t", b"unacknowledged")
    member.disconnect()
    publisher.publish(f"{name}/t", b"waiting", qos=1)
    die(broker, how)
    again = resume(broker, f"{name}-1")
    found = sorted(again.take_publish().payload for _ in range(2))
    assert found == [b"unacknowledged", b"waiting"]
    again.expect_nothing()


@both
@pytest.mark.trap(44)
def test_delayed_will_survives(broker: Broker, name: str, how: str) -> None:
    """Its time goes on while the broker is away, and it is published by the next process."""
    watcher = broker.connect(f"{name}-watcher", expiry=600)
    watcher.subscribe((f"{name}/w", 1))
    watcher.disconnect()
    will = Will(topic=f"{name}/w", payload=b"gone", qos=1, properties=[(Prop.WILL_DELAY, 1)])
    broker.connect(f"{name}-mortal", expiry=600, will=will).close()
    die(broker, how)
    watcher = resume(broker, f"{name}-watcher")
    watcher.receive_publish(f"{name}/w", b"gone", qos=1, timeout_s=6)


@pytest.mark.trap(44)
def test_will_of_a_client_that_was_connected_at_the_crash(broker: Broker, name: str) -> None:
    """The broker died and with it the connection, without a DISCONNECT of the client."""
    watcher = broker.connect(f"{name}-watcher", expiry=600)
    watcher.subscribe((f"{name}/w", 1))
    will = Will(topic=f"{name}/w", payload=b"gone", qos=1, properties=[(Prop.WILL_DELAY, 1)])
    broker.connect(f"{name}-mortal", expiry=600, will=will)
    broker.kill9()
    watcher = resume(broker, f"{name}-watcher")
    watcher.receive_publish(f"{name}/w", b"gone", qos=1, timeout_s=6)


@both
@pytest.mark.trap(44)
def test_delayed_will_is_cancelled_after_a_restart(broker: Broker, name: str, how: str) -> None:
    watcher = broker.connect(f"{name}-watcher", expiry=600)
    watcher.subscribe((f"{name}/w", 1))
    will = Will(topic=f"{name}/w", payload=b"gone", qos=1, properties=[(Prop.WILL_DELAY, 30)])
    broker.connect(f"{name}-mortal", expiry=600, will=will).close()
    die(broker, how)
    resume(broker, f"{name}-mortal").disconnect()
    watcher = resume(broker, f"{name}-watcher")
    watcher.publish(f"{name}/w", b"control", qos=1)
    watcher.receive_publish(f"{name}/w", b"control", qos=1)


@both
@pytest.mark.trap(47)
def test_session_expiry_goes_on_while_the_broker_is_away(
    broker: Broker, name: str, how: str
) -> None:
    broker.connect(f"{name}-short", expiry=1).disconnect()
    broker.connect(f"{name}-long", expiry=600).disconnect()
    broker.connect(f"{name}-never", expiry=0xFFFFFFFF).disconnect()
    die(broker, how)
    broker.elapse(2.0)
    broker.connect(f"{name}-short", clean=False, session_present=False)
    broker.connect(f"{name}-long", clean=False, session_present=True)
    broker.connect(f"{name}-never", clean=False, session_present=True)


def test_session_of_expiry_0_does_not_survive(broker: Broker, name: str) -> None:
    broker.connect(name).subscribe((f"{name}/t", 1))
    broker.kill9()
    broker.connect(name, clean=False, session_present=False)


def test_connected_sessions_survive_a_crash(broker: Broker, name: str) -> None:
    """The connection is gone with the process, the session is not; its expiry begins now."""
    peer = broker.connect(name, expiry=600)
    peer.subscribe((f"{name}/t", 1))
    broker.kill9()
    peer.expect_closed()
    again = resume(broker, name)
    again.publish(f"{name}/t", b"x", qos=1)
    again.receive_publish(f"{name}/t", b"x", qos=1)


@pytest.mark.spec("MQTT-3.1.2-4")
def test_clean_start_is_not_undone_by_a_crash(broker: Broker, name: str) -> None:
    """[MQTT-3.1.2-4]: once the CONNACK is out the old session is gone for good."""
    first = broker.connect(name, expiry=600)
    first.subscribe((f"{name}/t", 1))
    first.disconnect()
    broker.connect(name, clean=True, session_present=False)
    broker.kill9()
    broker.connect(name, clean=False, session_present=False)


def test_suback_is_durable(broker: Broker, name: str) -> None:
    """Killed right after the SUBACK: the subscription holds."""
    subscriber = broker.connect(f"{name}-subscriber", expiry=600)
    subscriber.subscribe((f"{name}/t", 1))
    broker.kill9()
    broker.connect(name).publish(f"{name}/t", b"x", qos=1)
    again = resume(broker, f"{name}-subscriber")
    again.receive_publish(f"{name}/t", b"x", qos=1)


def test_stop_tells_the_clients(broker: Broker, name: str) -> None:
    """3.14.2.1: 0x8B, server shutting down, then the close."""
    peer = broker.connect(name)
    broker.restart()
    peer.expect_refusal(0x8B)


def test_several_kills_in_a_row(broker: Broker, name: str) -> None:
    """One unacknowledged message through five lives keeps its identifier; others come once."""
    subscriber = broker.connect(f"{name}-subscriber", expiry=600)
    subscriber.subscribe((f"{name}/t", 1))
    broker.connect(name).publish(f"{name}/t", b"kept", qos=1)
    packet_id = subscriber.expect_publish(f"{name}/t", b"kept").packet_id
    for number in range(5):
        broker.kill9()
        again = resume(broker, f"{name}-subscriber")
        again.expect_publish(f"{name}/t", b"kept", dup=True, packet_id=packet_id)
        broker.connect(name).publish(f"{name}/t", b"%d" % number, qos=1)
        again.receive_publish(f"{name}/t", b"%d" % number, qos=1)
        again.fence()
        again.disconnect()
        settle(broker)


@pytest.mark.sockets
@pytest.mark.alone  # other nodes end a group whose only member is gone, as its session has ended
@pytest.mark.parametrize("acknowledged", [0, 2])
def test_burst_that_an_ended_member_of_a_group_had(
    broker: Broker, name: str, acknowledged: int
) -> None:
    """What it did not acknowledge goes to others, once, also if the next one dies with it."""
    filters = (f"$share/g/{name}/t", 1)
    one = broker.connect(f"{name}-one")
    one.subscribe(filters)
    publisher = broker.connect(name)
    burst = [
        publisher.build.publish(f"{name}/t", b"%d" % at, qos=1, packet_id=at + 1) for at in range(8)
    ]
    publisher.send(b"".join(burst))
    publisher.take(Kind.PUBACK, 8)
    came = [one.take(Kind.PUBLISH) for _ in range(8)]
    for message in came[:acknowledged]:
        one.acknowledge(message)
    one.fence()
    broker.kill9()
    window = [(Prop.RECEIVE_MAX, 3)]
    two = broker.connect(f"{name}-two", expiry=600, properties=window)
    two.subscribe(filters)
    first = [two.take(Kind.PUBLISH) for _ in range(3)]
    two.fence()
    broker.kill9()
    two = broker.connect(f"{name}-two", clean=False, expiry=600, properties=window)
    bodies = [b"%d" % at for at in range(8)]
    again: list[bytes] = []
    while not set(again) >= set(bodies[acknowledged:]):
        again.append(two.take_publish().payload)
    assert [message.payload for message in first] == again[:3]
    assert len(set(again)) == len(again)
    two.drain()
    three = broker.connect(f"{name}-three")
    three.subscribe(filters)
    publisher = broker.connect(name)
    publisher.publish(f"{name}/t", b"last", qos=1)
    left = [each for each in (*two.drain(), *three.drain()) if each.kind is Kind.PUBLISH]
    assert [each.payload for each in left if each.payload not in bodies[:acknowledged]] == [b"last"]
