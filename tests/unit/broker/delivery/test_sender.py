"""What goes out to one client: pieces become one write, and every packet is counted."""

from __future__ import annotations

import pytest

from perdure.broker.delivery.sender import SENT, Sender
from perdure.model import Message
from perdure.mqtt.encode import ack_bytes
from perdure.mqtt.packets import PUBACK, PUBCOMP, PUBLISH, PUBREC, PUBREL
from perdure.mqtt.primitives import UINT16_BYTES
from perdure.observe.metrics import Metrics
from tests.unit.broker.harness import make_sim


class Sink:
    """Keeps what is written, write by write."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.writes.append(data)


def _sender(version: int = 4) -> tuple[Sender, Sink, Metrics]:
    sim = make_sim()
    services = sim.live.services
    sink = Sink()
    sender = Sender(sink, services.pipeline, services.metrics, buffer_bytes=1 << 20)
    sender.version = version
    return sender, sink, services.metrics


@pytest.mark.parametrize("kind", [PUBACK, PUBREC, PUBREL, PUBCOMP])
@pytest.mark.parametrize("packet_ids", [[7], [1, 65535, 0x0102]])
def test_acks_are_what_one_ack_after_the_other_is(kind: int, packet_ids: list[int]) -> None:
    expected = b"".join([ack_bytes(kind, packet_id) for packet_id in packet_ids])
    at_once, sink, metrics = _sender()
    before = metrics.packets_sent[kind], metrics.bytes_sent
    at_once.acks(kind, [UINT16_BYTES[packet_id] for packet_id in packet_ids])
    assert at_once.out_bytes == len(expected)
    at_once.flush()
    assert sink.writes == [expected]
    after = metrics.packets_sent[kind], metrics.bytes_sent
    assert after == (before[0] + len(packet_ids), before[1] + len(expected))
    single, sink, _ = _sender()
    for packet_id in packet_ids:
        single.ack(kind, packet_id)
    assert single.out_bytes == len(expected)
    single.flush()
    assert sink.writes == [expected]


def test_an_ack_with_a_reason_code_has_its_own_size() -> None:
    sender, sink, _ = _sender(5)
    sender.ack(PUBACK, 3, 0x10)
    sender.ack(PUBACK, 4)
    assert sender.out_bytes == 5 + 4
    sender.flush()
    assert sink.writes == [ack_bytes(PUBACK, 3, 0x10, 5) + ack_bytes(PUBACK, 4)]


def test_acks_are_flushed_with_the_turn() -> None:
    sim = make_sim()
    services = sim.live.services
    sink = Sink()
    sender = Sender(sink, services.pipeline, services.metrics, buffer_bytes=1 << 20)
    sender.acks(PUBACK, [UINT16_BYTES[1]])
    sender.acks(PUBACK, [UINT16_BYTES[2]])
    sim.run_for(10_000)
    assert sink.writes == [ack_bytes(PUBACK, 1) + ack_bytes(PUBACK, 2)]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_is_counted_by_its_qos(qos: int) -> None:
    sender, sink, metrics = _sender()
    assert sender.publish(Message("t", b"pay"), qos, False, False, 7, (), 0) == SENT
    sender.ack(PUBACK, 3)
    sender.flush()
    assert sum(metrics.packets_sent) == 2
    assert metrics.packets_sent[PUBLISH] == metrics.messages_delivered == 1
    assert getattr(metrics, f"messages_delivered_{qos}") == 1
    assert metrics.payload_bytes_sent == 3
    assert metrics.bytes_sent == sum(map(len, sink.writes))


def _sent(messages: list[Message], packet_id: int, buffer_bytes: int) -> tuple[bytes, int, int]:
    """What one subscriber of version 5 is sent of a run, how many messages and payload bytes."""
    services = make_sim().live.services
    sink = Sink()
    sender = Sender(sink, services.pipeline, services.metrics, buffer_bytes=buffer_bytes)
    sender.version = 5
    count = sender.publish_run(messages, packet_id, (3,))
    assert services.metrics.messages_delivered_1 == count
    assert sender.congested == (sender.out_bytes > buffer_bytes)
    payload_bytes = services.metrics.payload_bytes_sent
    sender.flush()
    return b"".join(sink.writes), count, payload_bytes


@pytest.mark.parametrize("size", [5, 100_000])
def test_a_run_is_the_same_for_each_who_is_sent_it(size: int) -> None:
    """From the third subscriber on the bytes of the second are sent, if they are not many."""
    run = [Message("t", b"%d" % number * size, 1) for number in range(4)]
    first = _sent(run, 65_534, 1 << 20)
    assert first[1] == 4
    assert [_sent(run, 65_534, 1 << 20) for _ in range(3)] == [first] * 3
    # Another identifier, and the first one again; other messages with the same identifier.
    other = _sent(run, 7, 1 << 20)
    assert other != first
    assert _sent(run, 7, 1 << 20) == other
    assert _sent(run, 65_534, 1 << 20) == first
    assert _sent(run[:], 65_534, 1 << 20) == first
    assert _sent([Message("t", b"new", 1)], 65_534, 1 << 20)[1:] == (1, 3)
    # Who has no room for all of it is sent what it has room for.
    short = _sent(run[:], 65_534, 10 + size)
    assert short[1] < 4
    for _ in range(3):
        assert _sent(run, 65_534, 10 + size) == short
