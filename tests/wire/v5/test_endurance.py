"""MQTT 5.0: situations that only show after many connections, members or bytes."""

from __future__ import annotations

import pytest

from tests.wire.harness import Broker, Options
from tests.wire.packets import V5, Kind, Prop, Reason

BROKER_OPTIONS = Options(
    settings={"limits.connections_max": "60", "sys.interval_s": "1"},
    mosquitto=("max_connections 60",),
)


@pytest.mark.trap(5)
def test_message_is_never_given_up(broker: Broker, name: str) -> None:
    """Twenty connections that do not acknowledge: sent once on each, skipped on none."""
    publisher = broker.connect(f"{name}-publisher")
    peer = broker.connect(name, expiry=60)
    peer.subscribe((f"{name}/t", 1))
    publisher.publish(f"{name}/t", b"x", qos=1)
    packet_id = peer.expect_publish(f"{name}/t", b"x", dup=False).packet_id
    for _ in range(20):
        peer.close()
        peer = broker.connect(name, clean=False, expiry=60, session_present=True)
        peer.expect_publish(f"{name}/t", b"x", dup=True, packet_id=packet_id)
        peer.expect_nothing()


@pytest.mark.trap(48)
def test_takeovers_do_not_use_up_the_connections(broker: Broker, name: str) -> None:
    """Two hundred of them on a broker that takes sixty: each frees the place of the one before.

    The close of the old connection is waited for, as its socket counts until then.
    """
    peer = broker.connect(name, expiry=60)
    for _ in range(200):
        following = broker.connect(name, clean=False, expiry=60, session_present=True)
        peer.expect_refusal(Reason.TAKEN_OVER)
        peer.close()
        peer = following
    peer.expect_nothing()


@pytest.mark.virtual
@pytest.mark.trap(50)
def test_no_client_is_connected_after_a_kill(broker: Broker, name: str) -> None:
    """The sessions of the dead process are offline, in `$SYS` and for their wills alike."""
    for index in range(5):
        broker.connect(f"{name}-{index}", expiry=600)
    broker.kill9()
    peer = broker.connect(name)
    peer.subscribe(("$SYS/broker/clients/connected", 0))
    found = peer.take_publish()
    while found.payload != b"1":
        assert int(found.payload) < 2, "more than this client is connected"
        found = peer.take_publish()
    for index in range(5):
        broker.connect(f"{name}-{index}", clean=False, session_present=True)


@pytest.mark.virtual
@pytest.mark.trap(14)
@pytest.mark.parametrize("step", ["publish", "pubrel", "inbound"])
def test_exchanges_expire_with_their_session(broker: Broker, name: str, step: str) -> None:
    """Whatever step an exchange is at, nothing of it is left after the session's expiry."""
    peer = broker.connect(name, expiry=1)
    peer.subscribe((f"{name}/t", 2))
    publisher = broker.connect(f"{name}-publisher")
    publisher.publish(f"{name}/t", b"x", qos=2)
    packet_id = peer.expect_publish(f"{name}/t", b"x", qos=2).packet_id
    if step == "pubrel":
        peer.send(V5.pubrec(packet_id))
        peer.expect_packet(Kind.PUBREL, packet_id=packet_id)
    elif step == "inbound":
        peer.send(V5.publish(f"{name}/u", b"x", qos=2, packet_id=9))
        peer.expect_packet(Kind.PUBREC, packet_id=9)
    peer.disconnect()
    broker.elapse(2.5)
    again = broker.connect(name, clean=False, expiry=60, session_present=False)
    again.expect_nothing()
    again.send(V5.pubrel(9))
    again.expect_packet(Kind.PUBCOMP, packet_id=9, reason=Reason.PACKET_ID_NOT_FOUND)


@pytest.mark.trap(25)
def test_boundary_of_a_subscription(broker: Broker, name: str) -> None:
    """What is published in the same instant as the subscription is made comes, a hundred times.

    The message follows its SUBACK by microseconds, and the session leaves at once, so that the
    log alone has to know on which side of the subscription the message stands.
    """
    publisher = broker.connect(f"{name}-publisher")
    for index in range(100):
        peer = broker.connect(f"{name}-{index}", expiry=60)
        peer.send(V5.subscribe((f"{name}/{index}", 1), packet_id=1))
        peer.expect_packet(Kind.SUBACK, packet_id=1)
        publisher.send(V5.publish(f"{name}/{index}", b"x", qos=1, packet_id=index + 1))
        peer.send(V5.disconnect())
        peer.half_close()
        publisher.expect_packet(Kind.PUBACK, packet_id=index + 1)
        peer.close()
        again = broker.connect(f"{name}-{index}", clean=False, session_present=True)
        assert again.take_publish().payload == b"x"
        again.close()


@pytest.mark.trap(31)
def test_slow_and_fast_reader_of_the_same_payloads(broker: Broker, name: str) -> None:
    """QoS 0 to two readers, one of which does not read for a while: what comes is intact."""
    slow = broker.connect(f"{name}-slow")
    slow.subscribe((f"{name}/t", 0))
    fast = broker.connect(f"{name}-fast")
    fast.subscribe((f"{name}/t", 0))
    publisher = broker.connect(f"{name}-publisher")
    for index in range(60):
        payload = bytes([index]) * 50_000
        publisher.send(V5.publish(f"{name}/t", payload))
        assert fast.expect_packet(Kind.PUBLISH).payload == payload
    last = -1
    for message in slow.drain():
        if message.kind is Kind.PUBLISH:
            number = message.payload[0]
            assert message.payload == bytes([number]) * 50_000
            assert number > last
            last = number
    assert last >= 0


@pytest.mark.trap(40)
def test_many_members_leave_at_once(broker: Broker, name: str) -> None:
    """Thirty of thirty-one members break off together: the last one gets all that follows."""
    members = [broker.connect(f"{name}-{index}") for index in range(30)]
    for member in members:
        member.subscribe((f"$share/g/{name}/t", 1))
    last = broker.connect(f"{name}-last")
    last.subscribe((f"$share/g/{name}/t", 1))
    publisher = broker.connect(f"{name}-publisher")
    for member in members:
        member.abort()
    for index in range(62):
        publisher.publish(f"{name}/t", b"%d" % index, qos=1)
    found = {last.take_publish().payload for _ in range(62)}
    assert found == {b"%d" % index for index in range(62)}


@pytest.mark.virtual
@pytest.mark.trap(32)
def test_restarts_delete_nothing(broker: Broker, name: str) -> None:
    """Four restarts, orderly and not, over sessions in every state."""
    publisher = broker.connect(f"{name}-publisher", expiry=600)
    peer = broker.connect(name, expiry=600, properties=[(Prop.RECEIVE_MAX, 3)])
    peer.subscribe((f"{name}/t", 2), (f"{name}/kept", 1))
    publisher.publish(f"{name}/kept", b"kept", qos=1, retain=True)
    peer.receive_publish(f"{name}/kept", b"kept", qos=1)
    for index in range(8):
        publisher.publish(f"{name}/t", b"%d" % index, qos=2)
    first = peer.expect_publish(f"{name}/t", b"0", qos=2)
    peer.send(V5.pubrec(first.packet_id))
    peer.expect_publish(f"{name}/t", b"1")
    peer.expect_publish(f"{name}/t", b"2")
    peer.expect_packet(Kind.PUBREL, packet_id=first.packet_id)
    for orderly in (True, False, False, True):
        if orderly:
            broker.restart()
        else:
            broker.kill9()
    again = broker.connect(name, clean=False, expiry=600, session_present=True)
    again.take(Kind.PUBREL, first.packet_id)
    again.send(V5.pubcomp(first.packet_id))
    for index in range(1, 8):
        again.receive_publish(f"{name}/t", b"%d" % index, qos=2, dup=index < 3)
    again.subscribe((f"{name}/kept", 1))
    again.receive_publish(f"{name}/kept", b"kept", qos=1, retain=True)
    again.expect_nothing()


def test_hundred_sessions_with_one_wildcard(broker: Broker, name: str) -> None:
    """Fan-out to sixty at once: everyone gets every message, in order."""
    peers = [broker.connect(f"{name}-{index}") for index in range(50)]
    for peer in peers:
        peer.subscribe((f"{name}/#", 1))
    publisher = broker.connect(f"{name}-publisher")
    for index in range(10):
        publisher.publish(f"{name}/{index}", b"%d" % index, qos=2)
    for peer in peers:
        for index in range(10):
            peer.receive_publish(f"{name}/{index}", b"%d" % index, qos=1)


@pytest.mark.sockets(only=True)  # the listener counts
@pytest.mark.alone  # those of its own node
def test_connections_beyond_the_limit_are_refused(broker: Broker, name: str) -> None:
    """Closed, with CONNACK 0x97 or 0x9F or without an answer; those that stand work on."""
    peers = [broker.connect(f"{name}-{index}") for index in range(60)]
    extra = broker.peer()
    extra.send(V5.connect(f"{name}-extra"))
    found = extra.receive()
    if found is not None:
        assert found.kind is Kind.CONNACK
        assert found.reason in (Reason.QUOTA_EXCEEDED, 0x88, 0x89, 0x9F)
    peers[0].expect_nothing()
    peers.pop().disconnect()
    peers[-1].fence()
    broker.connect(f"{name}-next").expect_nothing()
