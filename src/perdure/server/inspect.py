"""Sessions as an operator sees them, read from a database.

Works on the state of a stopped broker and beside a running one, and serves the admin socket.
It writes nothing. Rows have the field names of the API; what only memory knows (the window of a
connected session) comes as ``LiveView``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final, Literal, Protocol, TypeAlias, final

import msgspec

from perdure.config.units import format_time
from perdure.limits import SESSION_EXPIRY_NEVER_S
from perdure.model import InboxEntry, SessionRecord, StoredSession, Subscription
from perdure.session.head import unacknowledged_head
from perdure.session.pending_pages import count_pending, oldest_pending
from perdure.storage.contract import ReadResult

Row: TypeAlias = dict[str, Any]
State: TypeAlias = Literal["connected", "offline", "expired"]

PENDING_COUNT_MAX: Final = 10_000
"""Messages counted for one session; beyond it is "at least"."""


class Stored(Protocol):
    """The half of a ``Database`` that is looked into; a view of one in a server is one too."""

    @property
    def last_offset(self) -> int:
        """See ``Database``."""
        ...

    def sessions(self, *, after: str = "") -> AsyncIterator[SessionRecord]:
        """See ``Database``."""
        ...

    async def open_session(self, client_id: str) -> StoredSession | None:
        """See ``Database``."""
        ...

    async def read(
        self,
        filters: Sequence[str],
        *,
        after_offset: int,
        until_offset: int,
        limit: int,
        bytes_max: int = 0,
    ) -> ReadResult:
        """See ``Database``."""
        ...

    async def count(
        self, filters: Sequence[str], *, after_offset: int, until_offset: int, limit: int
    ) -> int:
        """See ``Database``."""
        ...

    async def read_inbox(
        self, client_id: str, *, after_offset: int, until_offset: int, limit: int
    ) -> list[InboxEntry]:
        """See ``Database``."""
        ...


@final
class LiveView(msgspec.Struct, frozen=True):
    """What memory knows of a connected session.

    Attributes:
        inflight: messages sent and not yet acknowledged.
        inflight_max: the window.
        pending: messages in memory that wait for the window.
        catching_up: it reads the log, and is not in the live flow yet.
        paused: its socket takes no more bytes now.
    """

    inflight: int
    inflight_max: int
    pending: int
    catching_up: bool
    paused: bool


def state_of(record: SessionRecord, now_us: int, *, running: bool) -> State:
    """Connected, offline, or expired and not yet deleted.

    Args:
        record: the session.
        now_us: steady time; without a broker that tells it, wall time.
        running: the broker runs; else what was connected when it died is offline.
    """
    if record.connected and running:
        return "connected"
    if record.expires_at_us and record.expires_at_us <= now_us:
        return "expired"
    return "offline"


def deadline(steady_us: int, skew_us: int) -> str | None:
    """A deadline as people read it; None = there is none.

    Args:
        steady_us: in the broker's own time (``clock.SteadyClock``).
        skew_us: what the wall clock is ahead of that.
    """
    return format_time(steady_us + skew_us) if steady_us else None


def session_row(record: SessionRecord, now_us: int, *, running: bool, skew_us: int = 0) -> Row:
    """What a list shows of a session.

    Args:
        record: the session.
        now_us: steady time.
        running: see ``state_of``.
        skew_us: what the wall clock is ahead of it.
    """
    never = record.expiry_s == SESSION_EXPIRY_NEVER_S
    return {
        "client_id": record.client_id,
        "state": state_of(record, now_us, running=running),
        "username": record.username or None,
        "protocol": "5.0" if record.protocol == 5 else "3.1.1",
        "created_at": format_time(record.created_at_us),
        "changed_at": format_time(record.changed_at_us),
        "changed_at_us": record.changed_at_us,
        "expiry_s": None if never else record.expiry_s,
        "expires_at": deadline(record.expires_at_us, skew_us),
        "dropped_count": record.dropped_count,
        "has_will": record.will is not None,
        "epoch": record.epoch,
    }


async def session_rows(
    database: Stored,
    now_us: int,
    *,
    running: bool,
    prefix: str = "",
    state: State | None = None,
    skew_us: int = 0,
) -> AsyncIterator[Row]:
    """Sessions in client-id order.

    Args:
        database: where they are.
        now_us: steady time.
        running: see ``state_of``.
        prefix: only client ids that begin so.
        state: only sessions in this state.
        skew_us: what the wall clock is ahead of steady time.
    """
    # Starting above the prefix without its last character skips what cannot begin with it.
    async for record in database.sessions(after=prefix[:-1]):
        if record.client_id.startswith(prefix):
            if state in {None, state_of(record, now_us, running=running)}:
                yield session_row(record, now_us, running=running, skew_us=skew_us)
        elif record.client_id.encode() > prefix.encode():
            return


async def session_details(
    database: Stored,
    client_id: str,
    now_us: int,
    *,
    running: bool,
    live: LiveView | None = None,
    skew_us: int = 0,
) -> Row | None:
    """Everything about one session; None if there is no such session."""
    stored = await database.open_session(client_id)
    if stored is None:
        return None
    return await describe(database, stored, now_us, running=running, live=live, skew_us=skew_us)


async def describe(
    database: Stored,
    stored: StoredSession,
    now_us: int,
    *,
    running: bool,
    live: LiveView | None = None,
    skew_us: int = 0,
) -> Row:
    """Everything about a session; one in memory is described by what it would store now."""
    cursor = stored.cursor
    details = session_row(stored.record, now_us, running=running, skew_us=skew_us)
    details["subscriptions"] = [
        _subscription_row(sub) for sub in stored.subscriptions if not sub.until_offset
    ]
    details["acked_offset"] = cursor.offset
    details["acked_at"] = format_time(cursor.offset)
    details["acked_serial"] = cursor.serial
    details["sent_serial"] = cursor.sent
    details["unacknowledged"] = unacknowledged(stored)
    head = unacknowledged_head(cursor)
    details["oldest_unacknowledged"] = None
    if head is not None:
        oldest = await oldest_pending(database, stored, until=database.last_offset)
        message = None if oldest is None else oldest.message
        details["oldest_unacknowledged"] = {
            **msgspec.to_builtins(head),
            "awaits": head.awaits,
            "topic": None if message is None else message.topic,
            "published_at": None if message is None else format_time(message.published_at_us),
        }
    details["awaiting_release"] = list(stored.awaiting_release)
    details["awaiting_completion"] = len(cursor.released)
    if live is None or live.catching_up:
        pending, exact = await count_pending(
            database, stored, until=database.last_offset, limit=PENDING_COUNT_MAX
        )
    else:
        pending, exact = live.inflight + live.pending, True
    details["owed_messages"] = pending
    details["owed_is_exact"] = exact
    will = stored.record.will
    if will is not None:
        details["will"] = {
            "topic": will.topic,
            "qos": will.qos,
            "retain": will.retain,
            "delay_s": will.delay_s,
            "payload_bytes": len(will.payload),
            "due_at": deadline(stored.record.will_at_us, skew_us),
        }
    if live is not None:
        details["live"] = msgspec.to_builtins(live)
    return details


def _subscription_row(sub: Subscription) -> Row:
    row: Row = {
        "filter": sub.name,
        "qos": sub.qos,
        "no_local": sub.no_local,
        "retain_as_published": sub.retain_as_published,
        "retain_handling": sub.retain_handling,
        "identifier": sub.identifier or None,
        "where": sub.where or None,
        "since": format_time(sub.since_offset),
    }
    if sub.feed is not None:
        row["feeding"] = "retained" if sub.feed.retained else "recorded"
    return row


def unacknowledged(stored: StoredSession) -> int:
    """Messages that were sent and that the client has not settled."""
    cursor = stored.cursor
    settled = sum(1 for serial in cursor.settled if serial <= cursor.sent)
    return max(0, cursor.sent - cursor.serial - settled)
