"""What a gap in the tables means: messages of which streams and times, and sessions.

For people who must decide what to do, so it says at most too much: a session is named if it may
miss a message, or if rows of its own may be lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from perdure.config.units import format_time
from perdure.model import holds_within
from perdure.storage.codec import decode_cursor, decode_session, decode_subscription
from perdure.storage.contract import Finding
from perdure.storage.rocksdb import keys
from perdure.storage.rocksdb.engine import ALL_END, INBOX, STATE, Engine, prefix_end
from perdure.storage.rocksdb.generations import Generation, Generations
from perdure.storage.rocksdb.layout import table_generation
from perdure.storage.rocksdb.layout_v1 import SkipScanLayout
from perdure.storage.rocksdb.skipping import Gap

_PATTERNS_SHOWN: Final = 5


def explain(
    gap: Gap, engine: Engine, generations: Generations, last_offset: int
) -> Iterator[Finding]:
    """What a gap costs: one finding for it, and one for each session that it touches."""
    number = table_generation(gap.table)
    generation = generations.get(number) if number else None
    if generation is None:
        yield Finding(gap.table, gap.first.hex(), f"{gap.place}; {_rows_between(gap)}")
        if gap.table in (STATE, INBOX):
            yield from _owners(gap, engine)
        return
    streams, since, until = _extent(gap, generation, last_offset)
    names = _named(generation, streams)
    # The first generation begins with offset 1, which is no moment.
    moment = f"{format_time(since)} to" if since > 1 else "until"
    span = f"offsets {since} to {until} ({moment} {format_time(until)})"
    yield Finding(
        gap.table,
        gap.first.hex(),
        f"{gap.place}; messages of generation {number}, {names}, {span}, cannot be read",
    )
    yield from _readers(gap.table, engine, generation, streams, since, until)


def _extent(gap: Gap, generation: Generation, last_offset: int) -> tuple[range, int, int]:
    """Streams and offsets between the keys of a gap."""
    header = generation.header
    since, until = header.since_offset, (header.until_offset - 1) if header.until_offset else 0
    until = until or last_offset
    first, end = int.from_bytes(gap.first[:8]), int.from_bytes(gap.end[:8].ljust(8, b"\0"))
    streams = range(first, min(end, generation.layout.stream_count) + 1)
    if first == end and gap.table == generation.layout.tables[0] and len(gap.first) >= 16:
        since = max(since, int.from_bytes(gap.first[8:16]))
        until = min(until, int.from_bytes(gap.end[8:16]))
    return streams, since, until


def _named(generation: Generation, streams: range) -> str:
    patterns = [pattern for stream, pattern in generation.layout.streams() if stream in streams]
    if not patterns:
        return "any topic"
    shown = ", ".join(patterns[:_PATTERNS_SHOWN])
    more = len(patterns) - _PATTERNS_SHOWN
    return f"topics {shown}" + (f" and {more} more" if more > 0 else "")


def _readers(
    table: str, engine: Engine, generation: Generation, streams: range, since: int, until: int
) -> Iterator[Finding]:
    """Sessions that have not read as far, and subscribe to one of the streams."""
    layout = generation.layout
    for _, value in engine.items(STATE, b"s", b"t"):
        client_id = decode_session(value).client_id
        rows = keys.session_rows(client_id)
        cursor = engine.get(STATE, keys.cursor(rows))
        after = 0 if cursor is None else decode_cursor(cursor).offset
        for _, row in engine.items(STATE, rows + b"u", rows + b"v"):
            sub = decode_subscription(row)
            if not holds_within(sub, after=after, until=until):
                continue
            if isinstance(layout, SkipScanLayout) and not any(
                stream in streams for stream in layout.plan([sub.filter])
            ):
                continue
            yield Finding(
                table,
                keys.session(client_id).hex(),
                f"session {client_id!r} may miss messages of {sub.name!r} since offset {since}",
            )
            break


def _owners(gap: Gap, engine: Engine) -> Iterator[Finding]:
    """Sessions whose own rows lie in a gap."""
    for key, value in engine.items(STATE, b"s", b"t"):
        client_id = decode_session(value).client_id
        own = (keys.session_inbox if gap.table == INBOX else keys.session_rows)(client_id)
        if gap.first < prefix_end(own) and own < gap.end:
            yield Finding(
                gap.table, key.hex(), f"session {client_id!r} may have lost subscriptions or state"
            )


def _rows_between(gap: Gap) -> str:
    first = _shown(gap.first) if gap.first else "the first"
    end = f"before {_shown(gap.end)}" if gap.end < ALL_END else "the last"
    return f"rows from {first} to {end} cannot be read"


def _shown(key: bytes) -> str:
    return f"{key[:1].decode('ascii', 'replace')!r} {key[1:40].hex()}"
