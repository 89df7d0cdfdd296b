"""Subscribers: everything is acknowledged and entered, however the bytes were cut."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.bench.stamp import Stream
from perdure.bench.subscriber import Subscriber
from perdure.mqtt.encode import encode
from perdure.mqtt.packets import PUBACK, PUBCOMP, PUBREC, PUBREL, Ack, Publish
from tests.unit.bench.helpers import TAG, output, packets_of, subscriber


def acks(client: Subscriber) -> list[tuple[int, int]]:
    packets = packets_of(output(client), client.version)
    return [(packet.kind, packet.packet_id) for packet in packets if isinstance(packet, Ack)]


def feed(client: Subscriber, data: bytes, cuts: list[int], now_ns: int) -> None:
    edges = [0, *sorted(cut % len(data) for cut in cuts), len(data)]
    for start, stop in itertools.pairwise(edges):
        client.received(data[start:stop], now_ns)


@given(
    version=st.sampled_from([4, 5]),
    size=st.sampled_from([24, 64, 130]),
    messages=st.lists(st.integers(1, 3), min_size=1, max_size=20),
    cuts=st.lists(st.integers(0, 10_000), max_size=8),
)
def test_qos_1(version: int, size: int, messages: list[int], cuts: list[int]) -> None:
    client = subscriber(version=version)
    topics = {1: "t/1", 2: "t/2", 3: "t/longer"}
    streams = {
        number: Stream(number, topic, qos=1, version=version, payload_size=size)
        for number, topic in topics.items()
    }
    data = b"".join(
        streams[number].frame(packet_id, TAG, packet_id * 10)
        for packet_id, number in enumerate(messages, start=300)
    )
    feed(client, data, cuts, 1_000_000)
    assert acks(client) == [(PUBACK, 300 + index) for index in range(len(messages))]
    assert client.meter.received == len(messages)
    assert client.meter.delivery_ns.count == len(messages)
    assert client.meter.delivery_ns.high == 1_000_000 - 3000
    assert (client.ledger.repeated, client.ledger.out_of_order) == (0, 0)
    for number in topics:
        assert client.ledger.distinct(number) == messages.count(number)


@given(cuts=st.lists(st.integers(0, 10_000), max_size=8), rounds=st.integers(1, 4))
def test_qos_2_takes_each_identifier_once_until_its_release(cuts: list[int], rounds: int) -> None:
    client = subscriber(qos=2)
    stream = Stream(1, "t/1", qos=2, version=4, payload_size=40)
    data = b""
    expected: list[tuple[int, int]] = []
    for _ in range(rounds):
        frames = [stream.frame(packet_id, TAG, 0) for packet_id in (1, 2)]
        again = bytes((frames[0][0] | 8,)) + frames[0][1:]  # DUP
        releases = encode(Ack(PUBREL, 1), 4) + encode(Ack(PUBREL, 2), 4)
        data += b"".join(frames) + again + releases
        expected += [(PUBREC, 1), (PUBREC, 2), (PUBREC, 1), (PUBCOMP, 1), (PUBCOMP, 2)]
    feed(client, data, cuts, 50)
    assert acks(client) == expected
    assert client.meter.received == 2 * rounds
    assert client.ledger.repeated == 0
    assert client.ledger.distinct(1) == 2 * rounds


def test_what_comes_twice_at_qos_1_is_repeated() -> None:
    client = subscriber()
    stream = Stream(1, "t/1", qos=1, version=4, payload_size=40)
    first, second = stream.frame(1, TAG, 0), stream.frame(2, TAG, 0)
    client.received(first + second + first, 5)
    assert client.ledger.repeated == 1
    assert client.meter.received == 3


def test_identifiers_that_await_release_outlive_a_connection_of_a_durable_session() -> None:
    client = subscriber(qos=2)
    client.clean = False
    frame = Stream(1, "t/1", qos=2, version=4, payload_size=40).frame(1, TAG, 0)
    client.received(frame, 5)
    client.open()
    client.received(b"\x20\x02\x01\x00" + frame, 6)
    assert client.meter.received == 1
    client.clean = True
    client.open()
    client.received(b"\x20\x02\x00\x00\x90\x03\x00\x01\x02" + frame, 6)
    assert client.meter.received == 2


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_of_others_are_acknowledged_and_told_apart(qos: int) -> None:
    client = subscriber(qos=qos)
    other = Stream(1, "t/1", qos=qos, version=4, payload_size=40).frame(7, TAG + 1, 0)
    short = encode(Publish("t/2", b"21.5", qos, packet_id=8 if qos else 0), 4)
    client.received(other + short, 5)
    assert client.meter.foreign == 2
    assert client.meter.received == 0
    kind = {0: 0, 1: PUBACK, 2: PUBREC}[qos]
    assert acks(client) == ([(kind, 7), (kind, 8)] if qos else [])


def test_qos_0_tells_which_streams_came_if_asked() -> None:
    stream = Stream(4, "t/1", qos=0, version=4, payload_size=40)
    frames = stream.frame(0, TAG, 0) + stream.frame(0, TAG, 0)
    following, other = subscriber(qos=0, follow=True), subscriber(qos=0)
    following.received(frames, 5)
    other.received(frames, 5)
    assert following.meter.credited == [4, 4]
    assert other.meter.credited == []
    assert following.meter.received == other.meter.received == 2
    assert output(following) == b""
