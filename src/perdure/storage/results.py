"""What a database answers with; part of ``storage.contract``, and imported from there.

Knows messages and nothing of how they are kept. Invariant: nobody changes an answer that was given.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from perdure.model import Message


class ReadResult(msgspec.Struct, frozen=True):
    """One page of a log read.

    Attributes:
        messages: in offset order, each with its offset set.
        through_offset: everything that matches up to this offset has been returned: the offset
            of the last message when ``limit`` was reached, else ``until_offset``.
    """

    messages: list[Message]
    through_offset: int


class Counted(msgspec.Struct, frozen=True):
    """What one look at the log has counted.

    Attributes:
        count: messages.
        through_offset: everything that matches up to this offset is counted, as ``ReadResult`` has
            it.
    """

    count: int
    through_offset: int


class RetainedPage(msgspec.Struct, frozen=True):
    """One page of retained messages.

    Attributes:
        messages: in the store's topic order; ``offset`` is their log position or, for one that
            is not recorded, the offset allocated when it was retained.
        next_after: pass as ``after_topic`` for the next page; None = no more.
    """

    messages: list[Message]
    next_after: str | None


class GenerationInfo(msgspec.Struct, frozen=True):
    """A time slice of the log.

    Attributes:
        generation: number, from 1.
        layout: version of its layout, from its header.
        since_offset: its first possible offset.
        until_offset: the first offset after it; 0 = current.
        created_at_us: wall time.
        message_count: messages in it.
        bytes: approximate size on disk, bytes.
        stream_count: learned streams in it.
    """

    generation: int
    layout: int
    since_offset: int
    until_offset: int
    created_at_us: int
    message_count: int
    bytes: int
    stream_count: int


class StreamInfo(msgspec.Struct, frozen=True):
    """A learned topic structure: its pattern has ``+`` where a level varies."""

    generation: int
    stream: int
    pattern: str


class Finding(NamedTuple):
    """One thing that ``check`` found wrong.

    Attributes:
        table: where.
        key: the row's key in hexadecimal, or empty.
        problem: what is wrong, one sentence.
    """

    table: str
    key: str
    problem: str
