"""A forwarder's own durable session: its cursor, and what came in and is not released.

It is a session as any other in the store, without subscriptions: what it is owed follows from the
forwarder's settings. Its writes carry an epoch, so that of two brokers that both run a forwarder
the later one fences the earlier (``Fenced``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import msgspec

from perdure.broker.commit.waiters import LEVEL_OS, LEVELS, Signal, Waiter
from perdure.errors import Fenced, StorageUnavailable
from perdure.limits import FORWARDER_PREFIX, SESSION_EXPIRY_NEVER_S
from perdure.model import Cursor, Message, SessionRecord
from perdure.storage.batch import Batch

if TYPE_CHECKING:
    from perdure.broker.core import BrokerCore
    from perdure.broker.publish.path import PublishPath
    from perdure.storage.peers import Peers

PROTOCOL: Final = 5


@final
class DurableSession:
    """The stored state of one forwarder.

    Args:
        core: of the broker.
        publish_path: takes what comes in.
        name: of the forwarder.

    Attributes:
        client_id: of the session.
        cursor: as it is kept, or will be with the next write.
        awaiting_release: identifiers of QoS 2 messages that came in and are not released.
        maybe_sent_offset: messages up to here may have been sent although the cursor does not say
            so.
        node: of the cluster, that owns it; empty = none does, or there is no cluster.
    """

    def __init__(self, core: BrokerCore, publish_path: PublishPath, name: str) -> None:
        self._core = core
        self._publish_path = publish_path
        self.client_id: str = f"{FORWARDER_PREFIX}{name}"
        self.cursor: Cursor = Cursor()
        self.awaiting_release: set[int] = set()
        self.maybe_sent_offset: int = 0
        self.node: str = ""
        self._record: SessionRecord | None = None
        self._kept: Cursor = self.cursor
        self._level = max(LEVEL_OS, LEVELS[core.storage_config.durability])
        self._last: Batch | None = None

    @property
    def is_open(self) -> bool:
        """Whether this process owns it."""
        return self._record is not None

    @property
    def is_moved(self) -> bool:
        """Whether the cursor has moved since it was written."""
        return self.cursor is not self._kept

    def safe_offset(self) -> int:
        """Everything up to here is durable at the broker's level, and may be forwarded."""
        if self._level > LEVEL_OS:
            return self._core.committer.synced_offset()
        return self._core.database.last_offset

    async def open(self, *, start_offset: int) -> None:
        """Own the session from now on.

        Args:
            start_offset: cursor of a new one.

        Raises:
            StorageError: it cannot be read or written now, or another node has not let go of it.
        """
        core, peers = self._core, self._core.peers
        self._check_writable()
        core.pipeline.now_us = core.clock.now_us()
        core.pipeline.write()
        await core.committer.sequenced()
        stored = await core.database.open_session(self.client_id)
        now_us = core.pipeline.wall_us()
        old = stored.record if stored is not None else None
        epoch = (old.epoch if old is not None else 0) + 1
        if peers is not None:
            self._check_let_go(peers, old)
            # Higher than any before, also of one that was removed meanwhile.
            epoch = max(epoch, peers.position)
        record = SessionRecord(
            self.client_id,
            epoch=epoch,
            created_at_us=old.created_at_us if old is not None else now_us,
            expiry_s=SESSION_EXPIRY_NEVER_S,
            connected=True,
            changed_at_us=now_us,
            protocol=PROTOCOL,
            cut_offset=old.cut_offset if old is not None else 0,
            node=peers.node if peers is not None else "",
            incarnation=peers.incarnation if peers is not None else 0,
        )
        batch = core.committer.batch
        batch.claim_session(record, seen=old.epoch if old is not None else 0)
        if stored is None:
            self.cursor = Cursor(start_offset)
            self.awaiting_release = set()
            batch.put_cursor(self.client_id, self.cursor, epoch=record.epoch)
            core.metrics.sessions_offline += 1
        else:
            self.cursor = stored.cursor
            self.awaiting_release = set(stored.awaiting_release)
        await self._committed(batch)
        self._record = record
        self.node = record.node
        self._kept = self.cursor
        self.maybe_sent_offset = record.cut_offset

    async def hold(self) -> None:
        """Make sure that it is still owned here, before something goes to a target: where there
        are other nodes one of them may have it.

        Raises:
            StorageError: it is not, or nobody knows.
        """
        if self._core.peers is not None:
            await self.keep(self.cursor)

    def _check_let_go(self, peers: Peers, old: SessionRecord | None) -> None:
        if (
            old is not None
            and old.connected
            and old.node != peers.node
            and peers.is_member(old.node, old.incarnation)
        ):
            raise StorageUnavailable(f"node {old.node} has not let go of it yet")

    async def look(self) -> None:
        """Read the cursor without owning the session.

        Raises:
            StorageError: it cannot be read now.
        """
        stored = await self._core.database.open_session(self.client_id)
        if stored is not None and not self.is_open:
            self.cursor = self._kept = stored.cursor
            self.node = stored.record.node if stored.record.connected else ""

    def moved(self, cursor: Cursor) -> None:
        """The cursor has moved; ``save`` or ``keep`` writes it."""
        self.cursor = cursor

    def save(self) -> None:
        """Write the cursor with the next batch, without waiting for it.

        Raises:
            Fenced: another owner has the session.
        """
        last, core = self._last, self._core
        if last is not None and last.is_sequenced:
            self._check_owned(last)
        if self.is_moved and self._record is not None and core.committer.writable:
            batch = core.committer.batch
            batch.put_cursor(self.client_id, self.cursor, epoch=self._record.epoch)
            self._kept = self.cursor
            self._last = batch
            core.pipeline.schedule()

    async def keep(self, cursor: Cursor) -> None:
        """Write a cursor and wait until it is durable.

        Raises:
            StorageError: it is not.
        """
        self._check_writable()
        self.cursor = cursor
        batch = self._core.committer.batch
        batch.put_cursor(self.client_id, cursor, epoch=self._epoch())
        self._kept = cursor
        await self._committed(batch)

    # -- what comes in ---------------------------------------------------------------------

    def take(self, message: Message, packet_id: int = 0) -> None:
        """A message has come: it enters the log with the next batch.

        Args:
            message: by the broker itself.
            packet_id: of one of QoS 2, remembered until it is released; 0 = none.
        """
        core = self._core
        if packet_id:
            self.awaiting_release.add(packet_id)
            core.committer.batch.put_awaiting_release(
                self.client_id, packet_id, epoch=self._epoch()
            )
        self._publish_path.take(message)

    def release(self, packet_id: int) -> bool:
        """A message of QoS 2 was released; False if it is not known."""
        if packet_id not in self.awaiting_release:
            return False
        self.awaiting_release.discard(packet_id)
        self._core.committer.batch.delete_awaiting_release(
            self.client_id, packet_id, epoch=self._epoch()
        )
        return True

    def forget_awaiting(self) -> None:
        """The peer has forgotten its session: its identifiers are new ones."""
        for packet_id in list(self.awaiting_release):
            self.release(packet_id)

    def wait(self, waiter: Waiter, count: int = 1) -> None:
        """Tell a waiter when what was taken or released so far is durable."""
        core = self._core
        core.committer.wait(waiter, self._level, count)
        core.pipeline.schedule()

    # -- the end ---------------------------------------------------------------------------

    async def close(self) -> None:
        """Let go of it, with its cursor where it is; harmless when it is not open."""
        record = self._record
        if record is None:
            return
        self._record = None
        self.node = ""
        core = self._core
        if not core.committer.writable:
            return
        batch = core.committer.batch
        batch.put_cursor(self.client_id, self.cursor, epoch=record.epoch)
        batch.put_session(msgspec.structs.replace(record, connected=False, cut_offset=0))
        self._kept = self.cursor
        await self._committed(batch)

    async def discard(self) -> None:
        """Delete it for good, from the store too.

        Raises:
            StorageError: it is still there.
        """
        core = self._core
        self._check_writable()
        if await core.database.open_session(self.client_id) is None:
            return
        self._record = None
        batch = core.committer.batch
        batch.discard_session(self.client_id)
        await self._committed(batch)
        # Another node may have made it, and this one not counted it yet.
        core.metrics.sessions_offline = max(0, core.metrics.sessions_offline - 1)

    async def _committed(self, batch: Batch) -> None:
        core = self._core
        core.pipeline.now_us = core.clock.now_us()
        signal = Signal(core.scheduler.gate())
        self.wait(signal)
        await signal.gate
        if signal.error is not None:
            raise signal.error
        self._check_owned(batch)

    def _check_owned(self, batch: Batch) -> None:
        if any(operation.client_id == self.client_id for operation in batch.refused):
            self._record = None
            raise Fenced(f"{self.client_id} has another owner")

    def _check_writable(self) -> None:
        failure = self._core.committer.failure
        if failure is not None or not self._core.committer.writable:
            raise StorageUnavailable(failure.message if failure else "the store takes no writes")

    def _epoch(self) -> int:
        record = self._record
        if record is None:
            raise Fenced(f"{self.client_id} is not open")
        return record.epoch
