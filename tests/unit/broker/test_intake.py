"""The intake: kept packets keep their order, and the reasons to stop reading do not mix."""

from __future__ import annotations

import random

import pytest
from tests.support.clock import VirtualClock
from tests.support.scheduler import VirtualLoop, VirtualScheduler
from tests.unit.mqtt.feeding import CONNECT_BYTES

from perdure.broker.intake import Intake
from perdure.errors import MqttError
from perdure.mqtt.decode import Decoder
from perdure.mqtt.packets import Disconnect, Packet, Pingreq


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


class Desk:
    """An intake and what is around it."""

    def __init__(self) -> None:
        self.loop = VirtualLoop(VirtualClock())
        self.scheduler = VirtualScheduler(self.loop, random.Random(0))
        self.stream = Stream()
        self.decoder = Decoder(server_side=True, packet_size_max=1000)
        self.intake = Intake(self.scheduler, self.stream, self.decoder, self)
        self.decoder.feed(CONNECT_BYTES[5])
        self.got: list[Packet] = []
        self.errors: list[MqttError] = []

    def go_on(self) -> None:
        self.intake.read_on()

    def arrives(self, data: bytes) -> None:
        """Bytes come while there is a reason to wait."""
        assert self.intake.waits
        self.decoder.feed(data, 0)
        self.intake.arrived()

    async def take(self) -> None:
        """Wait for one packet."""
        try:
            self.got.append(await self.intake.next_packet())
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
    desk.intake.hold()
    assert not desk.stream.is_read
    desk.intake.put_back([third, fourth])
    desk.intake.put_back([first, second])
    released = desk.intake.release()
    assert [id(packet) for packet in released] == [id(p) for p in (first, second, third, fourth)]
    desk.intake.read_on()
    assert desk.stream.is_read
    assert desk.intake.release() == []


def test_a_pause_outlasts_a_hold() -> None:
    desk = Desk()
    desk.intake.hold()
    desk.intake.pause()
    desk.intake.release()
    desk.intake.read_on()
    assert not desk.stream.is_read
    desk.intake.commits_caught_up()
    assert desk.stream.is_read


def test_a_throttle_ends_by_itself_and_is_not_drawn_out() -> None:
    desk = Desk()
    desk.intake.throttle(1_000)
    desk.intake.throttle(50_000)
    desk.loop.run_for(999)
    assert not desk.stream.is_read
    desk.loop.run_for(1)
    assert desk.stream.is_read
    assert not desk.intake.is_paused


def test_a_closed_intake_reads_and_keeps_nothing() -> None:
    desk = Desk()
    desk.intake.hold()
    desk.intake.pause()
    desk.intake.put_back(_packets(2))
    desk.intake.close()
    desk.intake.commits_caught_up()
    assert desk.intake.release() == []
    desk.intake.read_on()
    assert not desk.stream.is_read


def test_a_packet_that_must_not_wait() -> None:
    desk = Desk()
    desk.intake.hold()
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
    desk.intake.hold()
    desk.intake.put_back([Disconnect()])
    desk.wait()
    assert desk.got == [Disconnect()]


def test_each_reason_to_wait_must_be_over() -> None:
    desk = Desk()
    intake = desk.intake
    intake.block()
    intake.run_short()
    assert intake.fall_behind()
    assert not intake.fall_behind()
    intake.unblock()
    intake.has_room()
    assert intake.waits
    assert not desk.stream.is_read
    assert intake.catch_up()
    assert not intake.waits
    intake.read_on()
    assert desk.stream.is_read


def test_a_slice_that_comes_too_early_is_not_taken() -> None:
    desk = Desk()
    desk.intake.fall_behind()
    desk.intake.block()
    assert not desk.intake.catch_up()
    desk.intake.unblock()
    assert desk.stream.is_read


def test_no_packet_comes_from_a_closed_connection() -> None:
    desk = Desk()
    desk.intake.hold()
    desk.wait()
    desk.intake.close()
    desk.loop.run_ready()
    (error,) = desk.errors
    assert error.reason_code == 0x82


def test_what_the_decoder_failed_with_is_raised() -> None:
    desk = Desk()
    desk.intake.hold()
    desk.wait()
    desk.arrives(b"\x00\x00")
    desk.loop.run_ready()
    assert desk.decoder.failure is not None
    assert desk.errors == [desk.decoder.failure]


@pytest.mark.parametrize("is_held", [False, True])
def test_the_end_of_a_pause_that_was_none_changes_nothing(is_held: bool) -> None:
    desk = Desk()
    if is_held:
        desk.intake.hold()
    desk.intake.commits_caught_up()
    assert desk.stream.is_read is not is_held
