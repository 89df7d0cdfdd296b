"""What sessions are owed of a generation, put into their private streams.

Of several nodes the one that a client is connected to does that; for who is away each does it
alike, to the same places, but for replays, which are for one (``DUTY``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import msgspec

from perdure.broker.dispatch.items import OffsetAdvance
from perdure.broker.retention.dropping import CARRY_PAGE, is_owed
from perdure.content import fulfils
from perdure.errors import StorageConflict
from perdure.model import InboxEntry, StoredSession, combine
from perdure.session.pending import PendingMessages
from perdure.session.pending_pages import read_pages
from perdure.session.subscriptions import SessionSubscriptions
from perdure.storage.contract import GenerationInfo

if TYPE_CHECKING:
    from perdure.broker.core import BrokerCore
    from perdure.broker.delivery.backfill import Backfill
    from perdure.broker.delivery.live_session import LiveSession

DUTY: Final = "retention"
"""What one of several nodes does for all: to carry over backfills, and to sweep. The rest is
written alike by each that does it, to the same places."""


@final
class SessionCarry:
    """Carries over.

    Args:
        core: what every part stands on.
        backfill: the replays of sessions that are connected.

    Attributes:
        waits: what another node has still to carry over; for who asks to reset.
    """

    def __init__(self, core: BrokerCore, backfill: Backfill) -> None:
        self._core = core
        self._backfill: Backfill = backfill
        self.waits: StorageConflict | None = None

    async def carry(self, client_id: str, info: GenerationInfo, live: LiveSession | None) -> int:
        """Copy what a session is owed from a generation to its private stream, if that is for this
        node.

        Args:
            client_id: whose it is; acquired.
            info: the generation.
            live: the session, if it is connected here.

        Returns:
            Messages that were copied.
        """
        core = self._core
        backfilled = 0
        if live is not None:
            await self._backfill.pass_offset(live, info.until_offset - 1)
        stored = await core.database.open_session(client_id)
        if stored is None:
            return 0
        peers, epoch = core.peers, stored.record.epoch
        if peers is not None and live is None and stored.record.connected:
            await self._look_elsewhere(stored, info)
            return 0
        if live is None:
            if peers is None or peers.owns(DUTY):
                backfilled = await self._carry_backfills(stored, info)
            elif self._is_fed(stored, info):
                self.wait_for("that carries over replays", f"{client_id} is away")
        has_queues = core.database.capabilities.queues is not None
        if stored.cursor.offset >= info.until_offset - 1 or has_queues:
            # What the session is owed besides is done, or in a queue of its own.
            return backfilled
        if peers is not None and not await is_owed(core, stored, info):
            return backfilled  # another node has carried it over, or this one before it waited
        carried = await self._copy(stored, live, info)
        if peers is not None:
            stored = await core.database.open_session(client_id)
            if stored is not None and stored.record.epoch != epoch:
                # Its client has come to another node: what was put counts for nothing.
                await self._look_elsewhere(stored, info)
        return backfilled + carried

    async def _look_elsewhere(self, stored: StoredSession, info: GenerationInfo) -> None:
        """Wait with a generation that a session of another node needs."""
        is_behind = stored.cursor.offset < info.until_offset - 1
        if self._is_fed(stored, info) or (is_behind and await is_owed(self._core, stored, info)):
            record = stored.record
            self.wait_for(record.node, f"{record.client_id} is connected there")

    def _is_fed(self, stored: StoredSession, info: GenerationInfo) -> bool:
        """Whether a backfill of a session has still to give something from a generation."""
        until = info.until_offset - 1
        return any(
            sub.backfill is not None
            and sub.backfill.after_offset < until
            and not self._backfill.stands_in_archive(sub.backfill)
            for sub in stored.subscriptions
        )

    def wait_for(self, node: str, why: str) -> None:
        """Another node has still to carry something over."""
        self.waits = StorageConflict(
            f"node {node} has still to carry over what is owed from it: {why}",
            hint="it has been asked to, and this one looks again",
        )

    async def _copy(
        self, stored: StoredSession, live: LiveSession | None, info: GenerationInfo
    ) -> int:
        """Copy what a session is owed from a generation to its private stream.

        Every owed message gets an entry at its own offset, settled ones too: each has a serial
        number that must stay taken.
        """
        core = self._core
        client_id = stored.record.client_id
        subscriptions = SessionSubscriptions(client_id, stored.subscriptions)
        until = info.until_offset - 1
        pages = read_pages(
            core.database,
            subscriptions,
            durable=False,  # what is in its private stream stays there
            after=max(stored.cursor.offset, info.since_offset - 1),
            until=until,
            chunk=CARRY_PAGE,
            bytes_max=0,
        )
        pending = PendingMessages(subscriptions, 0)
        count = 0
        async for page in pages:
            for each in pending.page(page.messages, page.entries):
                assert each.message is not None
                core.committer.batch.put_inbox(
                    client_id,
                    InboxEntry(
                        each.offset,
                        each.message,
                        qos=each.qos,
                        retain=each.retain,
                        identifiers=each.identifiers,
                    ),
                    epoch=stored.record.epoch,
                )
                count += 1
            await core.pipeline.committed()
            await core.yield_to_loop()
        if live is not None:
            live.inbox_until = max(live.inbox_until, until)
        return count

    async def _carry_backfills(self, stored: StoredSession, info: GenerationInfo) -> int:
        """What backfills of an offline session have still to give from a generation, put behind all
        that is in its private stream already."""
        core = self._core
        client_id, epoch = stored.record.client_id, stored.record.epoch
        until = info.until_offset - 1
        count = 0
        for sub in stored.subscriptions:
            progress = self._backfill.passed_on(client_id, sub, until)
            while progress is not None and progress.after_offset < until:
                page = await core.database.read(
                    [sub.filter],
                    after_offset=progress.after_offset,
                    until_offset=until,
                    limit=CARRY_PAGE,
                )
                batch = core.committer.batch
                for message in page.messages:
                    options = combine([sub], message, client_id)
                    if options is None or not options.qos or not fulfils(sub, message):
                        continue
                    entry = InboxEntry(
                        0,
                        message,
                        qos=options.qos,
                        retain=options.retain,
                        identifiers=options.identifiers,
                    )
                    batch.place(entry)
                    batch.put_inbox(client_id, entry, epoch=epoch)
                    # A session that comes back reads up to the fence, so that must pass it.
                    core.pipeline.dispatch_placed(OffsetAdvance(entry))
                    count += 1
                progress = msgspec.structs.replace(progress, after_offset=page.through_offset)
                batch.put_subscription(
                    client_id, msgspec.structs.replace(sub, backfill=progress), epoch=epoch
                )
                await core.pipeline.committed()
                await core.yield_to_loop()
        return count
