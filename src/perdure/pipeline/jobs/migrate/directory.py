"""A Perdure data directory as a target: sessions that resume with another broker's identifiers.

For each client one session: a record, a cursor, an inbox entry for each message, with the serial
number from which its packet identifier follows, and a tombstone where new messages begin. PUBREL
is a released serial number of the cursor. Shared queues become groups with returned messages.

One process writes; the broker is stopped. Invariant: a session is complete when its record says
when it changed; one without was being written when a run was killed, and is written again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, final

import msgspec

from perdure.errors import Fenced
from perdure.limits import SESSION_EXPIRY_NEVER_S
from perdure.model import Cursor, GroupRecord, InboxEntry, Message, SessionRecord, Subscription
from perdure.pipeline.tbmq.keys import parse_shared
from perdure.pipeline.tbmq.pending import Losses, PendingEntry, PendingPage, QueueSum, Summing
from perdure.session.expiry import expires_at_us
from perdure.session.seqno import PACKET_IDS, packet_id_of
from perdure.storage.batch import Batch
from perdure.storage.contract import Database
from perdure.storage.offsets import Offsets

EPOCH: Final = 1
BATCH_ENTRIES: Final = 2_000
BATCH_BYTES: Final = 4 * 1024 * 1024
_READ_PAGE: Final = 256
_ALREADY: Final = "there was a session that is not of this migration"


class Sessions(msgspec.Struct, frozen=True):
    """What the sessions are to be like.

    Attributes:
        begun_at_us: of the migration; its sessions are known by it.
        expiry_s: Session Expiry Interval until the client comes back.
        subscriptions: by client id.
        shared: whether ``ss_<share>_<filter>`` is a shared queue.
    """

    begun_at_us: int
    expiry_s: int = SESSION_EXPIRY_NEVER_S
    subscriptions: Mapping[str, Sequence[Subscription]] = {}
    shared: bool = True


def serial_after(serial: int, packet_id: int) -> int:
    """The next serial number, after one, that has a packet identifier."""
    return serial + 1 + (packet_id - 1 - serial) % PACKET_IDS


@final
class _Open:
    """The session that is being written."""

    __slots__ = ("cursor", "is_skipped", "released", "serial")

    def __init__(self, cursor: Cursor, *, is_skipped: bool = False) -> None:
        self.cursor = cursor
        self.serial = cursor.serial
        self.released: list[int] = []
        self.is_skipped = is_skipped


@final
class DatabaseTarget:
    """The durable state of a broker that is not running.

    Args:
        database: opened for writing.
        sessions: what they are to be like.
    """

    def __init__(self, database: Database, sessions: Sessions) -> None:
        self._database = database
        self._sessions = sessions
        self._shares = {
            (sub.group, sub.filter)
            for subs in sessions.subscriptions.values()
            for sub in subs
            if sub.group
        }
        # What is taken over stands before all that this store will give an offset, and its order
        # is known here: so are its offsets.
        self._offsets = Offsets(database.last_offset)
        self._batch = Batch()
        self._batch_entries = self._batch_bytes = 0
        self._open = _Open(Cursor())
        self._refused: set[str] = set()
        self._groups: set[str] = set()

    async def begin(self) -> None:
        """Learn which groups there are: where one stands is not touched."""
        self._groups = {record.key for record in await self._database.groups()}

    # -- what it takes ---------------------------------------------------------------------

    def takes(self, page: PendingPage) -> PendingPage:
        """See ``Target.takes``: who is owed a PUBREL of a shared queue is written nowhere."""
        if self._share_of(page.client_id) is None:
            return page
        kept = [entry for entry in page.entries if not entry.released]
        losses = Losses(orphaned=len(page.entries) - len(kept))
        losses.add(page.losses)
        return msgspec.structs.replace(page, entries=kept, losses=losses)

    def _share_of(self, client_id: str) -> tuple[str, str] | None:
        return parse_shared(client_id, self._shares) if self._sessions.shared else None

    # -- writing ---------------------------------------------------------------------------

    async def put(self, page: PendingPage) -> None:
        """See ``Target.put``."""
        share = self._share_of(page.client_id)
        if share is not None:
            await self._put_shared(*share, page)
        else:
            await self._put_client(page)
        self._batch_entries += len(page.entries) + 1
        self._batch_bytes += sum(len(entry.payload) for entry in page.entries)
        if self._batch_entries >= BATCH_ENTRIES or self._batch_bytes >= BATCH_BYTES:
            self._write()

    async def flush(self) -> None:
        """See ``Target.flush``."""
        self._write()
        self._database.sync()

    def _write(self) -> None:
        # A batch is let go only when its write has returned: one that failed is not forgotten
        # but ends the run, and the ledger does not know its range.
        mark = InboxEntry(0, None, qos=1)
        self._batch.place(mark)
        self._database.submit(self._batch, self._offsets.last + 1)
        if self._batch.refused:
            raise Fenced("a session was changed while it was taken over")
        self._offsets.last = mark.offset
        self._batch = Batch()
        self._batch_entries = self._batch_bytes = 0

    async def _put_client(self, page: PendingPage) -> None:
        client_id = page.client_id
        if page.is_first:
            self._open = await self._begin(page)
        session = self._open
        if session.is_skipped:
            return
        batch = self._batch
        if page.is_first and not page.is_last:
            batch.put_session(self._record(client_id, changed_at_us=0))
        last_offset = session.cursor.offset
        entries = [self._entry(session, entry) for entry in page.entries]
        if page.is_last:
            last_serial = session.serial
            if page.last_packet_id and packet_id_of(last_serial or 1) != page.last_packet_id:
                last_serial = serial_after(last_serial, page.last_packet_id)
                entries.append(InboxEntry(self._offset(), None, qos=1, serial=last_serial))
            last_offset = self._offset()
            batch.put_session(
                self._record(
                    client_id, changed_at_us=self._sessions.begun_at_us, cut_offset=last_offset
                )
            )
        for entry in entries:
            batch.put_inbox(client_id, entry, epoch=EPOCH)
        if not page.is_last:
            return
        begun = session.cursor
        released = tuple(session.released)
        cursor = Cursor(begun.offset, begun.serial, begun.settled, released, begun.sent)
        batch.put_cursor(client_id, cursor, epoch=EPOCH)
        for sub in self._sessions.subscriptions.get(client_id, ()):
            self._subscribe(client_id, sub, last_offset)

    async def _begin(self, page: PendingPage) -> _Open:
        """Whether a session is to be written, and where its serial numbers begin."""
        first = page.entries[0].packet_id if page.entries else page.last_packet_id + 1
        cursor = Cursor(self._offset(), first - 1, (), (), first - 1)
        stored = await self._database.open_session(page.client_id)
        if stored is None:
            return _Open(cursor)
        record = stored.record
        if record.created_at_us != self._sessions.begun_at_us or record.epoch != EPOCH:
            self._refused.add(page.client_id)
            return _Open(cursor, is_skipped=True)
        if record.changed_at_us:
            return _Open(cursor, is_skipped=True)
        self._batch.discard_session(page.client_id)
        return _Open(cursor)

    def _entry(self, session: _Open, entry: PendingEntry) -> InboxEntry:
        session.serial = serial_after(session.serial, entry.packet_id)
        if entry.released:
            session.released.append(session.serial)
        return InboxEntry(
            self._offset(),
            entry.message(),
            qos=entry.qos,
            retain=entry.retain,
            identifiers=entry.identifiers,
            serial=session.serial,
            # All of them may have been sent, and what was sent is not looked at for its expiry.
            forget_at_us=_first_end(entry),
        )

    def _record(self, client_id: str, *, changed_at_us: int, cut_offset: int = 0) -> SessionRecord:
        begun_at_us, expiry_s = self._sessions.begun_at_us, self._sessions.expiry_s
        return SessionRecord(
            client_id,
            EPOCH,
            begun_at_us,
            expiry_s,
            connected=False,
            changed_at_us=changed_at_us,
            expires_at_us=expires_at_us(begun_at_us, expiry_s),
            # The other broker may have sent any of them: DUP says that it might have.
            cut_offset=cut_offset,
        )

    def _subscribe(self, client_id: str, sub: Subscription, offset: int) -> None:
        since = msgspec.structs.replace(sub, since_offset=offset)
        self._batch.put_subscription(client_id, since, epoch=EPOCH)
        if sub.group:
            self._put_group(sub.group_key, sub.group, sub.filter, offset)
            self._batch.put_group_member(sub.group_key, client_id)

    def _put_group(self, key: str, group: str, topic_filter: str, offset: int) -> None:
        if key not in self._groups:
            self._groups.add(key)
            record = GroupRecord(group, topic_filter, offset, self._sessions.begun_at_us)
            self._batch.put_group(record)

    async def _put_shared(self, group: str, topic_filter: str, page: PendingPage) -> None:
        key = f"{group}/{topic_filter}"
        if page.is_first:
            # What a run before has put is replaced: its offsets are not the ones of this run.
            self._write()
            for entry in await self._group_entries(key):
                self._batch.delete_group_entry(key, entry)
            self._put_group(key, group, topic_filter, self._offset())
        for owed in page.entries:
            offset = self._offset()
            message = owed.message(offset)
            self._batch.put_group_entry(
                key,
                InboxEntry(
                    offset,
                    message,
                    qos=owed.qos,
                    retain=owed.retain,
                    # A member is given its own subscription's, but what was there is kept.
                    identifiers=owed.identifiers,
                    # Groups count no serial numbers: it only tells the identifier it once had.
                    serial=owed.packet_id,
                    forget_at_us=owed.forget_at_us,
                ),
            )

    def _offset(self) -> int:
        return self._offsets.take(1, self._sessions.begun_at_us)

    async def put_subscribers(self) -> int:
        """Sessions for clients with subscriptions and no queue; returns how many were made."""
        count = 0
        for client_id in self._sessions.subscriptions:
            if await self._database.open_session(client_id) is None:
                await self.put(PendingPage(client_id, 0, []))
                count += 1
        await self.flush()
        return count

    # -- reading back ----------------------------------------------------------------------

    async def sum_of(self, client_id: str) -> QueueSum | None:
        """See ``Target.sum_of``."""
        share = self._share_of(client_id)
        summing = Summing()
        if share is not None:
            for entry in await self._group_entries("/".join(share)):
                assert entry.message is not None
                summing.add(_owed(entry, entry.message, entry.serial))
            return summing.result()
        stored = await self._database.open_session(client_id)
        if stored is None:
            return None
        serial, after = stored.cursor.serial, stored.cursor.offset
        released = set(stored.cursor.released)
        while entries := await self._database.read_inbox(
            client_id, after_offset=after, until_offset=2**62, limit=_READ_PAGE
        ):
            for entry in entries:
                serial = max(serial + 1, entry.serial)
                if entry.message is not None:
                    owed = _owed(entry, entry.message, packet_id_of(serial))
                    summing.add(msgspec.structs.replace(owed, released=serial in released))
            after = entries[-1].offset
        return summing.result()

    def refusal(self, client_id: str) -> str:
        """See ``Target.refusal``."""
        return _ALREADY if client_id in self._refused else ""

    async def _group_entries(self, key: str) -> list[InboxEntry]:
        found: list[InboxEntry] = []
        after = 0
        while entries := await self._database.read_group_entries(
            key, limit=_READ_PAGE, after_offset=after
        ):
            found += entries
            after = entries[-1].offset
        return found

    async def close(self) -> None:
        """See ``Target.close``."""
        self._database.close()


def _first_end(entry: PendingEntry) -> int:
    ends = [end for end in (entry.forget_at_us, entry.expires_at_us) if end]
    return min(ends, default=0)


def _owed(entry: InboxEntry, message: Message, packet_id: int) -> PendingEntry:
    return PendingEntry(
        entry.offset,
        packet_id,
        False,
        message.topic,
        message.payload,
        entry.qos,
        entry.retain,
        message.properties,
        entry.identifiers,
        message.published_at_us,
        message.expires_at_us,
        entry.forget_at_us,
        message.publisher,
    )
