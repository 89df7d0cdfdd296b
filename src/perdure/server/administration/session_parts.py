"""Operations on what a session holds: messages on their way, and messages that wait.

They are enumerated as a resume enumerates them: from the cursor on, in offset order, each with its
serial number. So what is shown is what is delivered, for a connected session too. A page looks at
``LOOKED_MAX`` messages at most; its cursor says where the next one goes on.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, Final, final

import msgspec

from perdure.admin.operation import Request
from perdure.admin.problems import Refused
from perdure.admin.records.session_parts import (
    AwaitingReleasePage,
    InboundPacket,
    InflightMessage,
    InflightPage,
    ListAwaitingRelease,
    ListInflight,
    ListPending,
    OwedMessage,
    PendingPage,
)
from perdure.broker.services import Services
from perdure.model import Cursor, StoredSession
from perdure.server.administration.listing import decode_cursor, encode_cursor
from perdure.server.administration.message_rows import message_head
from perdure.server.administration.paging import page_of
from perdure.server.administration.service import Call, Handler
from perdure.server.administration.sessions import as_stored, times, unknown_session
from perdure.server.stepwise import StepwiseRows
from perdure.server.turns import Turns
from perdure.session.pending import DeliveryProgress, PendingMessage
from perdure.session.pending_pages import StoredQueue
from perdure.session.seqno import packet_id_of

LOOKED_MAX: Final = 2_000
"""Messages that are looked at for one page."""

_CHUNK: Final = 64


@final
class SessionPartOperations:
    """Answers what is asked of the messages of a session.

    Args:
        services: the parts of the broker.
    """

    def __init__(self, services: Services) -> None:
        self._services = services

    def handlers(self) -> Mapping[type[Request[Any]], Handler]:
        """By request."""
        return {
            ListInflight: self.inflight,
            ListPending: self.pending,
            ListAwaitingRelease: self.awaiting_release,
        }

    async def inflight(self, request: ListInflight, _call: Call) -> InflightPage:
        """A page of those that were sent."""
        stored = await self._stored(request.client_id)
        progress, items, after = _progress(stored), list[InflightMessage](), ""
        if stored.cursor.sent <= stored.cursor.serial:
            return InflightPage(items=items)  # all that was sent is settled
        skew_us = times(self._services)[1]
        async with aclosing(_from(self._services, stored, request.cursor)) as found:
            async for pending in found:
                if pending is None:
                    return InflightPage(items=items, next_cursor=after)
                if not progress.was_sent(pending):
                    break
                if len(items) == request.limit:
                    return InflightPage(items=items, next_cursor=after)
                after = _position(pending)
                if not progress.is_settled(pending):
                    released = progress.is_released(pending)
                    row = InflightMessage(
                        **_fields(pending, skew_us),
                        packet_id=packet_id_of(pending.serial),
                        awaits="PUBCOMP"
                        if released
                        else "PUBREC"
                        if pending.qos == 2
                        else "PUBACK",
                    )
                    items.append(row)
        return InflightPage(items=items)

    async def pending(self, request: ListPending, _call: Call) -> PendingPage:
        """A page of those that wait."""
        stored = await self._stored(request.client_id)
        progress, items, after = _progress(stored), list[OwedMessage](), ""
        if self._was_given_all(request.client_id):
            return PendingPage(items=items)
        now_us, skew_us = times(self._services)
        async with aclosing(_from(self._services, stored, request.cursor)) as found:
            async for pending in found:
                if pending is None or len(items) == request.limit:
                    return PendingPage(items=items, next_cursor=after)
                after = _position(pending)
                if progress.was_sent(pending) or progress.is_settled(pending):
                    continue
                if not progress.is_past(pending, now_us):
                    items.append(OwedMessage(**_fields(pending, skew_us)))
        return PendingPage(items=items)

    async def awaiting_release(
        self, request: ListAwaitingRelease, _call: Call
    ) -> AwaitingReleasePage:
        """A page of packet identifiers."""
        found = sorted((await self._stored(request.client_id)).awaiting_release)
        ids, following = page_of(found, request, lambda packet_id: f"{packet_id:05}")
        return AwaitingReleasePage(
            items=[InboundPacket(packet_id) for packet_id in ids],
            next_cursor=following,
            estimated_total=len(found),
        )

    def _was_given_all(self, client_id: str) -> bool:
        """Whether nothing waits for a session, as far as memory knows: most pages of a session are
        of one that keeps up, and its log need not be read then."""
        live = self._services.registry.live.get(client_id)
        return (
            live is not None
            and not live.lagging
            and not live.outbound.pending
            and not live.backfilling
        )

    async def _stored(self, client_id: str) -> StoredSession:
        live = self._services.registry.live.get(client_id)
        if live is not None:
            return as_stored(live)
        stored = await self._services.database.open_session(client_id)
        if stored is None:
            raise unknown_session(client_id)
        return stored


def _progress(stored: StoredSession) -> DeliveryProgress:
    return DeliveryProgress(stored.cursor, stored.record.cut_offset)


async def _from(
    services: Services, stored: StoredSession, cursor: str
) -> AsyncGenerator[PendingMessage | None, None]:
    """What a session is owed behind a position; None = that is enough for one page."""
    position = decode_cursor(cursor)
    if position:
        offset, _, serial = position.partition(":")
        if not (_is_number(offset) and _is_number(serial)):
            raise Refused("bad_request", "the cursor is not one of this list")
        if int(offset) > stored.cursor.offset:
            # Enumeration goes on there with the next number.
            begun = Cursor(
                int(offset),
                int(serial),
                stored.cursor.settled,
                stored.cursor.released,
                stored.cursor.sent,
            )
            stored = msgspec.structs.replace(stored, cursor=begun)
    database = services.database
    queue = StoredQueue(StepwiseRows(database), stored, until=database.last_offset, chunk=_CHUNK)
    looked, turns = 0, Turns()
    async with aclosing(queue.messages()) as messages:
        async for pending in messages:
            if looked == LOOKED_MAX:
                yield None
                return
            looked += 1
            yield pending
            await turns.step()


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 19


def _position(pending: PendingMessage) -> str:
    return encode_cursor(f"{pending.offset}:{pending.serial}")


def _fields(pending: PendingMessage, skew_us: int) -> dict[str, Any]:
    assert pending.message is not None
    head = msgspec.structs.asdict(message_head(pending.message, skew_us=skew_us))
    return {**head, "serial": pending.serial, "granted_qos": pending.qos}
