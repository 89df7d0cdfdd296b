"""MQTT 5.0: a broker whose disk budget is used up refuses publishes by their reason code.

Section 3.4.2.1: 0x97, an implementation or administrative limit has been exceeded.
"""

from __future__ import annotations

import pytest

from tests.wire.harness import Broker, Options
from tests.wire.packets import V5, Kind, Reason
from tests.wire.peer import SUBJECT, Peer

BROKER_OPTIONS = Options(
    settings={"retention.disk_bytes_max": "1", "retention.check_interval_s": "1"}
)
pytestmark = [
    pytest.mark.skipif(SUBJECT != "perdure", reason="Mosquitto has no such budget"),
    pytest.mark.sockets(only=True),  # a store in memory has no size on disk
]


def wait_until_refused(broker: Broker, peer: Peer, topic: str) -> None:
    """Publishes until the budget was looked at."""
    for _ in range(50):
        peer.send(V5.publish(topic, b"x", qos=1, packet_id=1))
        if peer.take(Kind.PUBACK, 1).reason >= 0x80:
            return
        broker.elapse(0.1)
    raise AssertionError("never refused")


@pytest.mark.trap(35)
def test_refusal_by_qos(broker: Broker, name: str) -> None:
    """PUBACK and PUBREC with 0x97; nothing is delivered; the connection and others go on."""
    peer = broker.connect(name)
    wait_until_refused(broker, peer, f"{name}/t")
    watcher = broker.connect(f"{name}-watcher")
    watcher.subscribe((f"{name}/t", 2))
    for qos, kind in ((1, Kind.PUBACK), (2, Kind.PUBREC)):
        peer.send(V5.publish(f"{name}/t", b"no", qos=qos, packet_id=7))
        peer.expect_packet(kind, packet_id=7, reason=Reason.QUOTA_EXCEEDED)
    peer.send(V5.publish(f"{name}/t", b"no", qos=1, packet_id=7))
    peer.expect_packet(Kind.PUBACK, packet_id=7, reason=Reason.QUOTA_EXCEEDED)
    peer.send(V5.pubrel(7))
    peer.expect_packet(Kind.PUBCOMP, packet_id=7, reason=Reason.PACKET_ID_NOT_FOUND)
    watcher.expect_nothing()
    peer.expect_nothing()


@pytest.mark.trap(35)
def test_refusal_of_311_closes(broker: Broker, name: str) -> None:
    """3.1.1 has no negative acknowledgement: the connection is closed without one."""
    wait_until_refused(broker, broker.connect(f"{name}-probe"), f"{name}/t")
    peer = broker.connect(name, version=4)
    peer.send(peer.build.publish(f"{name}/t", b"no", qos=1, packet_id=7))
    peer.expect_closed()
