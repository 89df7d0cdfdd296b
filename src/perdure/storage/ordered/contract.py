"""What a log promises that gives one order to the records of several nodes.

A record is bytes; what they mean is not the log's matter (``record``). ``submit`` hands one over
and does not wait; the log gives every record back to every reader, the submitter's own among them,
in one order that is the same for all, with a position and a time of the log's own.

- Records of one submitter enter in the order of submission, and none enters without all before it.
- A record that a reader was given survives what the log survives; it keeps its position.
- Positions ascend. They need not be consecutive, so nobody counts with them.
- The time of a record may lie before that of an earlier one: the clocks of the log's machines are
  not one clock.
- A log that fails says so once, takes nothing more, and is to be opened anew. What was submitted
  and not given back may be in it or not.

All calls and all of the reader's are on one loop. Errors are ``StorageError``, and nothing else.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from perdure.errors import StorageError

TIME_STEP_US: Final = 1_000
"""Steps in which a log may tell the time, microseconds: those of Kafka's are milliseconds."""


class LogRecord(NamedTuple):
    """A record that has its place.

    Attributes:
        position: its place in the log, from 0.
        time_us: when it entered, by the log's clock, microseconds.
        value: what was submitted.
    """

    position: int
    time_us: int
    value: bytes


class LogBounds(NamedTuple):
    """What a log holds.

    Attributes:
        first: the lowest position that can be read; ``end`` if there is none.
        end: the position that the next record gets, or one below it.
    """

    first: int
    end: int


class LogReader(Protocol):
    """Who is given the records."""

    def records(self, records: list[LogRecord]) -> None:
        """Some records, in order, directly behind those before them; at least one."""
        ...

    def failed(self, error: StorageError) -> None:
        """The log gives no more records and takes none.

        Args:
            error: why, and in its hint what an operator does about it.
        """
        ...


class OrderedLog(Protocol):
    """One node's end of the log."""

    @property
    def record_bytes_max(self) -> int:
        """Bytes of the largest record that it takes."""
        ...

    @property
    def problem(self) -> str:
        """What keeps records from coming now, for an operator; empty = nothing that is known.

        It is no failure: the log goes on by itself when the cause is gone.
        """
        ...

    @property
    def end(self) -> int:
        """What ``bounds().end`` was when the log was heard of last; nobody is asked."""
        ...

    def start(self, reader: LogReader, position: int) -> None:
        """Give the reader every record from a position on.

        Once, before anything is submitted. A position that the log does not have any more, or not
        yet, is a failure (``LogTruncated``, ``LogShorter``) that the reader is told of.
        """
        ...

    def submit(self, value: bytes) -> None:
        """Hand over a record.

        Raises:
            RecordTooLarge: it never fits; the log goes on without it.
            StorageError: the log has failed, with this.
        """
        ...

    def hurry(self) -> None:
        """Somebody waits for records that come now: give each as soon as it is there, for a while.

        A log may gather what it gives to a reader who does not say so.
        """
        ...

    def rest(self) -> None:
        """Nobody waits for records, and nobody can until ``hurry`` is called: a log may gather what
        it gives for longer."""
        ...

    async def bounds(self) -> LogBounds:
        """What it holds now.

        Raises:
            StorageUnavailable: nobody answers.
        """
        ...

    async def trim(self, position: int) -> None:
        """Let the records below a position go. It may keep some of them.

        Raises:
            StorageUnavailable: nobody answers.
        """
        ...

    async def close(self) -> None:
        """Give the reader nothing more and let go of everything; what was submitted and is not
        in the log may get there or not."""
        ...
