"""Batches of other nodes whose messages are recorded as they came.

A row of the log has the bytes that a message or a bundle has in a batch. So where nothing in a
batch looks at what others have changed, its rows are cut out of it and no message is made of them.
What does more than that, or does not look as it should, is decoded (``batch_codec``), which finds
what is wrong with it. The format is drawn there.

Invariant: what is received of a batch does to any state what the batch does.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

from perdure.errors import StorageError
from perdure.storage import bundle
from perdure.storage.batch_codec import (
    HEAD_BYTES,
    OPERATION_BYTES,
    VERSION,
    epoch_at,
    run_at,
    speak_at,
)
from perdure.storage.batch_places import GivenOffsets
from perdure.storage.codec import decode_cursor, is_cursor, uint16_at, uint32_at
from perdure.storage.operation_codec import (
    DECODERS,
    DELETE_AWAITING,
    PUT_AWAITING,
    PUT_CURSOR,
    SPEAK,
)
from perdure.storage.operations import Operation, PutCursor
from perdure.storage.rows import Rows
from perdure.topic.known import KnownTopics

if TYPE_CHECKING:
    from mypy_extensions import i64

_OWNER_AT: Final = 4
"""Where the owner stands in the body of a ``Speak``."""
_NAME_AT: Final = 14
_OWNER_BYTES: Final = 10
"""Of an owner, before the name."""
_NOWHERE: Final = GivenOffsets(0, ())


@final
class Received:
    """What some batches hold, in their order.

    Attributes:
        rows: the messages.
        operations: in order, but for those that ``spoken`` has, and for cursors.
        cursors: by the owner's bytes, the bytes of what follows it: each the last one.
        spoken: bodies of what publishers say, without its place, each once.
    """

    __slots__ = ("cursors", "operations", "rows", "spoken")

    def __init__(self) -> None:
        self.rows: Rows = Rows(0)
        self.operations: list[Operation] = []
        self.cursors: dict[bytes, bytes] = {}
        self.spoken: set[bytes] = set()


@final
class _Found:
    """What the operations of one batch add to ``Received``, once all of them are read."""

    __slots__ = ("cursors", "operations", "spoken")

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.cursors: list[bytes] = []
        """Owner, cursor, owner, ..."""
        self.spoken: list[bytes] = []

    def add_to(self, received: Received) -> None:
        received.operations += self.operations
        for said in self.spoken:
            received.spoken.add(said)
        cursors = self.cursors
        for at in range(0, len(cursors), 2):
            received.cursors[cursors[at]] = cursors[at + 1]


def receive(
    value: bytes,
    received: Received,
    first: int,
    known: KnownTopics,
    owner_epoch: Callable[[str], int | None],
) -> int:
    """Put what is in the bytes of a batch behind what was received before it.

    Args:
        value: what ``batch_codec.encode`` gave.
        received: gets it.
        first: the offset that its first message gets; above those that are there.
        known: topics that came before.
        owner_epoch: the epoch of a session's owner; None = there is no such session.

    Returns:
        How many messages it has; -1 = it has to be decoded, and nothing was received of it.
    """
    if len(value) < HEAD_BYTES or value[0] != VERSION or uint32_at(value, 5):
        return -1  # or it places something
    rows = received.rows
    row_count, count, payload_bytes = len(rows.values), rows.count, rows.payload_bytes
    found = _Found()
    try:
        at = _read_rows(value, rows, first, known)
        if at and _read_operations(value, at, received, found, owner_epoch):
            if not row_count:
                rows.first = first
            found.add_to(received)
            return rows.count - count
    except (struct.error, UnicodeDecodeError, LookupError, StorageError):
        pass
    rows.cut(row_count, count, payload_bytes)
    return -1


def cursors_of(found: dict[bytes, bytes]) -> list[Operation]:
    """The operations that ``Received.cursors`` stand for."""
    operations: list[Operation] = []
    for owner, cursor in found.items():
        client_id = owner[_OWNER_BYTES:].decode()
        operations.append(PutCursor(client_id, epoch_at(owner, 0), decode_cursor(cursor)))
    return operations


def _read_rows(value: bytes, rows: Rows, first: int, known: KnownTopics) -> i64:
    """Add the rows; returns where the operations begin, 0 = something is wrong."""
    size: i64 = len(value)
    at: i64 = HEAD_BYTES
    payload_bytes: i64 = 0
    topics, values, offsets = rows.topics, rows.values, rows.offsets
    last = first - 1
    for _ in range(uint32_at(value, 1)):
        name, start, at = run_at(value, at)
        if at > size:
            return 0
        row = value[start:at]
        messages, row_bytes = bundle.extent(row)
        if not messages:
            return 0
        topics.append(known.topic(name))
        values.append(row)
        last += messages
        offsets.append(last)
        payload_bytes += row_bytes
    rows.count += last + 1 - first
    rows.payload_bytes += payload_bytes
    return at


def _read_operations(
    value: bytes,
    at: i64,
    received: Received,
    found: _Found,
    owner_epoch: Callable[[str], int | None],
) -> bool:
    """Find the operations; returns whether they all are of kinds that look at nothing, and who
    speaks does it for the owner that is there."""
    size: i64 = len(value)
    start: i64
    spoken = received.spoken
    while at < size:
        kind = value[at]
        start = at + OPERATION_BYTES
        at = start + uint32_at(value, at + 1)
        if at > size:
            return False
        if kind == SPEAK:
            if start + _NAME_AT > at:
                return False
            said = value[start + _OWNER_AT : at]
            if said in spoken:
                continue
            speak = speak_at(value, start, at)
            if owner_epoch(speak.client_id) != speak.epoch:
                return False
            found.operations.append(speak)
            found.spoken.append(said)
        elif kind == PUT_CURSOR:
            # One for each client that has acknowledged anything, and made an object of when it is
            # known that none follows it.
            cursor = start + _OWNER_BYTES + uint16_at(value, start + _OWNER_BYTES - 2)
            if not is_cursor(value, cursor, at):
                return False
            owner = value[start:cursor]
            if owner not in received.cursors:
                owner[_OWNER_BYTES:].decode()  # or it is no name
            found.cursors.append(owner)
            found.cursors.append(value[cursor:at])
        elif kind in (PUT_AWAITING, DELETE_AWAITING):
            found.operations.append(DECODERS[kind](value[start:at], _NOWHERE))
        else:
            return False
    return True
