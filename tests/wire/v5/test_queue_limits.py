"""MQTT 5.0: what a broker with bounded queues and a full disk says (3.4.2.1, 4.9)."""

from __future__ import annotations

import pytest

from tests.wire.harness import Broker, Options
from tests.wire.packets import V5, Kind, Prop
from tests.wire.peer import SUBJECT

BROKER_OPTIONS = Options(
    settings={"session.pending_messages_max": "5", "session.inflight_max": "3"},
    mosquitto=("max_queued_messages 5", "max_inflight_messages 3"),
)
ours = pytest.mark.skipif(SUBJECT != "perdure", reason="how Perdure tells of dropped messages")


@ours
def test_oldest_pending_messages_are_dropped(broker: Broker, name: str) -> None:
    """Five stay, in order, and the first of them tells how many are missing."""
    peer = broker.connect(name, expiry=60)
    peer.subscribe((f"{name}/t", 1))
    peer.disconnect()
    publisher = broker.connect(f"{name}-publisher")
    for index in range(12):
        publisher.publish(f"{name}/t", b"%d" % index, qos=1)
    again = broker.connect(name, clean=False, expiry=60, session_present=True)
    found = [again.take_publish() for _ in range(5)]
    assert [int(message.payload) for message in found] == [7, 8, 9, 10, 11]
    assert found[0].all(Prop.USER) == [("perdure-dropped", "7")]
    assert all(message.all(Prop.USER) == [] for message in found[1:])
    again.expect_nothing()


@ours
def test_what_is_in_flight_is_never_dropped(broker: Broker, name: str) -> None:
    """It comes again with its identifiers, ahead of what the limit left."""
    peer = broker.connect(name, expiry=60)
    peer.subscribe((f"{name}/t", 1))
    publisher = broker.connect(f"{name}-publisher")
    for index in range(3):
        publisher.publish(f"{name}/t", b"%d" % index, qos=1)
    ids = [peer.expect_publish(f"{name}/t", b"%d" % i).packet_id for i in range(3)]
    peer.abort()
    for index in range(3, 12):
        publisher.publish(f"{name}/t", b"%d" % index, qos=1)
    again = broker.connect(name, clean=False, expiry=60, session_present=True)
    for index, packet_id in enumerate(ids):
        again.receive_publish(f"{name}/t", b"%d" % index, dup=True, packet_id=packet_id)
    for index in range(7, 12):
        again.receive_publish(f"{name}/t", b"%d" % index, dup=False)
    again.expect_nothing()


def test_window_of_the_server(broker: Broker, name: str) -> None:
    """The server may send less than the client's Receive Maximum allows; here three."""
    peer = broker.connect(name)
    peer.subscribe((f"{name}/t", 1))
    publisher = broker.connect(f"{name}-publisher")
    for index in range(5):
        publisher.publish(f"{name}/t", b"%d" % index, qos=1)
    first = [peer.expect_publish(f"{name}/t", b"%d" % index) for index in range(3)]
    peer.expect_nothing()
    peer.send(V5.puback(first[0].packet_id))
    peer.expect_publish(f"{name}/t", b"3")


@pytest.mark.trap(24)
def test_qos0_does_not_count(broker: Broker, name: str) -> None:
    """QoS 0 messages neither fill the queue nor are limited by it while the client reads."""
    peer = broker.connect(name)
    peer.subscribe((f"{name}/t", 0))
    publisher = broker.connect(f"{name}-publisher")
    publisher.send(*(V5.publish(f"{name}/t", b"%d" % index) for index in range(100)))
    for index in range(100):
        assert peer.expect_packet(Kind.PUBLISH).payload == b"%d" % index
