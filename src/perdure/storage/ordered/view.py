"""A node's view of the shared log: the records, applied one by one to its own store.

Knows nothing of submitting. What it must remember is noted in the same write as what a record
causes, so a node that dies at any instant reads on exactly behind what it has applied::

    note                          value
    "c"                           position to read next (8) | log time (8)
    "i"                           what the log is called for its readers (``record.Begin``)
    "m" name                      the member (``members.Member``)
    "p" name 0x00 slot (2)        number (8) | offset of what the record's batch has placed (8)
    "t" name 0x00 number (8)      a part of a batch that goes on

Slots are numbers of records modulo ``IN_FLIGHT_MAX``: a batch names what was placed in one that was
on its way when it was submitted, which is not further back.

A write costs what some twenty messages cost, whatever is in it, so records that come together are
gathered into one, a *page*, as long as none of them looks at what one before it has changed.

Invariant: equal records in equal order leave equal stores, notes included (``digest``); nothing
here depends on the node, on time or on chance.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple, final

import msgspec

from perdure.errors import LogTruncated, StorageCorrupt
from perdure.storage.batch import Batch, give_offsets
from perdure.storage.batch_codec import decode, placed_at
from perdure.storage.fencing import silence
from perdure.storage.notes import LOG_IDENTITY, RESTORED, Note
from perdure.storage.operations import (
    DeleteAwaitingRelease,
    DeleteRetained,
    PutAwaitingRelease,
    PutCursor,
)
from perdure.storage.ordered.contract import LogRecord
from perdure.storage.ordered.earlier import IN_FLIGHT_MAX, Earlier
from perdure.storage.ordered.local import Local
from perdure.storage.ordered.member import Member
from perdure.storage.ordered.members import Ended, Members, Verdict
from perdure.storage.ordered.record import Begin, Expire, Record
from perdure.storage.peer_operations import PassMessage, Speak
from perdure.storage.received import Received, cursors_of, receive
from perdure.topic.known import KnownTopics

PAGE_MAX: Final = 1024
"""Messages and operations of a page, beyond which a write costs nothing in comparison; what more of
them hold is not in a core's cache any more."""

PAGE_BYTES_MAX: Final = 4 * 1024 * 1024
"""Bytes of the records of a page, which are in memory a few times while it is written."""

_COME_TO: Final = b"c"
_MEMBER: Final = b"m"
_PLACED: Final = b"p"
_PART: Final = b"t"
_TWO: Final = struct.Struct(">QQ")
_SLOT: Final = struct.Struct(">H")
_pack_two: Final = _TWO.pack
_pack_slot: Final = _SLOT.pack
_NUMBER: Final = struct.Struct(">Q")


class Applied(NamedTuple):
    """What a record, or a page of them, has caused.

    Attributes:
        record: who submitted it; its batch is not decoded here. The last one of a page.
        verdict: whether it counted.
        batch: as it was applied, its messages with their offsets; None = it has none, or not all of
            it yet. Of a page all of them in one.
        ended: incarnations that are no members any more.
    """

    record: Record
    verdict: Verdict
    batch: Batch | None
    ended: list[Ended]


@final
class _Page:
    """Batches that are applied together, and where the log is behind them."""

    def __init__(self) -> None:
        self.batch: Batch = Batch()
        """What was decoded, and what was received when that began."""
        self.received: Received = Received()
        self.notes: dict[bytes, bytes | None] = {}
        self.position: int = 0
        """Of its last record."""
        self.record: Record | None = None
        self.now_us = 0
        self.takes_rows: bool = True
        """Nothing was decoded so far."""
        self.size_bytes: int = 0
        """Of its records."""
        self._spoken: dict[str, int] = {}
        """The epoch for which each publisher speaks, when something was decoded."""

    @property
    def is_full(self) -> bool:
        """It is to be written."""
        received, batch = self.received, self.batch
        count = received.rows.count + len(received.operations) + len(received.cursors)
        count += len(batch.messages) + len(batch.operations)
        return count >= PAGE_MAX or self.size_bytes >= PAGE_BYTES_MAX

    def settle(self) -> None:
        """Let the batch have what was received: the cursors behind the operations, for nobody
        looks at one in between."""
        received, batch = self.received, self.batch
        if received.rows.count:
            batch.rows = received.rows
        batch.operations += received.operations
        batch.operations += cursors_of(received.cursors)
        self.received = Received()

    def decode(self) -> None:
        """Make messages of the rows: what follows is added as such."""
        if not self.takes_rows:
            return
        self.settle()
        self.takes_rows = False
        self.batch.messages = self.batch.recorded()
        self.batch.rows = None
        for each in self.batch.operations:
            if isinstance(each, Speak):
                self._spoken[each.client_id] = each.epoch

    def add(self, batch: Batch) -> None:
        """Put a batch, of which it is decided what counts, behind those that are there.

        Nobody's owner changes in a page, so of what publishers say for one each counts once.
        """
        base = len(self.batch.messages)
        spoken, operations = self._spoken, self.batch.operations
        for each in batch.operations:
            if isinstance(each, Speak):
                if spoken.get(each.client_id) == each.epoch:
                    continue
                spoken[each.client_id] = each.epoch
            elif isinstance(each, PassMessage):
                each.after += base
            operations.append(each)
        self.batch.extend(batch.messages)


@final
class View:
    """Applies records.

    Args:
        local: the node's store.
        database: identifies it; empty = it has nothing that does.

    Attributes:
        local: the node's store.
        position: of the record that it needs next.
        identity: of the log; empty = nobody has said it.
        base: the last offset of the store before anything of the log was applied; 0 = it was empty,
            or that was long ago.
        members: who is in the cluster.
    """

    def __init__(self, local: Local, database: str = "") -> None:
        self.local = local
        self.database: str = database
        self.position = 0
        self.identity: str = ""
        self.base: int = 0
        self.members = Members()
        # By slot, the number of a record and where its batch has placed things.
        self._placed: dict[str, dict[int, tuple[int, int]]] = {}
        self._parts: dict[str, dict[int, bytes]] = {}
        self._page: _Page | None = None
        self._topics: KnownTopics = KnownTopics()
        self.load()

    def load(self) -> None:
        """Go on from what is stored."""
        self.position = now_us = 0
        self.identity = ""
        self._page = None
        known: list[Member] = []
        self._placed, self._parts = {}, {}
        self.local.rewind_offsets()
        # A message is not all that there may be.
        has_more = self.local.has_sessions or self.local.retained_count > 0
        self.base = self.local.last_offset or int(has_more)
        is_new, restored = True, 0
        for key, value in self.local.notes():
            kind, rest = key[:1], key[1:]
            if kind == _COME_TO:
                self.position, now_us = _TWO.unpack(value)
                self.base, is_new = 0, False
            elif kind == LOG_IDENTITY:
                self.identity = value.decode()
            elif kind == RESTORED:
                restored = _NUMBER.unpack(value)[0]
            elif kind == _MEMBER:
                known.append(msgspec.msgpack.decode(value, type=Member))
            elif kind == _PLACED:
                number, offset = _TWO.unpack(value)
                of_node = self._placed.setdefault(rest[: -1 - _SLOT.size].decode(), {})
                of_node[number % IN_FLIGHT_MAX] = (number, offset)
            elif kind == _PART:
                (number,) = _NUMBER.unpack(rest[-_NUMBER.size :])
                self._parts.setdefault(rest[: -1 - _NUMBER.size].decode(), {})[number] = value
            else:
                raise StorageCorrupt(f"a note {key!r} of unknown kind")
        if is_new:
            # Other sessions than those of the directory that was backed up there.
            self.base += restored
        if is_new and self.identity:
            # It was of another log, whose readers this one is to have.
            self.database, self.identity = self.identity, ""
        self.members = Members(known, now_us)

    def has_read_on(self) -> None:
        """This node has come to the log's end: what it was restored from counts no more."""
        if any(key == RESTORED for key, _ in self.local.notes()):
            self.local.apply(Batch(), [(RESTORED, None)])

    def gather(self, entry: LogRecord, record: Record, done: list[Applied]) -> None:
        """Take the next record: it is applied, or waits for those behind it, or for ``flush``.

        Args:
            entry: what the log gave.
            record: what its bytes are; no object of this process belongs to it.
            done: gets what was applied by that, in order, also if something was not.

        Raises:
            StorageError: as ``apply``.
        """
        if not self._is_plain_next(record):
            done += self.flush()
            done.append(self.apply(entry, record))
            return
        now_us = self.members.advance(entry.time_us)
        page = self._opened()
        if record.batch and not self._receive(record, page, now_us):
            last_offset = self.local.offsets.last
            notes: list[Note] = []
            batch = self._batch(record, None, now_us, notes)
            assert batch is not None
            if not _looks_at_nothing(batch):
                done += self._flush_before(last_offset)
                self.members.hear(record.node, record.number)
                silence(batch, self.local)
                self._write(entry, now_us, batch, notes)
                done.append(Applied(record, Verdict.ADMITTED, batch, []))
                return
            page.notes.update(notes)
            silence(batch, self.local)
            page.decode()
            page.add(batch)
        # Not before: what is written in front of a record does not know of it.
        self.members.hear(record.node, record.number)
        page.position, page.record, page.now_us = entry.position, record, now_us
        page.size_bytes += len(record.batch)
        if page.is_full:
            done += self.flush()

    def _opened(self) -> _Page:
        """The page that takes what comes next."""
        if self._page is None:
            self._page = _Page()
        return self._page

    def _receive(self, record: Record, page: _Page, now_us: int) -> bool:
        """Put what a record brings into a page, if none of it has to be decoded: its publishers
        speak for the owners that are there, and a page changes none."""
        if not page.takes_rows or self._parts.get(record.node):
            return False
        local = self.local
        offsets = local.offsets
        first = offsets.next_at(now_us)
        count = receive(record.batch, page.received, first, self._topics, local.owner_epoch)
        if count < 0:
            return False
        if count:
            offsets.take(count, now_us)
        key, value = self._place(record, first + count if count else 0)
        page.notes[key] = value
        return True

    def flush(self) -> list[Applied]:
        """Apply what waits.

        Returns:
            What was applied: a page, or nothing.

        Raises:
            StorageError: as ``apply``.
        """
        return self._flush_before(self.local.offsets.last)

    def _flush_before(self, last_offset: int) -> list[Applied]:
        """``flush`` where offsets behind the last one of the page were given out since."""
        page, self._page = self._page, None
        record = None if page is None else page.record
        if page is None or record is None:
            return []
        page.settle()
        notes = list(page.notes.items())
        self._note_members(notes)
        notes.append((_COME_TO, _pack_two(page.position + 1, page.now_us)))
        offsets = self.local.offsets
        given = offsets.last
        offsets.last = last_offset
        self.local.apply(page.batch, notes)
        offsets.last = given
        self.position = page.position + 1
        batch = None if page.batch.is_empty() else page.batch
        return [Applied(record, Verdict.ADMITTED, batch, [])]

    def _is_plain_next(self, record: Record) -> bool:
        """Whether a record is a batch, or nothing but a sign of life, and the next of a member."""
        return (
            not record.acts
            and not record.more
            and self.members.is_next(record.node, record.incarnation, record.number)
            and (len(record.batch) > 0 or not self._parts.get(record.node))
        )

    def apply(self, entry: LogRecord, record: Record, own: Batch | None = None) -> Applied:
        """Apply the next record by itself; nothing waits (``flush``).

        Args:
            entry: what the log gave.
            record: what its bytes are.
            own: the batch that its bytes are of, if this process has submitted it and still has
                it: it is applied instead of a copy.

        Raises:
            StorageError: nothing was applied, and the store may be behind: ``load`` must follow.
        """
        now_us = self.members.advance(entry.time_us)
        verdict, ended = self.members.admit(record)
        notes: list[Note] = []
        batch = Batch()
        whole = False
        if verdict is Verdict.ADMITTED:
            ended += self.members.act(record)
        for node in dict.fromkeys(each.node for each in ended):
            self._forget(node, notes)
        if verdict is Verdict.ADMITTED:
            if record.more:
                self._keep_part(record, notes)
            else:
                found = self._batch(record, own, now_us, notes)
                whole = found is not None
                batch = found or batch
            silence(batch, self.local)
            self._expire(record, batch)
            self._begin(record, notes)
        self._write(entry, now_us, batch, notes)
        return Applied(record, verdict, batch if whole else None, ended)

    def _write(self, entry: LogRecord, now_us: int, batch: Batch, notes: list[Note]) -> None:
        """Apply the batch of one record, and what is to be remembered with it."""
        self._note_members(notes)
        notes.append((_COME_TO, _pack_two(entry.position + 1, now_us)))
        self.local.apply(batch, notes)
        self.position = entry.position + 1

    def _note_members(self, notes: list[Note]) -> None:
        for name, member in self.members.take_changed():
            notes.append(_member_note(name, member))

    def _batch(
        self, record: Record, own: Batch | None, now_us: int, notes: list[Note]
    ) -> Batch | None:
        """The batch that a record completes, with its offsets; None = it has none."""
        parts = self._parts.pop(record.node, {})
        notes += [(_part_key(record.node, number), None) for number in parts]
        value = b"".join([*parts.values(), record.batch])
        if not value:
            return None
        offsets = self.local.offsets
        if own is not None:
            batch = own
            give_offsets(batch, offsets, now_us)
        else:
            placed = self._placed.get(record.node, {})
            batch = decode(value, offsets, now_us, Earlier(placed, record.number - len(parts)))
        notes.append(self._place(record, placed_at(batch)))
        return batch

    def _place(self, record: Record, offset: int) -> Note:
        """A batch has placed what it places from an offset on; returns the note of it."""
        # Where nothing was placed the slot is still taken: places are counted in batches.
        slot = record.number % IN_FLIGHT_MAX
        self._placed.setdefault(record.node, {})[slot] = (record.number, offset)
        return _placed_key(record.node, slot), _pack_two(record.number, offset)

    def _keep_part(self, record: Record, notes: list[Note]) -> None:
        self._parts.setdefault(record.node, {})[record.number] = record.batch
        notes.append((_part_key(record.node, record.number), record.batch))

    def _expire(self, record: Record, batch: Batch) -> None:
        # In front: what the batch retains is newer.
        batch.operations[:0] = [
            DeleteRetained(act.topic)
            for act in record.acts
            if isinstance(act, Expire) and self.local.retained_offset_of(act.topic) == act.offset
        ]

    def _begin(self, record: Record, notes: list[Note]) -> None:
        """Take over what the log is called, if this store has what it goes on from.

        Raises:
            LogTruncated: it has not.
        """
        for act in record.acts:
            if isinstance(act, Begin) and not self.identity:
                if self.database and (act.base or self.base):
                    self._check_base(act)
                self.identity = act.database
                notes.append((LOG_IDENTITY, act.database.encode()))

    def _check_base(self, begin: Begin) -> None:
        if not begin.base:
            raise LogTruncated(
                "this directory has state of its own, and the cluster began without it",
                hint="the first node of a cluster is the one that brings its state: start this "
                "node on an empty directory, or the cluster under another cluster.name",
            )
        if (begin.database, begin.base) != (self.database, self.base):
            raise LogTruncated(
                "the cluster began with the state of another directory, which this one lacks",
                hint="fetch it from a running node: perdure cluster join, into an empty directory",
            )

    def _forget(self, node: str, notes: list[Note]) -> None:
        """An incarnation is over: nothing names what it has placed any more."""
        notes += [(_placed_key(node, slot), None) for slot in self._placed.pop(node, {})]
        notes += [(_part_key(node, number), None) for number in self._parts.pop(node, {})]


def _looks_at_nothing(batch: Batch) -> bool:
    """Whether what a batch does depends on no other but by the owners of sessions, which it leaves
    as they are."""
    if batch.placed:
        return False
    for each in batch.operations:
        # A tuple: the compiled form makes the union of ``|`` anew each time.
        if not isinstance(
            each, (Speak, PutCursor, PassMessage, PutAwaitingRelease, DeleteAwaitingRelease)
        ):
            return False
    return True


def _member_note(name: str, member: Member | None) -> Note:
    return _MEMBER + name.encode(), None if member is None else msgspec.msgpack.encode(member)


def _placed_key(node: str, slot: int) -> bytes:
    return _PLACED + node.encode() + b"\0" + _pack_slot(slot)


def _part_key(node: str, number: int) -> bytes:
    return _PART + node.encode() + b"\0" + _NUMBER.pack(number)
