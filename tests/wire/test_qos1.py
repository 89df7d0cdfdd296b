"""MQTT 3.1.1, section 4.3.2: at least once, in both directions."""

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
from tests.wire.packets import Kind, Reason

BROKER_OPTIONS = UNLIMITED


@pytest.mark.spec("MQTT-4.3.2-2@3.1.1")
@pytest.mark.spec("MQTT-4.6.0-2@3.1.1")
@pytest.mark.parametrize("count", [1, 2, 100, 5000])
def test_pubacks_come_in_the_order_of_the_publishes(
    clients: Clients, name: str, count: int
) -> None:
    """3.1.1 has no receive maximum: any number may be under way at once."""
    peer = clients.join(name)
    send_publishes(peer, name, numbered(count), qos=1)
    for packet_id in range(1, count + 1):
        peer.expect_ack(Kind.PUBACK, packet_id)


@pytest.mark.spec("MQTT-4.3.2-5")
@pytest.mark.spec("MQTT-4.3.2-2@3.1.1")
@pytest.mark.parametrize("dup", [False, True])
def test_identifier_is_free_after_puback(clients: Clients, name: str, dup: bool) -> None:
    """After its PUBACK the same identifier is a new message, whatever DUP says."""
    peer = clients.join(name)
    peer.subscribe((name, 1))
    for payload in numbered(5):
        peer.send(clients.build.publish(name, payload, qos=1, packet_id=7, dup=dup))
        peer.take(Kind.PUBACK, 7)
        peer.receive_publish(name, payload, qos=1)


@pytest.mark.parametrize("count", [2, 10])
def test_same_identifier_before_puback(clients: Clients, name: str, count: int) -> None:
    """A client that resends at once gets a PUBACK for each; at least once is kept."""
    peer = clients.join(name)
    subscriber = clients.join(f"{name}-subscriber")
    subscriber.subscribe((name, 1))
    peer.send(
        *(clients.build.publish(name, b"x", qos=1, packet_id=3, dup=i > 0) for i in range(count))
    )
    for _ in range(count):
        peer.expect_ack(Kind.PUBACK, 3)
    subscriber.receive_publish(name, b"x", qos=1)


@pytest.mark.spec("MQTT-4.3.2-3")
@pytest.mark.spec("MQTT-4.4.0-1")
@pytest.mark.spec("MQTT-3.3.1-1")
@pytest.mark.spec("MQTT-4.6.0-1")
@pytest.mark.spec("MQTT-2.3.1-3@3.1.1")
@pytest.mark.spec("MQTT-3.3.1-1@3.1.1")
@pytest.mark.spec("MQTT-4.4.0-1@3.1.1")
@pytest.mark.trap(3)
@pytest.mark.parametrize("ending", ["close", "abort", "disconnect", "violation", "takeover"])
def test_unacknowledged_is_sent_again_after_a_reconnect(
    clients: Clients, name: str, ending: str
) -> None:
    """Same identifier, DUP set, same content and retain flag, in the original order."""
    publisher = clients.join(f"{name}-publisher")
    peer = clients.durable(name, (name, 1))
    for payload in numbered(5):
        publisher.publish(name, payload, qos=1)
    first = take_publishes(peer, 5)
    assert not any(found.dup for found in first)
    if ending == "violation":
        peer.send(b"\x00\x00")
        peer.expect_refusal(Reason.PROTOCOL_ERROR)
    elif ending != "takeover":
        getattr(peer, ending)()
    again = clients.resume(name)
    for before in first:
        again.expect_publish(
            name, before.payload, qos=1, dup=True, retain=False, packet_id=before.packet_id
        )
    publisher.publish(name, b"new", qos=1)
    fresh = again.expect_publish(name, b"new", qos=1, dup=False)
    assert fresh.packet_id not in {before.packet_id for before in first}
    again.send(*(clients.build.puback(found.packet_id) for found in (*first, fresh)))
    again.disconnect()
    clients.resume(name).expect_nothing()


@pytest.mark.spec("MQTT-4.4.0-1@3.1.1")
def test_sent_again_on_every_reconnect(clients: Clients, name: str) -> None:
    publisher = clients.join(f"{name}-publisher")
    peer = clients.durable(name, (name, 1))
    publisher.publish(name, b"x", qos=1)
    packet_id = peer.expect_publish(name, b"x", qos=1, dup=False).packet_id
    for _ in range(4):
        peer.close()
        peer = clients.resume(name)
        peer.expect_publish(name, b"x", qos=1, dup=True, packet_id=packet_id)
    peer.send(clients.build.puback(packet_id))
    peer.disconnect()
    peer = clients.resume(name)
    publisher.publish(name, b"last", qos=1)
    peer.receive_publish(name, b"last", qos=1)


@pytest.mark.spec("MQTT-4.4.0-1")
@pytest.mark.trap(4)
def test_no_retransmission_on_a_live_connection(clients: Clients, name: str) -> None:
    """Acknowledging late, or never, brings no copy as long as the connection stands."""
    peer = clients.join(name)
    peer.subscribe((name, 1))
    peer.publish(name, b"first", qos=1)
    peer.expect_publish(name, b"first", qos=1)
    for payload in numbered(50):
        peer.publish(name, payload, qos=1)
        peer.receive_publish(name, payload, qos=1, dup=False)
    peer.expect_nothing()


@pytest.mark.trap(19)
@pytest.mark.trap(20)
@pytest.mark.parametrize("order", ["forwards", "backwards", "odd-first", "inside-out"])
def test_pubacks_in_any_order(clients: Clients, name: str, order: str) -> None:
    """Acknowledgements out of order are taken, each for its own message only."""
    publisher = clients.join(f"{name}-publisher")
    peer = clients.durable(name, (name, 1))
    for payload in numbered(20):
        publisher.publish(name, payload, qos=1)
    found = take_publishes(peer, 20)
    index = {
        "forwards": list(range(20)),
        "backwards": list(range(19, -1, -1)),
        "odd-first": [*range(1, 20, 2), *range(0, 20, 2)],
        "inside-out": sorted(range(20), key=lambda place: abs(place - 10)),
    }[order]
    half = index[:13]
    peer.send(*(clients.build.puback(found[place].packet_id) for place in half))
    peer.fence()
    peer.close()
    again = clients.resume(name)
    missing = [found[place] for place in sorted(index[13:])]
    for before in missing:
        again.receive_publish(name, before.payload, dup=True, packet_id=before.packet_id)
    publisher.publish(name, b"end", qos=1)
    again.receive_publish(name, b"end", dup=False)
    again.disconnect()
    final = clients.resume(name)
    publisher.publish(name, b"final", qos=1)
    final.receive_publish(name, b"final", dup=False)


@pytest.mark.trap(7)
def test_one_puback_acknowledges_one_message(clients: Clients, name: str) -> None:
    """Two publishers, one topic each, equal identifiers on their side; only one is settled."""
    one, two = clients.join(f"{name}-1"), clients.join(f"{name}-2")
    peer = clients.durable(name, (f"{name}/#", 1))
    one.send(clients.build.publish(f"{name}/1", b"one", qos=1, packet_id=1))
    one.take(Kind.PUBACK, 1)
    two.send(clients.build.publish(f"{name}/2", b"two", qos=1, packet_id=1))
    two.take(Kind.PUBACK, 1)
    first, second = take_publishes(peer, 2)
    assert first.packet_id != second.packet_id
    peer.send(clients.build.puback(first.packet_id))
    peer.fence()
    peer.close()
    again = clients.resume(name)
    again.expect_publish(f"{name}/2", b"two", dup=True, packet_id=second.packet_id)


@pytest.mark.trap(8)
@pytest.mark.parametrize("wrong", [Kind.PUBREC, Kind.PUBCOMP])
def test_wrong_acknowledgement(clients: Clients, name: str, wrong: Kind) -> None:
    """A PUBREC or PUBCOMP does not acknowledge a QoS 1 message.

    [MQTT-4.8.0-1] asks for the close; what must not happen is that the message is lost.
    """
    peer = clients.durable(name, (name, 1))
    peer.publish(name, b"x", qos=1)
    packet_id = peer.expect_publish(name, b"x", qos=1).packet_id
    peer.send(clients.build.ack(wrong, packet_id), clients.build.pingreq())
    while (found := peer.receive()) is not None and found.kind is not Kind.PINGRESP:
        if clients.version >= 5:
            assert (found.kind, found.reason) == (Kind.DISCONNECT, Reason.PROTOCOL_ERROR)
        else:
            assert found.kind is Kind.PUBREL
    peer.close()
    again = clients.resume(name)
    again.receive_publish(name, b"x", qos=1, dup=True, packet_id=packet_id)


@pytest.mark.parametrize("packet_id", [1, 2, 77, 65_535])
def test_puback_of_nothing(clients: Clients, name: str, packet_id: int) -> None:
    """It may answer something from before a crash, so it is not a reason to close."""
    peer = clients.join(name)
    peer.send(clients.build.puback(packet_id))
    peer.expect_nothing()
    peer.subscribe((name, 1))
    peer.publish(name, b"x", qos=1)
    peer.receive_publish(name, b"x", qos=1)


def test_puback_twice(clients: Clients, name: str) -> None:
    peer = clients.join(name)
    peer.subscribe((name, 1))
    peer.publish(name, b"1", qos=1)
    found = peer.receive_publish(name, b"1", qos=1)
    peer.send(clients.build.puback(found.packet_id))
    peer.expect_nothing()
    peer.publish(name, b"2", qos=1)
    peer.receive_publish(name, b"2", qos=1)


@pytest.mark.trap(17)
def test_late_puback_on_the_next_connection(clients: Clients, name: str) -> None:
    """After a resume the old identifier is acknowledged, before or after the copy is read."""
    publisher = clients.join(f"{name}-publisher")
    peer = clients.durable(name, (name, 1))
    publisher.publish(name, b"1", qos=1)
    publisher.publish(name, b"2", qos=1)
    first, second = take_publishes(peer, 2)
    peer.close()
    again = clients.resume(name)
    again.send(clients.build.puback(first.packet_id))
    again.fence()
    copies = take_publishes(again, 2)
    assert [found.packet_id for found in copies] == [first.packet_id, second.packet_id]
    again.send(clients.build.puback(second.packet_id))
    again.fence()
    again.close()
    final = clients.resume(name)
    publisher.publish(name, b"3", qos=1)
    assert final.expect_packet(Kind.PUBLISH).payload in (b"1", b"3")


@pytest.mark.trap(6)
def test_identifiers_differ_when_the_window_empties(clients: Clients, name: str) -> None:
    """Acknowledging each message before the next one comes must not reset anything."""
    publisher = clients.join(f"{name}-publisher")
    peer = clients.join(name)
    peer.subscribe((name, 1))
    for round_ in range(20):
        send_publishes(publisher, name, numbered(5), qos=1, first_id=round_ * 5 + 1)
        found = take_publishes(peer, 5)
        assert len({packet.packet_id for packet in found}) == 5
        peer.send(*(clients.build.puback(packet.packet_id) for packet in found))
        for packet_id in range(round_ * 5 + 1, round_ * 5 + 6):
            publisher.take(Kind.PUBACK, packet_id)
    peer.expect_nothing()


@pytest.mark.trap(2)
def test_counters_of_a_clean_session_do_not_outlive_it(clients: Clients, name: str) -> None:
    """Messages are neither skipped nor mixed up when a client changes to a durable session."""
    publisher = clients.join(f"{name}-publisher")
    clean = clients.join(name)
    clean.subscribe((name, 1))
    for payload in numbered(10):
        publisher.publish(name, payload, qos=1)
        clean.receive_publish(name, payload, qos=1)
    clean.disconnect()
    peer = clients.durable(name, (name, 1))
    peer.disconnect()
    for payload in numbered(10, 100):
        publisher.publish(name, payload, qos=1)
    again = clients.resume(name)
    for payload in numbered(10, 100):
        again.receive_publish(name, payload, qos=1, dup=False)
    again.expect_nothing()


@pytest.mark.spec("MQTT-2.3.1-4@3.1.1")
@pytest.mark.spec("MQTT-4.6.0-6@3.1.1")
@pytest.mark.trap(1)
def test_identifiers_wrap(clients: Clients, name: str) -> None:
    """65,536 messages and more: all identifiers but 0 are used, none lost around the wrap.

    One message is left unacknowledged; its identifier must not be given to another one.
    """
    publisher = clients.join(f"{name}-publisher")
    peer = clients.join(name)
    peer.subscribe((name, 1))
    publisher.publish(name, b"held", qos=1)
    held = peer.expect_publish(name, b"held", qos=1).packet_id
    total, step = 65_534, 900
    for start in range(0, total, step):
        payloads = numbered(min(step, total - start), start)
        send_publishes(publisher, name, payloads, qos=1)
        found = take_publishes(peer, len(payloads))
        assert payloads_of(found) == payloads
        assert held not in {packet.packet_id for packet in found}
        peer.send(*(clients.build.puback(packet.packet_id) for packet in found))
        for packet_id in range(1, len(payloads) + 1):
            publisher.expect_ack(Kind.PUBACK, packet_id)
    # No identifier but the held one's neighbours is free for long: these wait or take another.
    send_publishes(publisher, name, numbered(5, total), qos=1)
    publisher.take(Kind.PUBACK, 5)
    peer.send(clients.build.puback(held))
    for payload in numbered(5, total):
        peer.receive_publish(name, payload, qos=1)
    for payload in numbered(10):
        publisher.publish(name, payload, qos=1)
        peer.receive_publish(name, payload, qos=1)
