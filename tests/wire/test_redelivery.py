"""Section 4.4: what is sent again is what was sent, whatever was subscribed since."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from tests.wire.clients import Clients
from tests.wire.harness import Broker
from tests.wire.packets import Kind, Prop
from tests.wire.peer import Peer
from tests.wire.reader import Packet

RETAIN_AS_PUBLISHED: Final = 0x08
NO_RETAINED: Final = 0x20
"""Else a subscription may be given what comes right after it on its own, with retained messages."""

Change = Callable[[Peer, str], None]


def subscribe(peer: Peer, topic_filter: str, options: int, identifier: int = 0) -> None:
    """Subscribes; what 3.1.1 knows nothing of is left out there."""
    if peer.version < 5:
        peer.subscribe((topic_filter, options & 3))
        return
    properties = [(Prop.SUBSCRIPTION_ID, identifier)] if identifier else []
    peer.subscribe((topic_filter, options | NO_RETAINED), properties=properties)


def unsubscribe_one(peer: Peer, name: str) -> None:
    peer.unsubscribe(f"{name}/#")


def unsubscribe_other(peer: Peer, name: str) -> None:
    peer.unsubscribe(f"{name}/+")


def unsubscribe_all(peer: Peer, name: str) -> None:
    peer.unsubscribe(f"{name}/#", f"{name}/+", f"{name}/t")


def without_retain_as_published(peer: Peer, name: str) -> None:
    for topic_filter in (f"{name}/#", f"{name}/+", f"{name}/t"):
        subscribe(peer, topic_filter, 2, 7)


def downgrade(peer: Peer, name: str) -> None:
    subscribe(peer, f"{name}/#", 1, 1)
    subscribe(peer, f"{name}/+", 0, 2)
    peer.unsubscribe(f"{name}/t")


def downgrade_to_nothing(peer: Peer, name: str) -> None:
    subscribe(peer, f"{name}/#", 0, 1)
    subscribe(peer, f"{name}/+", 0, 2)


def other_identifiers(peer: Peer, name: str) -> None:
    subscribe(peer, f"{name}/#", 2 | RETAIN_AS_PUBLISHED, 200)
    subscribe(peer, f"{name}/+", 1)


def more(peer: Peer, name: str) -> None:
    """Beyond a handful they are found in another way."""
    for number in range(12):
        subscribe(peer, f"{name}/t/{'+/' * number}#", 2, 20 + number)


CHANGES: Final[tuple[Change, ...]] = (
    unsubscribe_one,
    unsubscribe_other,
    unsubscribe_all,
    without_retain_as_published,
    downgrade,
    downgrade_to_nothing,
    other_identifiers,
    more,
)


def sent_before(clients: Clients, change: Change, name: str) -> tuple[Peer, list[Packet]]:
    """A client with messages in flight whose subscriptions were changed since."""
    client_id = f"{name}-{change.__name__}"
    peer = clients.durable(client_id)
    # Made in an order that is not that of their identifiers, and the last one with QoS 0.
    subscribe(peer, f"{client_id}/+", 1, 2)
    subscribe(peer, f"{client_id}/#", 2 | RETAIN_AS_PUBLISHED, 1)
    subscribe(peer, f"{client_id}/t", 0, 3)
    publisher = clients.join(f"{client_id}-p")
    five = clients.version >= 5
    sent = []
    for qos, retain in ((1, False), (1, True), (2, True), (2, False)):
        publisher.publish(f"{client_id}/t", b"%d" % qos, qos=qos, retain=retain)
        packet = peer.expect_publish(f"{client_id}/t", b"%d" % qos, qos=qos, retain=retain and five)
        assert packet.all(Prop.SUBSCRIPTION_ID) == ([1, 2, 3] if five else [])
        sent.append(packet)
    change(peer, client_id)
    return peer, sent


def again(clients: Clients, change: Change, name: str, sent: list[Packet]) -> None:
    """The client comes back; it is sent the same bytes, with DUP."""
    peer = clients.resume(f"{name}-{change.__name__}")
    for packet in sent:
        found = peer.expect_packet(Kind.PUBLISH, dup=True)
        assert found.raw == bytes([packet.raw[0] | 0x08]) + packet.raw[1:]
        peer.acknowledge(found)


@pytest.mark.spec("MQTT-4.4.0-1")
@pytest.mark.spec("MQTT-4.4.0-1@3.1.1")
@pytest.mark.parametrize("change", CHANGES)
def test_redelivery_after_a_change_of_subscriptions(
    clients: Clients, name: str, change: Change
) -> None:
    for ending in ("close", "disconnect"):
        peer, sent = sent_before(clients, change, name + ending)
        getattr(peer, ending)()
        again(clients, change, name + ending, sent)


@pytest.mark.spec("MQTT-4.4.0-1")
@pytest.mark.spec("MQTT-4.4.0-1@3.1.1")
@pytest.mark.parametrize("ending", ["restart", "kill9"])
def test_redelivery_by_another_process(
    broker: Broker, clients: Clients, name: str, ending: str
) -> None:
    sent = {change: sent_before(clients, change, name)[1] for change in CHANGES}
    getattr(broker, ending)()
    for change in CHANGES:
        again(clients, change, name, sent[change])


@pytest.mark.spec("MQTT-4.4.0-1")
@pytest.mark.spec("MQTT-4.4.0-1@3.1.1")
def test_what_was_acknowledged_changes_nothing_for_the_rest(clients: Clients, name: str) -> None:
    """Subscriptions that have ended are remembered for as long as a message needs them."""
    peer = clients.durable(name)
    subscribe(peer, f"{name}/#", 1, 9)
    subscribe(peer, f"{name}/+", 1, 4)
    publisher = clients.join(f"{name}-p")
    packets = []
    for number in range(4):
        publisher.publish(f"{name}/t", b"%d" % number, qos=1)
        packets.append(peer.expect_publish(f"{name}/t", b"%d" % number))
    peer.unsubscribe(f"{name}/+")
    publisher.publish(f"{name}/t", b"4", qos=1)
    packets.append(peer.expect_publish(f"{name}/t", b"4"))
    identifiers = [[4, 9]] * 4 + [[9]] if clients.version >= 5 else [[]] * 5
    assert [packet.all(Prop.SUBSCRIPTION_ID) for packet in packets] == identifiers
    for packet in (packets[0], packets[2]):
        peer.send(peer.build.puback(packet.packet_id))
    peer.fence()
    peer.abort()
    back = clients.resume(name)
    for packet in (packets[1], packets[3], packets[4]):
        found = back.expect_publish(f"{name}/t", packet.payload, dup=True)
        assert found.packet_id == packet.packet_id
        assert found.all(Prop.SUBSCRIPTION_ID) == packet.all(Prop.SUBSCRIPTION_ID)
