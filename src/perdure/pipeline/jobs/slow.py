"""Sessions that are behind: what waits for them, and for how long.

Reads cursors, not clients: a session is behind if messages that it is owed are neither acknowledged
nor given up. A cheap count for every session chooses those that are looked at closely.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from heapq import nlargest
from typing import Any, Final

from perdure.model import StoredSession
from perdure.session.pending_pages import count_pending, oldest_pending
from perdure.session.subscriptions import SessionSubscriptions
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
        subscriptions = SessionSubscriptions(record.client_id, session.subscriptions)
        stands = subscriptions.begin(session.cursor.offset)
        lag = database.messages_after(stands) if subscriptions.filters(stands) else 0
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
    last = database.last_offset
    pending, _ = await count_pending(database, session, until=last, limit=PENDING_MAX)
    oldest = await oldest_pending(database, session, until=last)
    if not pending or oldest is None or oldest.message is None:
        return None
    oldest_us = oldest.message.published_at_us
    return {
        "client_id": client_id,
        "connected": session.record.connected,
        "pending": pending,
        "unacknowledged": max(0, cursor.sent - cursor.serial - len(cursor.settled)),
        "oldest": _EPOCH + timedelta(microseconds=oldest_us),
        "behind_s": round((database.last_offset - oldest_us) / 1e6, 3),
    }
