"""What a broker will need, from what its data directory holds now: arithmetic on counts. Knows
no Spark, and reads hardly a message.

Offsets are times, so that a generation's first and last offset, its count and its size give rates
and sizes for each part of the log's age. Memory of sessions is what was measured for idle ones
(``benchmarks/records``, *memory*); what they are sent comes on top. What sessions are owed is
counted for some of them, evenly over their names, and taken for all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import msgspec

from perdure.config.schema import RocksdbConfig
from perdure.pipeline.jobs.slow import PENDING_MAX
from perdure.session.pending_pages import count_pending
from perdure.storage.contract import Database, GenerationInfo

CONNECTED_BYTES: Final = 5_632
OFFLINE_BYTES: Final = 400
"""Of a session that rests, in the broker's memory: connected, and not since a start."""

SAMPLED_MAX: Final = 1_000
"""Sessions whose queues are counted, at most twice as many."""

CELL_MESSAGES_PER_S: Final = 350_000
"""What a cluster takes, however many nodes it has: each applies all (*cluster*: 3 nodes, as fast as
it goes)."""

SPAN_US_MIN: Final = 60_000_000
"""A generation that is shorter says nothing about rates."""


class Counts(msgspec.Struct, frozen=True):
    """What is there.

    Attributes:
        messages, bytes: of the log, as it is on disk.
        span_s: from its begin to its last message.
        peak_per_s: messages a second in the busiest generation.
        sessions, connected: now.
        queues: sessions whose queues were counted.
        queued, queued_most: messages that these are owed, together and the one that is owed most.
    """

    messages: int
    bytes: int
    span_s: float
    peak_per_s: float
    sessions: int
    connected: int
    queues: int = 0
    queued: int = 0
    queued_most: int = 0


class Capacity(msgspec.Struct, frozen=True):
    """What will be needed.

    Attributes:
        messages_per_s, peak_per_s: in the mean, and in the busiest generation.
        bytes_per_message: on disk, with index.
        log_bytes: of the log at its retention, and the generation that is dropped last.
        bytes_per_day: what is added to the log.
        sessions: so many.
        session_bytes: memory of all of them, at rest; the mix of connected and offline as now.
        all_connected_bytes: memory if all of them are connected. So much the process keeps, too,
            where all were connected at one time since its start.
        store_bytes: memory that the store takes as its settings say.
        queued_messages: owed to all sessions.
        queue_messages_most: owed to one of them, of those that were counted; at most 100,000.
        queue_bytes: of all queues if each had its own copy (Redis, PostgreSQL, ``pipeline route``);
            in the log they are positions.
        cells: clusters that it takes, for what each of their nodes applies.
    """

    messages_per_s: float
    peak_per_s: float
    bytes_per_message: float
    log_bytes: int
    bytes_per_day: int
    sessions: int
    session_bytes: int
    all_connected_bytes: int
    store_bytes: int
    queued_messages: int
    queue_messages_most: int
    queue_bytes: int
    cells: int


async def count(database: Database, generations: Sequence[GenerationInfo]) -> Counts:
    """The counts of a database.

    Args:
        database: a view.
        generations: of its log, oldest first.
    """
    last = database.last_offset
    sessions = connected = 0
    async for record in database.sessions():
        sessions += 1
        connected += record.connected
    owed = await _owed(database, step=max(1, sessions // SAMPLED_MAX))
    filled = [info for info in generations if info.message_count]
    # The first offset of a new database is no time.
    begins = [max(info.since_offset, info.created_at_us) for info in filled]
    spans = [
        (info.message_count, (info.until_offset or last + 1) - begin)
        for info, begin in zip(filled, begins, strict=True)
    ]
    first = begins[0] if begins else last
    rates = [messages / span * 1e6 for messages, span in spans if span >= SPAN_US_MIN]
    return Counts(
        messages=sum(info.message_count for info in generations),
        bytes=sum(info.bytes for info in filled),
        span_s=max(0, last - first) / 1e6,
        peak_per_s=max(rates, default=0.0),
        sessions=sessions,
        connected=connected,
        queues=len(owed),
        queued=sum(owed),
        queued_most=max(owed, default=0),
    )


async def _owed(database: Database, *, step: int) -> list[int]:
    """What each ``step``-th session is owed, messages."""
    owed: list[int] = []
    number = 0
    async for record in database.sessions():
        if number % step == 0:
            stored = await database.open_session(record.client_id)
            if stored is not None:
                until = database.last_offset
                found, _ = await count_pending(database, stored, until=until, limit=PENDING_MAX)
                owed.append(min(found, PENDING_MAX))
        number += 1
    return owed


def store_bytes(config: RocksdbConfig) -> int:
    """Memory of the store: blocks that were read, writes, and the tail of the log."""
    return config.cache_bytes + config.tail_bytes


def plan(
    counts: Counts, *, keep_s: float, generation_s: float, growth: float, store: int = 0
) -> Capacity | None:
    """What is needed for ``growth`` times as many devices that do the same.

    Args:
        counts: of now.
        keep_s: retention, in seconds.
        generation_s: what is dropped at a time, in seconds: so much more is on disk before.
        growth: times.
        store: memory of the store, bytes: see ``store_bytes``.

    Returns:
        None if the log is too short to tell.
    """
    if counts.span_s * 1e6 < SPAN_US_MIN or not counts.messages:
        return None
    rate = counts.messages / counts.span_s * growth
    each = counts.bytes / counts.messages
    offline = counts.sessions - counts.connected
    at_rest = counts.connected * CONNECTED_BYTES + offline * OFFLINE_BYTES
    peak = max(rate, counts.peak_per_s * growth)
    queued = round(counts.queued / max(1, counts.queues) * counts.sessions * growth)
    return Capacity(
        messages_per_s=round(rate, 3),
        peak_per_s=round(peak, 3),
        bytes_per_message=round(each, 1),
        log_bytes=round(rate * each * (keep_s + generation_s)),
        bytes_per_day=round(rate * each * 86_400),
        sessions=round(counts.sessions * growth),
        session_bytes=round(at_rest * growth),
        all_connected_bytes=round(counts.sessions * CONNECTED_BYTES * growth),
        store_bytes=store,
        queued_messages=queued,
        queue_messages_most=counts.queued_most,
        queue_bytes=round(queued * each),
        cells=max(1, math.ceil(peak / CELL_MESSAGES_PER_S)),
    )
