"""The intake: kept packets keep their order, and the reasons to stop reading do not mix."""

from __future__ import annotations

import random

import pytest

from perdure.broker.connection.inbound_gate import InboundGate
from perdure.errors import MqttError
from perdure.mqtt.decode import Decoder
from perdure.mqtt.packets import Disconnect, Packet, Pingreq
from tests.support.clock import VirtualClock
from tests.support.scheduler import VirtualLoop, VirtualScheduler
from tests.unit.mqtt.feeding import CONNECT_BYTES


class Stream:
    """A transport that knows whether it is read."""

    def __init__(self) -> None:
        self.is_read = True

    def write(self, data: bytes) -> None:
        raise AssertionError("an intake sends nothing")

    def close(self) -> None:
        raise AssertionError("an intake does not close the transport")

    def abort(self) -> None:
        raise AssertionError("an intake does not close the transport")

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True

    def write_buffer_size(self) -> int:
        return 0

    def has_ended(self) -> bool:
        return False


class Desk:
    """An intake and what is around it."""

    def __init__(self) -> None:
        self.loop = VirtualLoop(VirtualClock())
        self.scheduler = VirtualScheduler(self.loop, random.Random(0))
        self.stream = Stream()
        self.decoder = Decoder(server_side=True, packet_size_max=1000)
        self.inbound_gate = InboundGate(self.scheduler, self.stream, self.decoder, self)
        self.decoder.feed(CONNECT_BYTES[5])
        self.got: list[Packet] = []
        self.errors: list[MqttError] = []

    def go_on(self) -> None:
        self.inbound_gate.read_on()

    def arrives(self, data: bytes) -> None:
        """Bytes come while there is a reason to wait."""
        assert self.inbound_gate.waits
        self.decoder.feed(data, 0)
        self.inbound_gate.arrived()

    async def take(self) -> None:
        """Wait for one packet."""
        try:
            self.got.append(await self.inbound_gate.next_packet())
        except MqttError as error:
            self.errors.append(error)

    def wait(self) -> None:
        """Let a task wait for one packet, and run what can run."""
        self.scheduler.spawn(self.take(), name="take")
        self.loop.run_ready()


def _packets(count: int) -> list[Packet]:
    return [Pingreq() for _ in range(count)]


def test_kept_packets_come_back_in_order() -> None:
    desk = Desk()
    first, second, third, fourth = _packets(4)
    desk.inbound_gate.hold()
    assert not desk.stream.is_read
    desk.inbound_gate.put_back([third, fourth])
    desk.inbound_gate.put_back([first, second])
    released = desk.inbound_gate.release()
    assert [id(packet) for packet in released] == [id(p) for p in (first, second, third, fourth)]
    desk.inbound_gate.read_on()
    assert desk.stream.is_read
    assert desk.inbound_gate.release() == []


def test_a_pause_outlasts_a_hold() -> None:
    desk = Desk()
    desk.inbound_gate.hold()
    desk.inbound_gate.pause()
    desk.inbound_gate.release()
    desk.inbound_gate.read_on()
    assert not desk.stream.is_read
    desk.inbound_gate.commits_caught_up()
    assert desk.stream.is_read


def test_a_throttle_ends_by_itself_and_is_not_drawn_out() -> None:
    desk = Desk()
    desk.inbound_gate.throttle(1_000)
    desk.inbound_gate.throttle(50_000)
    desk.loop.run_for(999)
    assert not desk.stream.is_read
    desk.loop.run_for(1)
    assert desk.stream.is_read
    assert not desk.inbound_gate.is_paused


def test_a_closed_intake_reads_and_keeps_nothing() -> None:
    desk = Desk()
    desk.inbound_gate.hold()
    desk.inbound_gate.pause()
    desk.inbound_gate.put_back(_packets(2))
    desk.inbound_gate.close()
    desk.inbound_gate.commits_caught_up()
    assert desk.inbound_gate.release() == []
    desk.inbound_gate.read_on()
    assert not desk.stream.is_read


def test_a_packet_that_must_not_wait() -> None:
    desk = Desk()
    desk.inbound_gate.hold()
    desk.wait()
    assert desk.stream.is_read
    assert not desk.got
    desk.arrives(b"\xc0")
    desk.loop.run_ready()
    assert not desk.got
    desk.arrives(b"\x00\xe0\x00")
    desk.loop.run_ready()
    assert desk.got == [Pingreq()]
    assert desk.decoder.has_more
    assert desk.decoder.feed(b"") == [Disconnect()]


def test_a_packet_that_was_there_before_comes_first() -> None:
    desk = Desk()
    desk.inbound_gate.hold()
    desk.inbound_gate.put_back([Disconnect()])
    desk.wait()
    assert desk.got == [Disconnect()]


def test_each_reason_to_wait_must_be_over() -> None:
    desk = Desk()
    inbound_gate = desk.inbound_gate
    inbound_gate.block()
    inbound_gate.run_short()
    assert inbound_gate.fall_behind()
    assert not inbound_gate.fall_behind()
    inbound_gate.unblock()
    inbound_gate.has_room()
    assert inbound_gate.waits
    assert not desk.stream.is_read
    assert inbound_gate.catch_up()
    assert not inbound_gate.waits
    inbound_gate.read_on()
    assert desk.stream.is_read


def test_a_slice_that_comes_too_early_is_not_taken() -> None:
    desk = Desk()
    desk.inbound_gate.fall_behind()
    desk.inbound_gate.block()
    assert not desk.inbound_gate.catch_up()
    desk.inbound_gate.unblock()
    assert desk.stream.is_read


def test_no_packet_comes_from_a_closed_connection() -> None:
    desk = Desk()
    desk.inbound_gate.hold()
    desk.wait()
    desk.inbound_gate.close()
    desk.loop.run_ready()
    (error,) = desk.errors
    assert error.reason_code == 0x82


def test_what_the_decoder_failed_with_is_raised() -> None:
    desk = Desk()
    desk.inbound_gate.hold()
    desk.wait()
    desk.arrives(b"\x00\x00")
    desk.loop.run_ready()
    assert desk.decoder.failure is not None
    assert desk.errors == [desk.decoder.failure]


@pytest.mark.parametrize("is_held", [False, True])
def test_the_end_of_a_pause_that_was_none_changes_nothing(is_held: bool) -> None:
    desk = Desk()
    if is_held:
        desk.inbound_gate.hold()
    desk.inbound_gate.commits_caught_up()
    assert desk.stream.is_read is not is_held
