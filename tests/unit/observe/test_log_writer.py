"""A log line never makes its writer wait."""

from __future__ import annotations

import io
import os
import threading

from perdure.observe.log_writer import LINE_CHARACTERS_MAX, LogWriter, flush_all
from tests.support.bounds import HANG_S


class Gated(io.StringIO):
    """A stream whose reader can be held up."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = threading.Event()
        self.gate = threading.Event()

    def write(self, text: str) -> int:
        self.reached.set()
        assert self.gate.wait(HANG_S)
        return super().write(text)


def test_lines_come_in_order() -> None:
    stream = io.StringIO()
    writer = LogWriter(stream)
    for number in range(1000):
        assert writer.write(f"{number}\n") == len(f"{number}\n")
    writer.flush()
    writer.close()
    assert stream.getvalue() == "".join(f"{number}\n" for number in range(1000))
    assert not writer.isatty()


def test_a_reader_that_is_held_up_costs_lines_not_time() -> None:
    stream = Gated()
    writer = LogWriter(stream, lines_max=3)
    writer.write("first\n")
    assert stream.reached.wait(HANG_S)
    for number in range(5):
        writer.write(f"{number}\n")
    stream.gate.set()
    writer.close()
    lines = stream.getvalue().splitlines()
    assert lines[:4] == ["first", "0", "1", "2"]
    assert lines[4] == '{"event":"log.dropped","level":"warning","lines":2}'


def test_text_that_waits_is_bounded_too() -> None:
    stream = Gated()
    writer = LogWriter(stream, characters_max=5_000)
    writer.write("first\n")
    assert stream.reached.wait(HANG_S)
    for _ in range(100):
        writer.write("x" * 999 + "\n")
    stream.gate.set()
    writer.close()
    written = stream.getvalue()
    assert len(written) < 10_000
    assert '"log.dropped"' in written


def test_a_pipe_that_nobody_reads() -> None:
    """As a child whose parent holds standard error and never reads it."""
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stream:
        writer = LogWriter(stream)
        for _ in range(200):
            writer.write("x" * 1000 + "\n")  # three times what a pipe holds
        os.close(reading)
        writer.close()


def test_a_long_line_is_cut() -> None:
    stream = io.StringIO()
    writer = LogWriter(stream)
    writer.write("x" * 100_000 + "\n")
    writer.close()
    assert stream.getvalue() == "x" * LINE_CHARACTERS_MAX + "...\n"


def test_a_closed_stream_is_no_error() -> None:
    stream = io.StringIO()
    writer = LogWriter(stream)
    stream.close()
    writer.write("lost\n")
    writer.close()


def test_after_the_end_it_writes_at_once() -> None:
    stream = io.StringIO()
    writer = LogWriter(stream)
    writer.close()
    writer.write("late\n")
    assert stream.getvalue() == "late\n"


def test_all_is_written_before_a_process_leaves_at_once() -> None:
    streams = [io.StringIO(), io.StringIO()]
    writers = [LogWriter(stream) for stream in streams]
    for writer in writers:
        for _ in range(1000):
            writer.write("x\n")
    flush_all()
    assert [stream.getvalue().count("x") for stream in streams] == [1000, 1000]
    flush_all()  # harmless again
