"""What administrators have changed, in the broker's own log below ``$audit``: a table as any topic.

A record of ``sessions.kick`` is a message on ``$audit/sessions/kick``, QoS 1, JSON. It is recorded
whatever ``storage.record`` says, so that Spark, a replay and the dashboard read it as they read
everything else; and it goes when retention drops its generation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, final

import msgspec

from perdure.admin.audit import AuditRecord
from perdure.errors import StorageUnavailable
from perdure.identity.redaction import redacted
from perdure.model import Message
from perdure.observe.logs import get_logger

if TYPE_CHECKING:
    from perdure.broker.services import Services
    from perdure.identity.file import IdentityFile

log = get_logger("audit")

ROOT: Final = "$audit"
FILTER: Final = f"{ROOT}/#"

LEDGERED: Final = ("users.", "api_keys.")
"""Operations whose changes are recorded where they are made (``identity.ledger``)."""

READ_MAX: Final = 1_000
"""Messages of one read, going back."""

SPAN_US: Final = 3_600_000_000
SPAN_FACTOR: Final = 4
STEPS_MAX: Final = 64
"""Going back begins with an hour, and with less where it is full; so far it goes for one page."""

OUTBOX_PAGE: Final = 100


@final
class AuditTrail:
    """``admin.audit.AuditHook`` that keeps the records in the log.

    Args:
        services: the parts of the broker.
        identity: what was changed elsewhere and waits for the log; None = nowhere.
    """

    def __init__(self, services: Services, identity: IdentityFile | None = None) -> None:
        self._services = services
        self._identity = identity
        self._draining = asyncio.Lock()

    async def record(self, record: AuditRecord) -> None:
        """Keep one; returns once it is safe.

        Raises:
            StorageError: it is not; the line in the log is all there is of it.
        """
        log.info(
            "admin.changed",
            operation=record.operation,
            target=record.target,
            principal=record.principal,
            source=record.source,
            peer=record.peer,
            request_id=record.request_id,
            outcome=record.outcome,
        )
        if record.outcome == "ok" and record.operation.startswith(LEDGERED):
            await self.drain()
            return
        await self._append([record])

    async def drain(self) -> int:
        """Bring what was changed elsewhere into the log; how many records that were.

        One whose number could not be struck out because the process died comes again: such a record
        is the same in all its parts.
        """
        identity = self._identity
        if identity is None:
            return 0
        count = 0
        async with self._draining:
            while found := await asyncio.to_thread(identity.outgoing, OUTBOX_PAGE):
                await self._append([each for _, each in found])
                await asyncio.to_thread(identity.sent, found[-1][0])
                count += len(found)
        return count

    async def page(
        self, *, before_offset: int, limit: int, topic_filter: str = FILTER
    ) -> tuple[list[tuple[int, AuditRecord]], int]:
        """Records with their offsets, the newest first.

        Args:
            before_offset: exclusive upper bound; 0 = none.
            limit: at most so many.
            topic_filter: below ``$audit``.

        Returns:
            The records, and where the next page begins; 0 = there is none.
        """
        database = self._services.database
        until = before_offset - 1 if before_offset else database.last_offset
        floor = database.since_offset
        found: list[Message] = []
        span_us = SPAN_US
        for _ in range(STEPS_MAX):
            after = max(until - span_us, floor - 1)
            result = await database.read(
                [topic_filter], after_offset=after, until_offset=until, limit=READ_MAX
            )
            if len(result.messages) == READ_MAX and span_us > 1:
                span_us = max(span_us // SPAN_FACTOR, 1)
                continue
            found += reversed(result.messages)
            until = after
            span_us *= SPAN_FACTOR
            if len(found) >= limit or until < floor:
                break
        is_more = len(found) > limit or until >= floor
        records = [(each.offset, _decode(each)) for each in found[:limit]]
        return records, (records[-1][0] if records else until + 1) if is_more else 0

    async def _append(self, records: list[AuditRecord]) -> None:
        services = self._services
        if not services.committer.writable:
            # It would wait for a store that may never come back, and so would who asks.
            raise StorageUnavailable(
                "the storage takes no messages, so this is recorded in the broker's log alone; it "
                "may be done all the same",
                hint=services.committer.failure_text,
            )
        pipeline = services.pipeline
        pipeline.now_us = services.clock.now_us()
        for record in records:
            message = Message(
                f"{ROOT}/{record.operation.replace('.', '/')}",
                msgspec.json.encode(_without_secrets(record)),
                1,
                published_at_us=pipeline.published_us(),
            )
            services.committer.batch.append(message)
            pipeline.dispatch(message)
        await pipeline.committed()
        await services.committer.sync_now()


def _without_secrets(record: AuditRecord) -> AuditRecord:
    clean: Callable[[Any], Any] = redacted
    return msgspec.structs.replace(
        record,
        request=clean(record.request),
        before=clean(record.before),
        after=clean(record.after),
    )


def _decode(message: Message) -> AuditRecord:
    """A record; one of a later release may have more members, and all of ours."""
    return msgspec.json.decode(message.payload, type=AuditRecord)
