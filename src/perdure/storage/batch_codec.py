"""A batch as bytes, for a log that is somewhere else: one format, versioned, with golden files.

Integers are big-endian; text is UTF-8. ``message`` and ``bundle`` are the values of ``codec`` and
``bundle``, the body of an operation is ``operation_codec``'s::

    batch       version=1 (1) | run count (4) | placed count (4) | runs | operations to the end
    run         topic length (2) | topic | length (4) | message or bundle
    operation   kind (1) | length (4) | body

A batch has no offsets of its own: they are given when it enters the log, so it is decoded there.
Messages that follow each other and are alike but for their payloads are one bundle.

Invariant: a batch that was decoded does to any state what the one that was encoded does.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from perdure.errors import FormatTooNew, StorageCorrupt
from perdure.model import InboxEntry
from perdure.storage import bundle
from perdure.storage import operations as op
from perdure.storage.batch import Batch
from perdure.storage.batch_places import GivenOffsets, Places
from perdure.storage.codec import decode_message, uint16_at, uint32_at
from perdure.storage.offsets import Offsets
from perdure.storage.operation_codec import DECODERS, ENCODERS, RETAIN_APPENDED, SPEAK, encode_name
from perdure.storage.peer_operations import Speak

if TYPE_CHECKING:
    from mypy_extensions import i64

VERSION: Final = 1

_HEAD: Final = struct.Struct(">BII")
_OPERATION: Final = struct.Struct(">BI")
HEAD_BYTES: Final = _HEAD.size
OPERATION_BYTES: Final = _OPERATION.size
_SIZE: Final = struct.Struct(">I")
_SIGN: Final = 1 << 31
"""Of the upper half of a number of eight bytes."""


def encode(batch: Batch, earlier: Sequence[Batch] = ()) -> bytes:
    """The bytes of a batch.

    Args:
        batch: to be submitted.
        earlier: those that were submitted before it and are not sequenced, oldest first.
    """
    places = Places(batch, earlier)
    parts: list[bytes] = [b""]
    runs = at = 0
    messages = batch.messages
    while at < len(messages):
        stop = bundle.run_end(messages, at, placed=False)
        value = bundle.encode_run(messages, at, stop)
        parts += (encode_name(messages[at].topic), _SIZE.pack(len(value)), value)
        at = stop
        runs += 1
    parts[0] = _HEAD.pack(VERSION, runs, len(batch.placed))
    appended = {id(message): index for index, message in enumerate(messages)}
    for operation in _one_by_one(batch.operations):
        if isinstance(operation, op.PutRetained) and id(operation.message) in appended:
            kind, body = RETAIN_APPENDED, _SIZE.pack(appended[id(operation.message)])
        else:
            kind, to_bytes = ENCODERS[type(operation)]
            body = to_bytes(operation, places)
        parts += (_OPERATION.pack(kind, len(body)), body)
    return b"".join(parts)


def _one_by_one(operations: list[op.Operation]) -> Iterator[op.Operation]:
    """Operations of which each is one row here."""
    for operation in operations:
        if isinstance(operation, op.PutInboxRun):
            for entry in operation.entries:
                yield op.PutInbox(operation.client_id, operation.epoch, entry)
        elif isinstance(operation, op.PutGroupRun):
            for entry in operation.entries:
                yield op.PutGroupEntry(operation.group_key, entry)
        elif isinstance(operation, op.DeleteGroupRun):
            for entry in operation.entries:
                yield op.DeleteGroupEntry(operation.group_key, entry)
        else:
            yield operation


def placed_at(batch: Batch) -> int:
    """The offset of the first thing that was placed in a sequenced batch, if there is any."""
    return batch.first_offset + len(batch.messages)


def decode(value: bytes, offsets: Offsets, now_us: int, earlier: Sequence[int] = ()) -> Batch:
    """The batch in some bytes, as it enters the log: it has its offsets.

    Args:
        value: what ``encode`` gave.
        offsets: of the log.
        now_us: time at which it enters.
        earlier: ``placed_at`` of the batches of the same submitter before it, newest first.

    Raises:
        StorageCorrupt: they are no batch.
        FormatTooNew: a later release wrote them.
    """
    batch = Batch()
    try:
        version, runs, placed = _HEAD.unpack_from(value)
        if version != VERSION:
            raise _wrong_version(version)
        at = _read_runs(value, runs, batch)
        count = len(batch.messages) + placed
        if count:
            batch.first_offset = offsets.take(count, now_us)
        for index, message in enumerate(batch.messages):
            message.offset = batch.first_offset + index
        # What they are is in the operations that name them.
        batch.placed += [
            InboxEntry(placed_at(batch) + index, None, qos=1) for index in range(placed)
        ]
        given = GivenOffsets(placed_at(batch), earlier)
        _read_operations(value, at, batch, given)
    except (struct.error, UnicodeDecodeError, LookupError) as error:
        raise StorageCorrupt(f"a batch does not decode: {error!r}") from error
    batch.is_sequenced = True
    return batch


def _read_runs(value: bytes, runs: int, batch: Batch) -> int:
    """Add the messages to a batch; returns where the operations begin.

    What reaches beyond the end is found at the end of a run: places only grow.
    """
    size = len(value)
    at = HEAD_BYTES
    for _ in range(runs):
        name, start, at = run_at(value, at)
        topic = name.decode()
        if at > size:
            raise StorageCorrupt("a batch is cut short")
        if value[start] == bundle.KIND:
            row = value[start:at]
            batch.extend(bundle.decode_row(topic, bundle.count_in(row), row, 0, size))
        else:
            batch.append(decode_message(topic, 0, value, start, at))
    return at


def run_at(value: bytes, at: i64) -> tuple[bytes, i64, i64]:
    """Topic (UTF-8) of the run that begins at a place, and where its row begins and ends, which may
    be beyond the bytes.

    Raises:
        LookupError: there is none.
    """
    start = at + 2
    at = start + uint16_at(value, at)
    name = value[start:at]
    start = at + 4
    return name, start, start + uint32_at(value, at)


def _read_operations(value: bytes, at: int, batch: Batch, given: GivenOffsets) -> None:
    """Add the operations to a batch that has its messages."""
    size = len(value)
    while at < size:
        kind = value[at]
        start = at + OPERATION_BYTES
        at = start + uint32_at(value, at + 1)
        if at > size:
            raise StorageCorrupt("a batch is cut short")
        if kind == SPEAK:
            # One for each publisher of a batch: the most frequent one by far.
            batch.add(speak_at(value, start, at))
        elif kind == RETAIN_APPENDED:
            batch.add(op.PutRetained(batch.messages[_SIZE.unpack_from(value, start)[0]]))
        else:
            if kind not in DECODERS:
                raise FormatTooNew(
                    f"a batch has an operation of kind {kind}, which this release does not know",
                    hint="upgrade this node",
                )
            batch.add(DECODERS[kind](value[start:at], given))


def speak_at(value: bytes, start: int, end: int) -> Speak:
    """A ``Speak`` from its body."""
    return Speak(
        value[start + 14 : end].decode(), epoch_at(value, start + 4), uint32_at(value, start)
    )


def epoch_at(value: bytes, at: i64) -> int:
    """The epoch that an owner begins with, which stands at a place."""
    high = uint32_at(value, at)
    if high >= _SIGN:
        high -= _SIGN << 1
    return high << 32 | uint32_at(value, at + 4)


def _wrong_version(version: int) -> StorageCorrupt | FormatTooNew:
    if version > VERSION:
        return FormatTooNew(
            f"a batch has version {version}; this release reads {VERSION}",
            hint="upgrade this node",
        )
    return StorageCorrupt("a batch has no version")
