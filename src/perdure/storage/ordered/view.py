"""A node's view of the shared log: the records, applied one by one to its own store.

Knows nothing of submitting. What it must remember is noted in the same write as what a record
causes, so a node that dies at any instant reads on exactly behind what it has applied::

    note                          value
    "c"                           position to read next (8) | log time (8)
    "m" name                      the member (``members.Member``)
    "p" name 0x00 slot (2)        number (8) | offset of what the record's batch has placed (8)
    "t" name 0x00 number (8)      a part of a batch that goes on

Slots are numbers of records modulo ``IN_FLIGHT_MAX``: a batch names what was placed in one that was
on its way when it was submitted, which is not further back.

Invariant: equal records in equal order leave equal stores, notes included (``digest``); nothing
here depends on the node, on time or on chance.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple, final

import msgspec

from perdure.errors import StorageCorrupt
from perdure.storage.batch import Batch, give_offsets
from perdure.storage.batch_codec import decode, placed_at
from perdure.storage.fencing import silence
from perdure.storage.notes import Note
from perdure.storage.operations import DeleteRetained
from perdure.storage.ordered.contract import LogRecord
from perdure.storage.ordered.earlier import IN_FLIGHT_MAX, Earlier
from perdure.storage.ordered.local import Local
from perdure.storage.ordered.member import Member
from perdure.storage.ordered.members import Ended, Members, Verdict
from perdure.storage.ordered.record import Expire, Record

_COME_TO: Final = b"c"
_MEMBER: Final = b"m"
_PLACED: Final = b"p"
_PART: Final = b"t"
_TWO: Final = struct.Struct(">QQ")
_SLOT: Final = struct.Struct(">H")
_NUMBER: Final = struct.Struct(">Q")


class Applied(NamedTuple):
    """What a record has caused.

    Attributes:
        record: who submitted it; its batch is not decoded here.
        verdict: whether it counted.
        batch: as it was applied, with its offsets; None = it has none, or not all of it yet.
        ended: incarnations that are no members any more.
    """

    record: Record
    verdict: Verdict
    batch: Batch | None
    ended: list[Ended]


@final
class View:
    """Applies records.

    Args:
        local: the node's store.

    Attributes:
        local: the node's store.
        position: of the record that it needs next.
        members: who is in the cluster.
    """

    def __init__(self, local: Local) -> None:
        self.local = local
        self.position = 0
        self.members = Members()
        # By slot, the number of a record and where its batch has placed things.
        self._placed: dict[str, dict[int, tuple[int, int]]] = {}
        self._parts: dict[str, dict[int, bytes]] = {}
        self.load()

    def load(self) -> None:
        """Go on from what is stored."""
        self.position = now_us = 0
        known: list[Member] = []
        self._placed, self._parts = {}, {}
        self.local.rewind_offsets()
        for key, value in self.local.notes():
            kind, rest = key[:1], key[1:]
            if kind == _COME_TO:
                self.position, now_us = _TWO.unpack(value)
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
        self.members = Members(known, now_us)

    def apply(self, entry: LogRecord, record: Record, own: Batch | None = None) -> Applied:
        """Apply the next record.

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
        for name, member in self.members.take_changed():
            key = _MEMBER + name.encode()
            notes.append((key, None if member is None else msgspec.msgpack.encode(member)))
        notes.append((_COME_TO, _TWO.pack(entry.position + 1, now_us)))
        self.local.apply(batch, notes)
        self.position = entry.position + 1
        return Applied(record, verdict, batch if whole else None, ended)

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
        # Where nothing was placed the slot is still taken: places are counted in batches.
        slot = record.number % IN_FLIGHT_MAX
        place = (record.number, placed_at(batch))
        self._placed.setdefault(record.node, {})[slot] = place
        notes.append((_placed_key(record.node, slot), _TWO.pack(*place)))
        return batch

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

    def _forget(self, node: str, notes: list[Note]) -> None:
        """An incarnation is over: nothing names what it has placed any more."""
        notes += [(_placed_key(node, slot), None) for slot in self._placed.pop(node, {})]
        notes += [(_part_key(node, number), None) for number in self._parts.pop(node, {})]


def _placed_key(node: str, slot: int) -> bytes:
    return _PLACED + node.encode() + b"\0" + _SLOT.pack(slot)


def _part_key(node: str, number: int) -> bytes:
    return _PART + node.encode() + b"\0" + _NUMBER.pack(number)
