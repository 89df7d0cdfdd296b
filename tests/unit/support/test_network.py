"""Streams in memory: order, pieces, pauses, cuts."""

from __future__ import annotations

import random

from tests.support.clock import VirtualClock
from tests.support.network import BUFFER_HIGH_BYTES, Network, NetworkProfile, Wire
from tests.support.scheduler import VirtualLoop


class End:
    """Either end: writes down what it is told."""

    def __init__(self) -> None:
        self.data = b""
        self.pieces = 0
        self.story: list[str] = []

    def received(self, data: bytes) -> None:
        self.data += data
        self.pieces += 1

    def receive(self, data: bytes) -> None:
        self.received(data)

    def lost(self) -> None:
        self.story.append("lost")

    def connection_lost(self, exc: BaseException | None) -> None:
        self.story.append("lost" if exc is None else type(exc).__name__)

    def pause_writing(self) -> None:
        self.story.append("pause")

    def resume_writing(self) -> None:
        self.story.append("resume")

    def close(self, reason_code: int) -> None:
        raise AssertionError


class Line:
    """A wire with an end at each side."""

    def __init__(self, network_profile: NetworkProfile | None = None) -> None:
        self.loop = VirtualLoop(VirtualClock())
        self.network = Network(self.loop, random.Random(3), network_profile)
        self.broker = End()
        self.client = End()
        self.wires: list[Wire] = []
        self.network.listen(self._accept)
        wire = self.network.connect(self.client)
        assert wire is not None
        self.wire = wire

    def _accept(self, wire: Wire) -> End:
        self.wires.append(wire)
        return self.broker


def test_bytes_arrive_in_order_in_pieces_and_later() -> None:
    line = Line()
    sent = bytes(range(256)) * 4
    for start in range(0, len(sent), 64):
        line.wire.send(sent[start : start + 64])
        line.wire.write(sent[start : start + 64])
    assert line.broker.data == b""
    line.loop.run_for(1_000_000)
    assert line.broker.data == line.client.data == sent
    assert line.broker.pieces > 16
    assert line.wire.write_buffer_size() == 0


def test_closing_flushes_first() -> None:
    line = Line()
    line.wire.write(b"goodbye")
    line.wire.close()
    line.wire.write(b"too late")
    line.loop.run_for(10_000)
    assert line.client.data == b"goodbye"
    assert line.client.story == ["lost"]
    assert line.broker.story == ["lost"]
    assert line.wire.is_done


def test_hanging_up_flushes_first() -> None:
    line = Line()
    line.wire.send(b"goodbye")
    line.wire.hang_up()
    line.wire.send(b"too late")
    line.loop.run_for(10_000)
    assert line.broker.data == b"goodbye"
    assert line.broker.story == ["lost"]
    assert line.client.story == []


def test_half_a_close_leaves_the_way_back() -> None:
    """As TCP does: the broker hears the end, and what it had written arrives with its own."""
    line = Line(NetworkProfile(delays_us=(500,)))
    line.wire.write(b"under way")
    line.wire.send(b"goodbye")
    line.wire.end_sending()
    assert not line.wire.is_left
    line.loop.run_for(10_000)
    assert line.broker.data == b"goodbye"
    assert line.broker.story == ["lost"]
    assert line.wire.is_left
    assert line.client.data == b"under way"
    assert line.client.story == ["lost"]


def test_a_reset_overtakes_nothing_that_was_sent() -> None:
    line = Line(NetworkProfile(delays_us=(500,)))
    line.wire.write(b"lost")
    line.wire.send(b"goodbye")
    line.wire.reset()
    line.loop.run_for(10_000)
    assert line.broker.data == b"goodbye"
    assert line.broker.story == ["ConnectionResetError"]
    assert line.client.data == b""
    assert line.wire.is_done


def test_the_buffer_of_a_profile() -> None:
    line = Line(NetworkProfile(buffer_bytes=100))
    line.wire.stop_taking()
    line.wire.write(b"x" * 100)
    assert line.broker.story == []
    line.wire.write(b"x")
    assert line.broker.story == ["pause"]


def test_a_cut_loses_what_is_under_way() -> None:
    line = Line(NetworkProfile(delays_us=(500,)))
    line.wire.send(b"x")
    line.wire.write(b"y")
    line.wire.abort()
    line.loop.run_for(10_000)
    assert line.broker.data == line.client.data == b""
    assert line.broker.story == ["ConnectionResetError"]
    assert line.client.story == ["lost"]


def test_a_client_that_vanishes_tells_nobody() -> None:
    line = Line()
    line.wire.vanish()
    line.wire.write(b"x")
    line.loop.run_for(10_000)
    assert line.broker.story == line.client.story == []
    assert not line.wire.is_done


def test_pauses_in_both_directions() -> None:
    line = Line()
    line.wire.pause_reading()
    line.wire.send(b"question")
    line.wire.stop_taking()
    line.wire.write(b"x" * (BUFFER_HIGH_BYTES + 1))
    line.loop.run_for(10_000)
    assert line.broker.data == line.client.data == b""
    assert line.broker.story == ["pause"]
    line.wire.resume_reading()
    line.wire.take_again()
    line.loop.run_for(10_000)
    assert line.broker.data == b"question"
    assert len(line.client.data) == BUFFER_HIGH_BYTES + 1
    assert line.broker.story == ["pause", "resume"]


def test_a_dead_broker_hears_nothing_and_its_last_words_arrive() -> None:
    line = Line(NetworkProfile(delays_us=(500,)))
    line.wire.send(b"x")
    line.wire.write(b"last words")
    line.network.broker_died()
    assert not line.network.is_listening
    assert line.network.connect(End()) is None
    line.loop.run_for(10_000)
    assert line.broker.data == b""
    assert line.broker.story == []
    assert line.client.data == b"last words"
    assert line.client.story == ["lost"]
