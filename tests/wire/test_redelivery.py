"""MQTT 3.1.1, section 4.4: what is sent again is what was sent, whatever was subscribed since."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest
from tests.wire.harness import Broker
from tests.wire.packets import Kind
from tests.wire.peer import Peer

Change = Callable[[Peer, str], None]


def unsubscribe_one(peer: Peer, name: str) -> None:
    peer.unsubscribe(f"{name}/#")


def unsubscribe_all(peer: Peer, name: str) -> None:
    peer.unsubscribe(f"{name}/#", f"{name}/+")


def downgrade(peer: Peer, name: str) -> None:
    peer.subscribe((f"{name}/#", 1))


def downgrade_to_nothing(peer: Peer, name: str) -> None:
    peer.subscribe((f"{name}/#", 0), (f"{name}/+", 0))


CHANGES: Final[tuple[Change, ...]] = (
    unsubscribe_one,
    unsubscribe_all,
    downgrade,
    downgrade_to_nothing,
)


def sent_before(broker: Broker, change: Change, name: str) -> tuple[Peer, list[bytes]]:
    """A client with messages in flight whose subscriptions were changed since."""
    client_id = f"{name}-{change.__name__}"
    peer = broker.connect(client_id, version=4, clean=False)
    peer.subscribe((f"{client_id}/#", 2), (f"{client_id}/+", 1))
    publisher = broker.connect(f"{client_id}-p", version=4)
    sent = []
    for qos in (1, 2, 2, 1):
        publisher.publish(f"{client_id}/t", b"%d" % qos, qos=qos)
        sent.append(peer.expect_publish(f"{client_id}/t", b"%d" % qos, qos=qos).raw)
    change(peer, client_id)
    return peer, sent


def again(broker: Broker, change: Change, name: str, sent: list[bytes]) -> None:
    """The client comes back; it is sent the same bytes, with DUP."""
    peer = broker.connect(f"{name}-{change.__name__}", version=4, clean=False)
    for raw in sent:
        found = peer.expect_packet(Kind.PUBLISH, dup=True)
        assert found.raw == bytes([raw[0] | 0x08]) + raw[1:]
        peer.acknowledge(found)


@pytest.mark.spec("MQTT-4.4.0-1")
@pytest.mark.parametrize("change", CHANGES)
def test_redelivery_after_a_change_of_subscriptions(
    broker: Broker, name: str, change: Change
) -> None:
    for ending in ("close", "disconnect"):
        peer, sent = sent_before(broker, change, name + ending)
        getattr(peer, ending)()
        again(broker, change, name + ending, sent)


@pytest.mark.spec("MQTT-4.4.0-1")
def test_redelivery_by_another_process(broker: Broker, name: str) -> None:
    sent = {change: sent_before(broker, change, name)[1] for change in CHANGES}
    broker.kill9()
    for change in CHANGES:
        again(broker, change, name, sent[change])
