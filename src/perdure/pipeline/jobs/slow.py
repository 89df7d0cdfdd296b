"""Sessions that are behind: what waits for them, and for how long.

Reads cursors, not clients: a session is behind if messages that it is owed are neither acknowledged
nor given up. A cheap count for every session chooses those that are looked at closely.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from heapq import nlargest
from typing import Any, Final

from perdure.limits import OFFSET_MAX
from perdure.model import StoredSession
from perdure.storage.contract import Database

PENDING_MAX: Final = 100_000
"""More than these are not counted."""

_CANDIDATES: Final = 4
"""Sessions that are looked at closely, for each that is told."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


async def slow_sessions(database: Database, *, top: int) -> list[dict[str, Any]]:
    """Those that are behind, with most pending messages first.

    Args:
        database: a view.
        top: how many.

    Returns:
        Rows: client id, whether a connection holds it, messages that it is owed, those of them
        that were sent and not acknowledged, when the oldest was published, and how many seconds
        before the last message of the log that was.
    """
    candidates: list[tuple[int, int, str]] = []
    async for record in database.sessions():
        session = await database.open_session(record.client_id)
        if session is None:
            continue
        # Counts are sparse: where they agree, who stands further back comes first.
        stands = _since(session, session.cursor.offset)
        lag = database.messages_after(stands) if _filters(session) else 0
        candidates.append((lag, -stands, record.client_id))
        if len(candidates) > 1_000 + _CANDIDATES * top:
            candidates = nlargest(_CANDIDATES * top, candidates)
    rows = []
    for _, _, client_id in nlargest(_CANDIDATES * top, candidates):
        session = await database.open_session(client_id)
        row = None if session is None else await _row(database, session)
        if row is not None:
            rows.append(row)
    rows.sort(key=lambda row: (-row["pending"], row["client_id"]))
    return rows[:top]


async def _row(database: Database, session: StoredSession) -> dict[str, Any] | None:
    cursor, client_id = session.cursor, session.record.client_id
    entries = await database.read_inbox(
        client_id, after_offset=cursor.offset, until_offset=OFFSET_MAX, limit=PENDING_MAX
    )
    filters = _filters(session)
    pending = len(entries)
    oldest = [entry.message.published_at_us for entry in entries if entry.message is not None][:1]
    if filters:
        after = _since(session, cursor.offset)
        last = database.last_offset
        pending += await database.count(
            filters, after_offset=after, until_offset=last, limit=PENDING_MAX
        )
        first = await database.read(filters, after_offset=after, until_offset=last, limit=1)
        oldest += [message.published_at_us for message in first.messages]
    settled = len(cursor.settled)
    pending = max(0, pending - settled)
    if not pending or not oldest:
        return None
    oldest_us = min(oldest)
    return {
        "client_id": client_id,
        "connected": session.record.connected,
        "pending": pending,
        "unacknowledged": max(0, cursor.sent - cursor.serial - settled),
        "oldest": _EPOCH + timedelta(microseconds=oldest_us),
        "behind_s": round((database.last_offset - oldest_us) / 1e6, 3),
    }


def _filters(session: StoredSession) -> Sequence[str]:
    """Filters of subscriptions that still hold; a group's messages are in the private stream."""
    return sorted(
        {
            sub.filter
            for sub in session.subscriptions
            if not sub.group and not sub.until_offset and sub.qos
        }
    )


def _since(session: StoredSession, offset: int) -> int:
    """Nothing is owed from before the first subscription."""
    since = [
        sub.since_offset
        for sub in session.subscriptions
        if not sub.group and not sub.until_offset and sub.qos
    ]
    return max(offset, min(since, default=0))
