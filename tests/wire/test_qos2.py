"""MQTT 3.1.1, section 4.3.3: exactly once, in both directions."""

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
from tests.wire.packets import Kind

BROKER_OPTIONS = UNLIMITED


@pytest.mark.spec("MQTT-4.3.3-8")
@pytest.mark.spec("MQTT-4.3.3-10")
@pytest.mark.spec("MQTT-4.3.3-12")
@pytest.mark.spec("MQTT-4.3.3-2@3.1.1")
@pytest.mark.trap(10)
@pytest.mark.trap(11)
@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("dup", [False, True])
@pytest.mark.parametrize("count", [2, 3, 20])
def test_repeated_publish_is_one_message(
    clients: Clients, name: str, count: int, dup: bool, at_once: bool
) -> None:
    """Until PUBREL the identifier is the message: PUBREC for each copy, one delivery."""
    subscriber = clients.join(f"{name}-subscriber")
    subscriber.subscribe((name, 2))
    peer = clients.join(name)
    copies = [
        clients.build.publish(name, b"x", qos=2, packet_id=7, dup=dup and i > 0)
        for i in range(count)
    ]
    if at_once:
        peer.send(*copies)
    for copy in copies:
        if not at_once:
            peer.send(copy)
        peer.expect_ack(Kind.PUBREC, 7)
    peer.send(clients.build.pubrel(7))
    peer.expect_ack(Kind.PUBCOMP, 7)
    subscriber.receive_publish(name, b"x", qos=2)
    subscriber.expect_nothing()


@pytest.mark.spec("MQTT-4.3.3-9")
@pytest.mark.trap(10)
@pytest.mark.spec("MQTT-4.3.3-2@3.1.1")
@pytest.mark.parametrize("dup", [False, True])
def test_identifier_is_free_after_pubrel(clients: Clients, name: str, dup: bool) -> None:
    """From PUBREL on the same identifier is a new message, a first one with DUP included."""
    peer = clients.join(name)
    peer.subscribe((name, 2))
    for payload in numbered(5):
        peer.send(clients.build.publish(name, payload, qos=2, packet_id=9, dup=dup))
        peer.take(Kind.PUBREC, 9)
        peer.send(clients.build.pubrel(9))
        peer.take(Kind.PUBCOMP, 9)
        found = peer.take(Kind.PUBLISH)
        assert found.payload == payload
        assert not found.dup
        peer.send(clients.build.pubrec(found.packet_id))
        peer.take(Kind.PUBREL, found.packet_id)
        peer.send(clients.build.pubcomp(found.packet_id))
    peer.expect_nothing()


@pytest.mark.spec("MQTT-4.3.3-11")
@pytest.mark.trap(12)
@pytest.mark.spec("MQTT-4.3.3-2@3.1.1")
def test_repeated_pubrel(clients: Clients, name: str) -> None:
    peer = clients.join(name)
    peer.subscribe((name, 2))
    peer.send(clients.build.publish(name, b"x", qos=2, packet_id=4))
    peer.take(Kind.PUBREC, 4)
    peer.send(clients.build.pubrel(4) * 3)
    assert peer.take(Kind.PUBCOMP, 4).reason == 0
    for _ in range(2):
        peer.take(Kind.PUBCOMP, 4)
    peer.receive_publish(name, b"x", qos=2)
    peer.expect_nothing()


@pytest.mark.spec("MQTT-4.6.0-3@3.1.1")
@pytest.mark.parametrize("count", [2, 100, 3000])
def test_pubrecs_come_in_the_order_of_the_publishes(
    clients: Clients, name: str, count: int
) -> None:
    """3.1.1 has no receive maximum: any number may be unreleased at once."""
    peer = clients.join(name)
    send_publishes(peer, name, numbered(count), qos=2)
    for packet_id in range(1, count + 1):
        peer.expect_ack(Kind.PUBREC, packet_id)
    peer.send(*(clients.build.pubrel(packet_id) for packet_id in range(1, count + 1)))
    for packet_id in range(1, count + 1):
        peer.expect_ack(Kind.PUBCOMP, packet_id)


@pytest.mark.spec("MQTT-4.6.0-4")
@pytest.mark.spec("MQTT-4.6.0-4@3.1.1")
def test_pubrels_come_in_the_order_of_the_pubrecs(clients: Clients, name: str) -> None:
    publisher = clients.join(f"{name}-publisher")
    peer = clients.join(name)
    peer.subscribe((name, 2))
    for payload in numbered(30):
        publisher.publish(name, payload, qos=2)
    found = take_publishes(peer, 30)
    assert payloads_of(found) == numbered(30)
    order = [found[place].packet_id for place in [*range(1, 30, 2), *range(0, 30, 2)]]
    peer.send(*(clients.build.pubrec(packet_id) for packet_id in order))
    for packet_id in order:
        peer.expect_ack(Kind.PUBREL, packet_id)
    peer.send(*(clients.build.pubcomp(packet_id) for packet_id in reversed(order)))
    peer.expect_nothing()


@pytest.mark.parametrize("order", ["forwards", "backwards"])
def test_releases_out_of_order(clients: Clients, name: str, order: str) -> None:
    """PUBRELs in any order: each message is delivered once, in the order of PUBLISH or PUBREL."""
    subscriber = clients.join(f"{name}-subscriber")
    subscriber.subscribe((name, 2))
    peer = clients.join(name)
    send_publishes(peer, name, numbered(10), qos=2)
    for packet_id in range(1, 11):
        peer.expect_ack(Kind.PUBREC, packet_id)
    released = list(range(1, 11)) if order == "forwards" else list(range(10, 0, -1))
    peer.send(*(clients.build.pubrel(packet_id) for packet_id in released))
    for packet_id in released:
        peer.expect_ack(Kind.PUBCOMP, packet_id)
    got = payloads_of(take_publishes(subscriber, 10))
    assert got in (numbered(10), [b"%d" % (packet_id - 1) for packet_id in released])
    subscriber.expect_nothing()


# --- the publisher's connection breaks ---------------------------------------------------


@pytest.mark.spec("MQTT-4.3.3-12")
@pytest.mark.trap(16)
@pytest.mark.spec("MQTT-4.1.0-1@3.1.1")
@pytest.mark.spec("MQTT-4.3.3-2@3.1.1")
@pytest.mark.spec("MQTT-4.4.0-1@3.1.1")
@pytest.mark.trap(12)
@pytest.mark.trap(15)
@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize("resend", [False, True])
@pytest.mark.parametrize("ending", ["close", "abort", "disconnect", "takeover"])
def test_publisher_resumes_before_pubrel(
    clients: Clients, name: str, ending: str, resend: bool, retain: bool
) -> None:
    """The identifier outlives the connection: a copy is no new message, QoS and retain stay."""
    subscriber = clients.join(f"{name}-subscriber")
    subscriber.subscribe((name, 2))
    peer = clients.durable(name)
    peer.send(clients.build.publish(name, b"x", qos=2, packet_id=11, retain=retain))
    peer.expect_ack(Kind.PUBREC, 11)
    if ending != "takeover":
        getattr(peer, ending)()
    again = clients.resume(name)
    if resend:
        again.send(clients.build.publish(name, b"x", qos=2, packet_id=11, dup=True, retain=retain))
        again.expect_ack(Kind.PUBREC, 11)
    again.send(clients.build.pubrel(11))
    again.expect_ack(Kind.PUBCOMP, 11)
    subscriber.receive_publish(name, b"x", qos=2, retain=False)
    subscriber.expect_nothing()
    late = clients.join(f"{name}-late")
    late.subscribe((name, 2))
    if retain:
        late.receive_publish(name, b"x", qos=2, retain=True)
    late.expect_nothing()


@pytest.mark.spec("MQTT-4.3.3-2@3.1.1")
def test_publisher_resumes_after_pubrel(clients: Clients, name: str) -> None:
    """A PUBREL sent again is answered, and its message is not delivered again."""
    peer = clients.durable(name)
    peer.subscribe((name, 2))
    peer.send(clients.build.publish(name, b"x", qos=2, packet_id=11))
    peer.take(Kind.PUBREC, 11)
    peer.send(clients.build.pubrel(11))
    peer.take(Kind.PUBCOMP, 11)
    peer.receive_publish(name, b"x", qos=2)
    peer.disconnect()
    again = clients.resume(name)
    again.send(clients.build.pubrel(11))
    again.expect_ack(Kind.PUBCOMP, 11)
    again.expect_nothing()


@pytest.mark.spec("MQTT-3.1.2-6@3.1.1")
def test_clean_session_forgets_unreleased_identifiers(clients: Clients, name: str) -> None:
    """After a clean start the same identifier is a new message."""
    peer = clients.join(name, clean=True)
    peer.send(clients.build.publish(name, b"old", qos=2, packet_id=3))
    peer.expect_ack(Kind.PUBREC, 3)
    peer.close()
    again = clients.join(name, clean=True)
    subscriber = clients.join(f"{name}-subscriber")
    subscriber.subscribe((name, 2))
    again.send(clients.build.publish(name, b"new", qos=2, packet_id=3))
    again.expect_ack(Kind.PUBREC, 3)
    again.send(clients.build.pubrel(3))
    again.expect_ack(Kind.PUBCOMP, 3)
    subscriber.receive_publish(name, b"new", qos=2)


@pytest.mark.trap(9)
def test_unreleased_identifiers_do_not_exhaust_anything(clients: Clients, name: str) -> None:
    """Clients that never send PUBREL and leave, again and again; then one does it properly."""
    for _ in range(5):
        peer = clients.join(name, clean=True)
        send_publishes(peer, name, numbered(600), qos=2)
        for packet_id in range(1, 601):
            peer.expect_ack(Kind.PUBREC, packet_id)
        peer.close()
    peer = clients.durable(f"{name}-durable")
    for round_ in range(3):
        send_publishes(peer, name, numbered(600), qos=2, first_id=1 + 600 * round_)
        for packet_id in range(1 + 600 * round_, 601 + 600 * round_):
            peer.take(Kind.PUBREC, packet_id)
        peer.close()
        peer = clients.resume(f"{name}-durable")
    peer.send(*(clients.build.pubrel(packet_id) for packet_id in range(1, 1801)))
    for packet_id in range(1, 1801):
        peer.take(Kind.PUBCOMP, packet_id)
    peer.publish(name, b"done", qos=2)


# --- the subscriber's connection breaks --------------------------------------------------


@pytest.mark.spec("MQTT-4.3.3-3")
@pytest.mark.spec("MQTT-4.4.0-1")
@pytest.mark.spec("MQTT-3.3.1-1")
@pytest.mark.spec("MQTT-3.3.1-1@3.1.1")
@pytest.mark.spec("MQTT-4.4.0-1@3.1.1")
@pytest.mark.trap(3)
def test_subscriber_resumes_before_pubrec(clients: Clients, name: str) -> None:
    """PUBLISH comes again: same identifier, DUP."""
    peer = clients.durable(name, (name, 2))
    peer.publish(name, b"x", qos=2)
    first = peer.expect_publish(name, b"x", qos=2, dup=False)
    peer.close()
    again = clients.resume(name)
    again.receive_publish(name, b"x", qos=2, dup=True, packet_id=first.packet_id)
    again.expect_nothing()


@pytest.mark.spec("MQTT-4.4.0-1")
@pytest.mark.spec("MQTT-4.3.3-6")
@pytest.mark.spec("MQTT-4.3.3-1@3.1.1")
@pytest.mark.spec("MQTT-4.4.0-1@3.1.1")
@pytest.mark.trap(12)
@pytest.mark.parametrize("saw_pubrel", [False, True])
def test_subscriber_resumes_after_pubrec(clients: Clients, name: str, saw_pubrel: bool) -> None:
    """PUBREL comes again, the PUBLISH never does."""
    peer = clients.durable(name, (name, 2))
    peer.publish(name, b"x", qos=2)
    packet_id = peer.expect_publish(name, b"x", qos=2).packet_id
    peer.send(clients.build.pubrec(packet_id))
    if saw_pubrel:
        peer.expect_ack(Kind.PUBREL, packet_id)
    else:
        peer.half_close()
        while peer.receive() is not None:
            pass
    peer.close()
    again = clients.resume(name)
    again.expect_ack(Kind.PUBREL, packet_id)
    again.send(clients.build.pubcomp(packet_id))
    again.publish(name, b"next", qos=2)
    again.receive_publish(name, b"next", qos=2, dup=False)
    again.disconnect()
    final = clients.resume(name)
    final.publish(name, b"final", qos=2)
    final.receive_publish(name, b"final", qos=2, dup=False)


@pytest.mark.spec("MQTT-4.6.0-1")
@pytest.mark.spec("MQTT-4.4.0-1@3.1.1")
def test_mixed_states_on_resume(clients: Clients, name: str) -> None:
    """Some completed, some released, some only sent, some QoS 1: each goes on where it was."""
    publisher = clients.join(f"{name}-publisher")
    peer = clients.durable(name, (f"{name}/#", 2))
    for index in range(9):
        publisher.publish(f"{name}/t", b"%d" % index, qos=1 if index % 3 == 2 else 2)
    found = take_publishes(peer, 9)
    ids = [packet.packet_id for packet in found]
    peer.send(
        clients.build.pubrec(ids[0]),
        clients.build.pubrec(ids[1]),
        clients.build.puback(ids[2]),
        clients.build.pubrec(ids[4]),
    )
    for packet_id in (ids[0], ids[1], ids[4]):
        peer.expect_ack(Kind.PUBREL, packet_id)
    peer.send(clients.build.pubcomp(ids[0]))
    peer.fence()
    peer.close()
    again = clients.resume(name)
    expected = {
        ids[1]: Kind.PUBREL,
        ids[3]: Kind.PUBLISH,
        ids[4]: Kind.PUBREL,
        ids[5]: Kind.PUBLISH,
        ids[6]: Kind.PUBLISH,
        ids[7]: Kind.PUBLISH,
        ids[8]: Kind.PUBLISH,
    }
    got = []
    for _ in expected:
        packet = again.receive()
        assert packet is not None
        assert packet.kind is expected[packet.packet_id]
        if packet.kind is Kind.PUBLISH:
            assert packet.dup
            got.append(packet.payload)
    assert got == [b"3", b"5", b"6", b"7", b"8"]
    again.expect_nothing()


@pytest.mark.trap(12)
@pytest.mark.parametrize("times", [2, 5])
def test_repeated_pubrec(clients: Clients, name: str, times: int) -> None:
    """Each PUBREC is answered with PUBREL; the message stays one."""
    peer = clients.join(name)
    peer.subscribe((name, 2))
    peer.publish(name, b"x", qos=2)
    packet_id = peer.expect_publish(name, b"x", qos=2).packet_id
    peer.send(clients.build.pubrec(packet_id) * times)
    for _ in range(times):
        peer.expect_ack(Kind.PUBREL, packet_id)
    peer.send(clients.build.pubcomp(packet_id))
    peer.expect_nothing()


@pytest.mark.trap(8)
def test_puback_for_qos_2(clients: Clients, name: str) -> None:
    """A PUBACK does not end a QoS 2 exchange: close or ignore, but the message is not lost."""
    peer = clients.durable(name, (name, 2))
    peer.publish(name, b"x", qos=2)
    packet_id = peer.expect_publish(name, b"x", qos=2).packet_id
    peer.send(clients.build.puback(packet_id), clients.build.pingreq())
    peer.receive()
    peer.close()
    again = clients.resume(name)
    again.receive_publish(name, b"x", qos=2, dup=True, packet_id=packet_id)


@pytest.mark.trap(8)
def test_pubcomp_without_pubrec(clients: Clients, name: str) -> None:
    """A PUBCOMP for a message that was never received does not settle it."""
    peer = clients.durable(name, (name, 2))
    peer.publish(name, b"x", qos=2)
    packet_id = peer.expect_publish(name, b"x", qos=2).packet_id
    peer.send(clients.build.pubcomp(packet_id), clients.build.pingreq())
    peer.receive()
    peer.close()
    again = clients.resume(name)
    again.receive_publish(name, b"x", qos=2, dup=True, packet_id=packet_id)


@pytest.mark.parametrize("kind", [Kind.PUBREC, Kind.PUBCOMP])
def test_acknowledgement_of_nothing(clients: Clients, name: str, kind: Kind) -> None:
    """An unknown PUBREC may be answered with PUBREL, so that the peer can end its exchange."""
    peer = clients.join(name)
    peer.send(clients.build.ack(kind, 4242), clients.build.pingreq())
    found = peer.receive()
    assert found is not None
    if found.kind is Kind.PUBREL:
        assert kind is Kind.PUBREC
        found = peer.receive()
    assert found is not None
    assert found.kind is Kind.PINGRESP


@pytest.mark.spec("MQTT-2.3.1-4@3.1.1")
def test_identifier_stays_taken_until_pubcomp(clients: Clients, name: str) -> None:
    """A released exchange still owns its identifier."""
    publisher = clients.join(f"{name}-publisher")
    peer = clients.join(name)
    peer.subscribe((name, 2))
    publisher.publish(name, b"held", qos=2)
    held = peer.expect_publish(name, b"held").packet_id
    peer.send(clients.build.pubrec(held))
    peer.expect_ack(Kind.PUBREL, held)
    for payload in numbered(200):
        publisher.publish(name, payload, qos=1)
        assert peer.receive_publish(name, payload, qos=1).packet_id != held
    peer.send(clients.build.pubcomp(held))
    peer.expect_nothing()
