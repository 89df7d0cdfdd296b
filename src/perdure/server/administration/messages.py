"""Operations on messages: published, retained, recorded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, final

from perdure.admin.operation import Request
from perdure.admin.problems import Refused
from perdure.admin.records.messages import (
    DeleteRetained,
    GetRetained,
    ListRetained,
    MessagePage,
    MessageRow,
    ReadLog,
    Removed,
    RetainedPage,
)
from perdure.broker.services import Services
from perdure.config.units import parse_time
from perdure.server.administration.listing import decode_cursor, encode_cursor
from perdure.server.administration.message_rows import message_head, message_row
from perdure.server.administration.service import Call, Handler
from perdure.server.administration.sessions import check_writable, times
from perdure.server.administration.storage import check_database
from perdure.server.turns import Turns
from perdure.topic.names import validate_topic_filter, validate_topic_name

LEVELS_MAX: Final = 65_536
RETAINED_SCAN_MAX: Final = 2_000
"""Retained topics that are looked at for one page."""

PAGE_BYTES_MAX: Final = 4 * 1024 * 1024
"""Payload bytes of a page of the log; one message is always in it."""

PAGE_TIME_US: Final = 200_000
"""Time for a page of the log; then its cursor goes on."""

STEP_FIRST_US: Final = 10_000_000
STEP_MIN_US: Final = 1_000

PROBE_MAX: Final = 8
READ_MAX: Final = 64
"""Messages of one read. Each stream is read up to it, so it bounds how long the loop is held up;
the first read does not know what awaits it."""


@final
class MessageOperations:
    """Answers what is asked of messages.

    Args:
        services: the parts of the broker.
    """

    def __init__(self, services: Services) -> None:
        self._services = services

    def handlers(self) -> Mapping[type[Request[Any]], Handler]:
        """By request."""
        return {
            ListRetained: self.retained,
            GetRetained: self.retained_message,
            DeleteRetained: self.delete_retained,
            ReadLog: self.read,
        }

    async def retained(self, request: ListRetained, _call: Call) -> RetainedPage:
        """A page of retained messages."""
        validate_topic_filter(request.filter, levels_max=LEVELS_MAX)
        database = self._services.database
        page = await database.read_retained(
            request.filter,
            after_topic=decode_cursor(request.cursor),
            limit=request.limit,
            scan_max=RETAINED_SCAN_MAX,
        )
        _, skew_us = times(self._services)
        after = page.next_after
        return RetainedPage(
            items=[message_head(message, skew_us=skew_us) for message in page.messages],
            next_cursor=None if after is None else encode_cursor(after),
            estimated_total=database.retained_count if request.filter == "#" else None,
        )

    async def retained_message(self, request: GetRetained, _call: Call) -> MessageRow:
        """One of them."""
        validate_topic_name(request.topic, levels_max=LEVELS_MAX)
        message = await self._services.database.get_retained(request.topic)
        if message is None:
            raise _nothing(request.topic)
        return message_row(message, skew_us=times(self._services)[1])

    async def delete_retained(self, request: DeleteRetained, call: Call) -> Removed:
        """Delete one, durably."""
        services = self._services
        check_writable(services)
        validate_topic_name(request.topic, levels_max=LEVELS_MAX)
        message = await services.database.get_retained(request.topic)
        if message is None:
            raise _nothing(request.topic)
        call.before = message_head(message, skew_us=times(services)[1])
        services.committer.batch.delete_retained(request.topic)
        await services.pipeline.committed()
        await services.committer.sync_now()
        return Removed(request.topic)

    async def read(self, request: ReadLog, _call: Call) -> MessagePage:
        """A page of the log, read in stretches of time so short that none holds up the loop."""
        check_database(request.database)
        validate_topic_filter(request.filter, levels_max=LEVELS_MAX)
        after, until = self._bounds(request)
        clock, database = self._services.clock, self._services.database
        skew_us = times(self._services)[1]
        generations = database.generations()
        after = max(after, generations[0].since_offset - 1) if generations else until
        rows: list[MessageRow] = []
        begun_us, size, step_us = clock.monotonic_us(), 0, STEP_FIRST_US
        turns = Turns()
        while after < until and len(rows) < request.limit and size < PAGE_BYTES_MAX:
            if clock.monotonic_us() - begun_us > PAGE_TIME_US:
                break
            page = await database.read(
                [request.filter],
                after_offset=after,
                until_offset=min(until, after + step_us),
                limit=min(request.limit - len(rows), READ_MAX if rows else PROBE_MAX),
                bytes_max=PAGE_BYTES_MAX - size,
            )
            rows += [message_row(message, skew_us=skew_us) for message in page.messages]
            size += sum(len(message.payload) for message in page.messages)
            # A stretch costs what looking at each stream costs, and what is in it: where nothing
            # is, the next one is much longer; else it holds about as much as one read takes.
            if page.messages:
                passed_us = page.through_offset - after
                step_us = max(STEP_MIN_US, passed_us * READ_MAX // len(page.messages))
            else:
                step_us *= 8
            after = page.through_offset
            await turns.step()
        more = after < until
        return MessagePage(items=rows, next_cursor=encode_cursor(str(after)) if more else None)

    def _bounds(self, request: ReadLog) -> tuple[int, int]:
        """Offsets after and up to which is read; an offset is a time."""
        now_us, last = self._services.clock.wall_us(), self._services.database.last_offset
        position = decode_cursor(request.cursor)
        if position and not (position.isascii() and position.isdecimal() and len(position) < 19):
            raise Refused("bad_request", "the cursor is not one of this list")
        try:
            begin_us = parse_time(request.from_, now_us) if request.from_ else 0
            until = parse_time(request.until, now_us) if request.until else last
        except ValueError as error:
            raise Refused("bad_request", str(error)) from error
        if request.until and begin_us > until:
            raise Refused("bad_request", f"from {request.from_} is behind until {request.until}")
        after = self._services.database.capabilities.offset_before(begin_us)
        return int(position) if position else after, min(until, last)


def _nothing(topic: str) -> Refused:
    return Refused("not_found", f"nothing is retained on {topic!r}")
