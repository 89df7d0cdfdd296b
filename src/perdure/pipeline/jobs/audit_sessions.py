"""The part of an audit that looks at sessions and retained messages.

What a session is owed beyond its cursor is enumerated as the broker does it
(``session.pending``). Each message takes one serial number, so no number beyond the last one can
have been sent or settled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Final, TypeAlias

from perdure.limits import PACKET_ID_MAX
from perdure.model import StoredSession
from perdure.session.pending_pages import StoredQueue
from perdure.storage.contract import Database
from perdure.storage.retained_pages import all_retained

Add: TypeAlias = Callable[[str, str, str], None]
"""Takes a kind, a subject and a detail."""

_PAGE: Final = 1_000
_SCAN_MAX: Final = 100_000


async def audit_sessions(database: Database, add: Add) -> int:
    """Look at every stored session; returns how many there are."""
    count = 0
    async for record in database.sessions():
        session = await database.open_session(record.client_id)
        if session is None:
            # It ended between two reads of a view that follows the broker.
            continue
        count += 1
        _audit_identifiers(session, add)
        _audit_subscriptions(session, database.last_offset, add)
        await _audit_cursor(database, session, add)
    return count


def _audit_identifiers(session: StoredSession, add: Add) -> None:
    client_id, cursor = session.record.client_id, session.cursor
    if 0 in session.awaiting_release:
        add("session", client_id, "awaits the release of packet identifier 0, which does not exist")
    highest = max((cursor.sent, *cursor.settled, *cursor.released))
    if highest - cursor.serial > PACKET_ID_MAX:
        add(
            "cursor",
            client_id,
            f"serial numbers {cursor.serial + 1} to {highest} share packet identifiers",
        )
    both = set(cursor.settled) & set(cursor.released)
    if both:
        add("cursor", client_id, f"serial number {min(both)} is settled, and awaits PUBCOMP")
    unsent = [serial for serial in cursor.released if serial > cursor.sent]
    if unsent:
        add("cursor", client_id, f"serial number {unsent[0]} was received, but never sent")


def _audit_subscriptions(session: StoredSession, last_offset: int, add: Add) -> None:
    for subscription in session.subscriptions:
        if subscription.since_offset > last_offset:
            add(
                "session",
                session.record.client_id,
                f"the subscription {subscription.name} begins after the last offset",
            )
        if 0 < subscription.until_offset < subscription.since_offset:
            add(
                "session",
                session.record.client_id,
                f"the subscription {subscription.name} ends before it begins",
            )


async def _audit_cursor(database: Database, session: StoredSession, add: Add) -> None:
    client_id, cursor = session.record.client_id, session.cursor
    highest = max((cursor.sent, *cursor.settled, *cursor.released))
    if highest <= cursor.serial:
        return
    queue = StoredQueue(database, session, until=database.last_offset)
    async with aclosing(queue.messages()) as messages:
        async for _ in messages:
            if queue.last_serial >= highest:
                return
    add(
        "cursor",
        client_id,
        f"serial number {highest} was sent or settled, but only those up to "
        f"{queue.last_serial} are owed",
    )


async def audit_retained(database: Database, recorded: Mapping[str, int], add: Add) -> None:
    """Compare retained messages with the last ones that the log has with RETAIN.

    Args:
        database: the view.
        recorded: topics with the offset of the last one.
        add: takes problems.
    """
    for topic_filter in ("#", "$SYS/#"):
        retained = all_retained(database, topic_filter, page=_PAGE, scan_max=_SCAN_MAX)
        async for message in retained:
            last = recorded.get(message.topic, 0)
            if message.offset < last:
                add(
                    "retained",
                    message.topic,
                    f"the message of offset {message.offset} is retained, one of {last} came later",
                )
