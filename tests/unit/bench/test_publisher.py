"""Publishers: packet identifiers, acknowledgements of every kind, in any pieces."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.bench.publisher import Publisher
from perdure.mqtt.encode import ack_bytes
from perdure.mqtt.packets import PUBACK, PUBCOMP, PUBREC, PUBREL, Ack, Publish
from tests.unit.bench.helpers import output, packets_of, publisher


def published(client: Publisher) -> list[Publish]:
    packets = packets_of(output(client), client.version)
    return [packet for packet in packets if isinstance(packet, Publish)]


def test_streams_take_turns_and_identifiers_ascend() -> None:
    client = publisher(streams=2)
    client.publish(100, 3)
    packets = published(client)
    assert [packet.topic for packet in packets] == ["t/1", "t/2", "t/1"]
    assert [packet.packet_id for packet in packets] == [1, 2, 3]
    assert client.inflight == {1: 100, 2: 100, 3: 100}
    assert client.meter.sent == 3


def test_an_identifier_in_flight_is_not_used_again() -> None:
    client = publisher()
    client.publish(0, 2)
    client._packet_id = 65_534
    client.publish(0, 3)
    assert list(client.inflight) == [1, 2, 65_535, 3, 4]


def test_remaining_bounds_what_is_sent() -> None:
    client = publisher()
    client.remaining = 3
    client.publish(0, 2)
    client.publish(0, 2)
    client.publish(0, 2)
    assert client.meter.sent == 3
    assert client.remaining == 0


def test_qos_0_has_no_identifiers() -> None:
    client = publisher(qos=0)
    client.publish(0, 2)
    assert client.inflight == {}
    assert [packet.packet_id for packet in published(client)] == [0, 0]


@given(st.permutations(range(1, 9)), st.lists(st.integers(1, 31), max_size=6))
def test_acknowledgements_in_any_order_and_pieces(order: list[int], cuts: list[int]) -> None:
    client = publisher()
    for number in range(8):
        client.publish(number * 10, 1)
    stream = b"".join(ack_bytes(PUBACK, packet_id) for packet_id in order)
    edges = [0, *sorted(cuts), len(stream)]
    for start, stop in itertools.pairwise(edges):
        client.received(stream[start:stop], 1000)
    assert client.inflight == {}
    assert client.meter.acked == 8
    assert client.meter.ack_ns.count == 8
    assert client.meter.ack_ns.high == 1000
    assert client.meter.ack_ns.low == 930


def test_reason_codes_between_plain_acknowledgements() -> None:
    client = publisher(version=5)
    client.publish(0, 4)
    stream = (
        ack_bytes(PUBACK, 1, 0, 5)
        + ack_bytes(PUBACK, 2, 0x10, 5)
        + ack_bytes(PUBACK, 3, 0x97, 5)
        + ack_bytes(PUBACK, 4, 0, 5)
    )
    client.received(stream, 5)
    assert (client.meter.acked, client.meter.refused) == (3, 1)
    assert client.inflight == {}


@pytest.mark.parametrize("bulk", [True, False])
def test_qos_2_is_acknowledged_when_complete(bulk: bool) -> None:
    client = publisher(qos=2)
    client.publish(0, 2)
    output(client)
    stream = ack_bytes(PUBREC, 1) + ack_bytes(PUBREC, 2)
    size = len(stream) if bulk else 1
    for start in range(0, len(stream), size):
        client.received(stream[start : start + size], 5)
    assert packets_of(output(client), 4) == [Ack(PUBREL, 1), Ack(PUBREL, 2)]
    assert client.meter.acked == 0
    client.received(ack_bytes(PUBCOMP, 1) + ack_bytes(PUBCOMP, 2), 9)
    assert client.meter.acked == 2
    assert client.inflight == {}


def test_a_refused_qos_2_message_has_no_pubrel() -> None:
    client = publisher(qos=2, version=5)
    client.publish(0, 2)
    output(client)
    client.received(ack_bytes(PUBREC, 1, 0x97, 5) + ack_bytes(PUBREC, 2, 0x10, 5), 5)
    assert client.meter.refused == 1
    assert output(client) == ack_bytes(PUBREL, 2)


def test_an_acknowledgement_of_nothing_counts_nothing() -> None:
    client = publisher()
    client.received(ack_bytes(PUBACK, 9) + b"\xd0\x00" + ack_bytes(PUBACK, 9), 5)
    client.received(b"\x40\x03\x00\x09\x10", 5)
    assert client.meter.acked == 0
