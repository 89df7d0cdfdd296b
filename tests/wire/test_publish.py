"""MQTT 3.1.1, section 3.3 and 4.5: what a PUBLISH becomes on its way to subscribers."""

from __future__ import annotations

import pytest

from tests.wire.clients import UNLIMITED, Clients, numbered, payloads_of, take_publishes
from tests.wire.packets import Kind

BROKER_OPTIONS = UNLIMITED


@pytest.mark.spec("MQTT-3.8.4-8")
@pytest.mark.spec("MQTT-3.8.4-6@3.1.1")
@pytest.mark.spec("MQTT-4.3.1-1@3.1.1")
@pytest.mark.spec("MQTT-4.3.2-1@3.1.1")
@pytest.mark.spec("MQTT-4.3.2-2@3.1.1")
@pytest.mark.spec("MQTT-4.3.3-1@3.1.1")
@pytest.mark.spec("MQTT-4.3.3-2@3.1.1")
@pytest.mark.spec("MQTT-4.5.0-1@3.1.1")
@pytest.mark.spec("MQTT-3.3.4-1@3.1.1")
@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
@pytest.mark.parametrize("other", [False, True])
def test_qos_is_the_lower_of_both(
    clients: Clients, name: str, published: int, granted: int, other: bool
) -> None:
    """The whole exchange on both sides, for each pair of QoS, own and foreign subscriber."""
    publisher = clients.join(name)
    subscriber = clients.join(f"{name}-subscriber") if other else publisher
    subscriber.subscribe((f"{name}/t", granted))
    publisher.publish(f"{name}/t", b"payload", qos=published)
    subscriber.receive_publish(
        f"{name}/t", b"payload", qos=min(published, granted), dup=False, retain=False
    )
    subscriber.expect_nothing()


@pytest.mark.parametrize(
    "size",
    [
        0,
        1,
        100,
        116,
        117,
        118,
        119,
        120,
        16_250,
        16_375,
        16_376,
        65_535,
        65_536,
        300_000,
        2_097_152,
    ],
)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_payload_sizes(clients: Clients, name: str, size: int, qos: int) -> None:
    """Remaining lengths of one, two, three and four bytes and their edges, bytes unchanged."""
    payload = (bytes(range(256)) * (size // 256 + 1))[:size]
    peer = clients.join(name)
    peer.subscribe(name)
    peer.publish(name, payload, qos=qos)
    peer.receive_publish(name, payload, qos=qos)


@pytest.mark.parametrize("length", [127, 128, 16_383, 16_384, 2_097_151, 2_097_152])
def test_remaining_length_edges(clients: Clients, name: str, length: int) -> None:
    """2.2.3: each place at which the length field grows."""
    payload = b"z" * (length - 2 - len(name))
    peer = clients.join(name)
    peer.subscribe((name, 0))
    peer.send(clients.build.publish(name, payload))
    peer.expect(clients.build.publish(name, payload))


@pytest.mark.spec("MQTT-3.3.1-3")
@pytest.mark.spec("MQTT-3.3.1-3@3.1.1")
@pytest.mark.trap(10)
@pytest.mark.parametrize("qos", [1, 2])
def test_dup_is_not_passed_on(clients: Clients, name: str, qos: int) -> None:
    """DUP of the incoming packet says nothing of the outgoing one; a first delivery may have it."""
    publisher = clients.join(name)
    subscriber = clients.join(f"{name}-subscriber")
    subscriber.subscribe(name)
    publisher.send(clients.build.publish(name, b"x", qos=qos, packet_id=5, dup=True))
    if qos == 1:
        publisher.take(Kind.PUBACK, 5)
    else:
        publisher.take(Kind.PUBREC, 5)
        publisher.send(clients.build.pubrel(5))
        publisher.take(Kind.PUBCOMP, 5)
    subscriber.receive_publish(name, b"x", qos=qos, dup=False)
    subscriber.expect_nothing()


@pytest.mark.spec("MQTT-4.3.1-1")
@pytest.mark.spec("MQTT-2.2.1-2")
@pytest.mark.spec("MQTT-2.3.1-5@3.1.1")
def test_qos_0_has_no_packet_identifier(clients: Clients, name: str) -> None:
    peer = clients.join(name)
    peer.subscribe((name, 1))
    peer.send(clients.build.publish(name, b"\x00\x07rest"))
    peer.expect(clients.build.publish(name, b"\x00\x07rest"))


@pytest.mark.spec("MQTT-3.3.4-1")
@pytest.mark.spec("MQTT-4.3.2-4")
@pytest.mark.spec("MQTT-2.2.1-5")
@pytest.mark.spec("MQTT-2.3.1-6@3.1.1")
@pytest.mark.parametrize("packet_id", [1, 2, 255, 256, 0x1234, 32_767, 32_768, 65_534, 65_535])
def test_acknowledgements_bear_the_identifier(clients: Clients, name: str, packet_id: int) -> None:
    peer = clients.join(name)
    peer.send(clients.build.publish(name, b"x"))
    peer.expect_nothing()
    peer.send(clients.build.publish(name, b"x", qos=1, packet_id=packet_id))
    peer.expect_ack(Kind.PUBACK, packet_id)
    peer.send(clients.build.publish(name, b"x", qos=2, packet_id=packet_id))
    peer.expect_ack(Kind.PUBREC, packet_id)
    peer.send(clients.build.pubrel(packet_id))
    peer.expect_ack(Kind.PUBCOMP, packet_id)


@pytest.mark.spec("MQTT-2.3.1-4@3.1.1")
def test_identifiers_of_both_directions_are_independent(clients: Clients, name: str) -> None:
    """The same identifier may be in use from us and to us at the same time."""
    publisher = clients.join(f"{name}-publisher")
    peer = clients.join(name)
    peer.subscribe((f"{name}/in", 2))
    publisher.publish(f"{name}/in", b"down", qos=2)
    down = peer.expect_publish(f"{name}/in", b"down", qos=2)
    same = down.packet_id
    peer.send(clients.build.publish(f"{name}/out", b"up", qos=2, packet_id=same))
    peer.expect_ack(Kind.PUBREC, same)
    peer.send(clients.build.pubrec(same))
    peer.expect_ack(Kind.PUBREL, same)
    peer.send(clients.build.pubrel(same))
    peer.expect_ack(Kind.PUBCOMP, same)
    peer.send(clients.build.pubcomp(same))
    peer.expect_nothing()


@pytest.mark.spec("MQTT-4.3.2-1")
@pytest.mark.spec("MQTT-4.3.2-2")
@pytest.mark.spec("MQTT-2.2.1-4")
@pytest.mark.spec("MQTT-2.3.1-2@3.1.1")
@pytest.mark.spec("MQTT-2.3.1-4@3.1.1")
@pytest.mark.parametrize("qos", [1, 2])
def test_unacknowledged_messages_have_different_identifiers(
    clients: Clients, name: str, qos: int
) -> None:
    publisher = clients.join(f"{name}-publisher")
    peer = clients.join(name)
    peer.subscribe(name)
    for payload in numbered(100):
        publisher.publish(name, payload, qos=qos)
    found = take_publishes(peer, 100)
    assert len({packet.packet_id for packet in found}) == 100
    assert payloads_of(found) == numbered(100)


@pytest.mark.spec("MQTT-4.5.0-1@3.1.1")
def test_every_matching_subscriber_gets_it_once(clients: Clients, name: str) -> None:
    publisher = clients.join(name)
    filters = [f"{name}/a/b", f"{name}/+/b", f"{name}/#", f"{name}/a/+", "+/a/b", f"{name}/a/b/#"]
    peers = [clients.join(f"{name}-{index}") for index in range(len(filters))]
    for peer, topic_filter in zip(peers, filters, strict=True):
        peer.subscribe(topic_filter)
    for qos in (0, 1, 2):
        publisher.publish(f"{name}/a/b", b"all", qos=qos)
        for peer in peers:
            peer.receive_publish(f"{name}/a/b", b"all", qos=qos)
            peer.expect_nothing()
    publisher.expect_nothing()


def test_no_subscriber(clients: Clients, name: str) -> None:
    """A message that nobody wants is acknowledged all the same."""
    peer = clients.join(name)
    for qos in (0, 1, 2):
        peer.publish(f"{name}/nobody", b"x", qos=qos)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_publish_in_any_pieces(clients: Clients, name: str, qos: int) -> None:
    """The bytes of a packet may arrive one by one, or many packets at once."""
    peer = clients.join(name)
    peer.subscribe(name)
    one = clients.build.publish(name, b"slow", qos=qos, packet_id=9 if qos else None)
    peer.send_slowly(one)
    if qos:
        peer.take(Kind.PUBACK if qos == 1 else Kind.PUBREC, 9)
    if qos == 2:
        peer.send(clients.build.pubrel(9))
    assert peer.take(Kind.PUBLISH).payload == b"slow"
    burst = [
        clients.build.publish(name, payload, qos=qos, packet_id=10 + index if qos else None)
        for index, payload in enumerate(numbered(500))
    ]
    peer.send(b"".join(burst))
    if qos:
        for index in range(500):
            peer.take(Kind.PUBACK if qos == 1 else Kind.PUBREC, 10 + index)
    if qos == 2:
        peer.send(*(clients.build.pubrel(packet_id) for packet_id in range(10, 510)))
    got = [peer.take(Kind.PUBLISH).payload for _ in range(500)]
    assert got == numbered(500)


def test_split_at_every_byte(clients: Clients, name: str) -> None:
    """Two segments, split at each place in turn."""
    raw = clients.build.publish(name, b"0123456789" * 13, qos=1, packet_id=3)
    peer = clients.join(name)
    for cut in range(1, len(raw)):
        peer.send(raw[:cut])
        peer.send(raw[cut:])
        peer.expect_ack(Kind.PUBACK, 3)


@pytest.mark.spec("MQTT-3.12.4-1")
@pytest.mark.spec("MQTT-3.12.4-1@3.1.1")
@pytest.mark.parametrize("count", [1, 3, 100])
def test_ping(clients: Clients, name: str, count: int) -> None:
    peer = clients.join(name)
    peer.send(clients.build.pingreq() * count)
    for _ in range(count):
        peer.expect(b"\xd0\x00")


def test_qos_0_burst_is_complete(clients: Clients, name: str) -> None:
    """[MQTT-4.2.0-1]: over a connection that stands, nothing is lost within reason."""
    publisher = clients.join(f"{name}-publisher")
    peer = clients.join(name)
    peer.subscribe((name, 0))
    publisher.send(b"".join(clients.build.publish(name, payload) for payload in numbered(2000)))
    publisher.fence()
    assert payloads_of(take_publishes(peer, 2000)) == numbered(2000)
