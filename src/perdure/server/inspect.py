"""Sessions as an operator sees them, read from a database.

Works on the state of a stopped broker and beside a running one, and serves the admin socket.
It writes nothing. What only memory knows (the window of a connected session) comes as ``LiveView``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final, Protocol

import msgspec

from perdure.admin.records.sessions import (
    HeldSubscription,
    LiveView,
    OldestUnacknowledged,
    SessionDetail,
    SessionRow,
    SessionWill,
    State,
)
from perdure.config.units import format_time
from perdure.limits import SESSION_EXPIRY_NEVER_S
from perdure.model import InboxEntry, SessionRecord, StoredSession, Subscription
from perdure.server.stepwise import StepwiseRows
from perdure.session.head import unacknowledged_head
from perdure.session.pending_pages import count_pending, oldest_pending
from perdure.storage.contract import Counted, ReadResult

_PROTOCOLS: Final = {4: "3.1.1", 5: "5.0"}

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

    async def session_ids(self, *, after: str, limit: int) -> list[str]:
        """See ``Database``."""
        ...

    async def session_records(self, client_ids: Sequence[str]) -> list[SessionRecord]:
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
    ) -> Counted:
        """See ``Database``."""
        ...

    async def read_inbox(
        self, client_id: str, *, after_offset: int, until_offset: int, limit: int
    ) -> list[InboxEntry]:
        """See ``Database``."""
        ...


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


def node_of(record: SessionRecord, here: str | None) -> str | None:
    """The node that a session is connected to; None = to none.

    Args:
        record: the session.
        here: this node, if it is connected to that; else its record says so.
    """
    return here or (record.connected and record.node) or None


def deadline(steady_us: int, skew_us: int) -> str | None:
    """A deadline as people read it; None = there is none.

    Args:
        steady_us: in the broker's own time (``clock.SteadyClock``).
        skew_us: what the wall clock is ahead of that.
    """
    return format_time(steady_us + skew_us) if steady_us else None


def session_row(
    record: SessionRecord,
    now_us: int,
    *,
    running: bool,
    skew_us: int = 0,
    node: str | None = None,
    subscription_count: int | None = None,
) -> SessionRow:
    """What a list shows of a session.

    Args:
        record: the session.
        now_us: steady time.
        running: see ``state_of``.
        skew_us: what the wall clock is ahead of it.
        node: that holds it; None = the record may name one, of a cluster.
        subscription_count: of a session in memory, whose record is behind in this.
    """
    if subscription_count is None:
        subscription_count = record.subscription_count
    ends_at_us = record.expires_at_us
    return SessionRow(
        client_id=record.client_id,
        state=state_of(record, now_us, running=running),
        node=node_of(record, node),
        username=record.username or None,
        protocol=_PROTOCOLS.get(record.protocol, ""),
        created_at=format_time(record.created_at_us),
        created_at_us=record.created_at_us,
        changed_at=format_time(record.changed_at_us),
        changed_at_us=record.changed_at_us,
        expiry_s=None if record.expiry_s == SESSION_EXPIRY_NEVER_S else record.expiry_s,
        expires_at=deadline(ends_at_us, skew_us),
        expires_at_us=ends_at_us + skew_us if ends_at_us else None,
        subscription_count=subscription_count,
        dropped_count=record.dropped_count,
        has_will=record.will is not None,
        epoch=record.epoch,
    )


async def session_details(
    database: Stored,
    client_id: str,
    now_us: int,
    *,
    running: bool,
    skew_us: int = 0,
) -> SessionDetail | None:
    """Everything about one stored session; None if there is no such session."""
    stored = await database.open_session(client_id)
    if stored is None:
        return None
    return await describe(database, stored, now_us, running=running, skew_us=skew_us)


async def describe(
    database: Stored,
    stored: StoredSession,
    now_us: int,
    *,
    running: bool,
    live: LiveView | None = None,
    skew_us: int = 0,
    node: str | None = None,
    seam: int = 0,
) -> SessionDetail:
    """Everything about a session; one in memory is described by what it would store now."""
    cursor = stored.cursor
    current = [sub for sub in stored.subscriptions if not sub.until_offset]
    row = session_row(
        stored.record,
        now_us,
        running=running,
        skew_us=skew_us,
        node=node,
        subscription_count=len(current),
    )
    if live is None or live.catching_up:
        pending, exact = await count_pending(
            StepwiseRows(database, pauses=running),
            stored,
            until=database.last_offset,
            limit=PENDING_COUNT_MAX,
        )
    else:
        pending, exact = live.inflight + live.pending, True
    if any(sub.backfill is not None for sub in current):
        exact = False
    return SessionDetail(
        **msgspec.structs.asdict(row),
        subscriptions=[held_subscription(sub, seam=seam) for sub in current],
        acked_offset=cursor.offset,
        acked_at=format_time(cursor.offset),
        acked_serial=cursor.serial,
        sent_serial=cursor.sent,
        unacknowledged=unacknowledged(stored),
        oldest_unacknowledged=await _oldest(database, stored),
        awaiting_release=list(stored.awaiting_release),
        awaiting_completion=len(cursor.released),
        owed_messages=pending,
        owed_is_exact=exact,
        will=_will(stored.record, skew_us),
        live=live,
    )


async def _oldest(database: Stored, stored: StoredSession) -> OldestUnacknowledged | None:
    head = unacknowledged_head(stored.cursor)
    if head is None:
        return None
    oldest = await oldest_pending(database, stored, until=database.last_offset)
    message = None if oldest is None else oldest.message
    return OldestUnacknowledged(
        **msgspec.structs.asdict(head),
        awaits=head.awaits,
        topic=None if message is None else message.topic,
        published_at=None if message is None else format_time(message.published_at_us),
        published_at_us=None if message is None else message.published_at_us,
    )


def _will(record: SessionRecord, skew_us: int) -> SessionWill | None:
    will = record.will
    if will is None:
        return None
    return SessionWill(
        topic=will.topic,
        qos=will.qos,
        retain=will.retain,
        delay_s=will.delay_s,
        payload_bytes=len(will.payload),
        due_at=deadline(record.will_at_us, skew_us),
    )


def held_subscription(sub: Subscription, *, seam: int = 0) -> HeldSubscription:
    """A subscription as it is shown.

    Args:
        sub: the subscription.
        seam: up to where replays are given what the archive has; 0 = there is none.
    """
    backfilling = given_offset = None
    if sub.backfill is not None:
        given_offset = sub.backfill.after_offset
        backfilling = "archived" if given_offset < seam else "recorded"
        if sub.backfill.retained:
            backfilling = "retained"
    return HeldSubscription(
        filter=sub.name,
        qos=sub.qos,
        no_local=sub.no_local,
        retain_as_published=sub.retain_as_published,
        retain_handling=sub.retain_handling,
        identifier=sub.identifier or None,
        where=sub.where or None,
        since=format_time(sub.since_offset),
        since_us=sub.since_offset,
        backfilling=backfilling,
        given_offset=given_offset,
        given_at=None if given_offset is None else format_time(given_offset),
    )


def unacknowledged(stored: StoredSession) -> int:
    """Messages that were sent and that the client has not settled."""
    cursor = stored.cursor
    settled = sum(1 for serial in cursor.settled if serial <= cursor.sent)
    return max(0, cursor.sent - cursor.serial - settled)
