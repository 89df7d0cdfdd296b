"""Batches of other nodes whose messages are recorded as they came.

A row of the log has the bytes that a message or a bundle has in a batch. So where nothing in a
batch looks at what others have changed, its rows are cut out of it and no message is made of them.
What does more than that, or does not look as it should, is decoded (``batch_codec``), which finds
what is wrong with it. The format is drawn there.

Invariant: what is received of a batch does to any state what the batch does.
"""

from __future__ import annotations

import struct
from typing import Final, final

from perdure.errors import StorageError
from perdure.storage import bundle
from perdure.storage.batch_codec import (
    HEAD_BYTES,
    OPERATION_BYTES,
    VERSION,
    run_at,
    speak_at,
)
from perdure.storage.batch_places import GivenOffsets
from perdure.storage.codec import is_cursor, uint32_at
from perdure.storage.operation_codec import (
    DECODERS,
    DELETE_AWAITING,
    PUT_AWAITING,
    PUT_CURSOR,
    SPEAK,
)
from perdure.storage.operations import Operation
from perdure.topic.known import KnownTopics

_OWNER_AT: Final = 4
"""Where the owner stands in the body of a ``Speak``."""
_NAME_AT: Final = 14
_OWNER_BYTES: Final = 10
"""Of an owner, before the name."""
_NOWHERE: Final = GivenOffsets(0, ())


@final
class Received:
    """What a batch holds.

    Attributes:
        topics, values, counts: of each row; how many messages it has.
        count: messages.
        payload_bytes: of all of them.
        operations: in order, but for those that ``spoken`` has, and for cursors.
        cursors: by the owner's bytes, the bytes of what follows it: each the last one.
        speaking: bodies of what publishers say for the first time, without its place.
    """

    __slots__ = (
        "count",
        "counts",
        "cursors",
        "operations",
        "payload_bytes",
        "speaking",
        "topics",
        "values",
    )

    def __init__(self) -> None:
        self.topics: list[str] = []
        self.values: list[bytes] = []
        self.counts: list[int] = []
        self.count: int = 0
        self.payload_bytes: int = 0
        self.operations: list[Operation] = []
        self.cursors: dict[bytes, bytes] = {}
        self.speaking: list[bytes] = []


def receive(value: bytes, spoken: set[bytes], known: KnownTopics) -> Received | None:
    """What is in the bytes of a batch; None = it has to be decoded.

    Args:
        value: what ``batch_codec.encode`` gave.
        spoken: the owners that publishers are known to speak for, each as ``Received.speaking``.
        known: topics that came before.
    """
    if len(value) < HEAD_BYTES or value[0] != VERSION or uint32_at(value, 5):
        return None  # or it places something
    received = Received()
    try:
        at = _read_rows(value, received, known)
        if at and _read_operations(value, at, received, spoken):
            return received
    except (struct.error, UnicodeDecodeError, LookupError, StorageError):
        pass
    return None


def cursors_of(found: dict[bytes, bytes]) -> list[Operation]:
    """The operations that ``Received.cursors`` stand for."""
    return [DECODERS[PUT_CURSOR](owner + cursor, _NOWHERE) for owner, cursor in found.items()]


def _read_rows(value: bytes, received: Received, known: KnownTopics) -> int:
    """Add the rows; returns where the operations begin, 0 = something is wrong."""
    size = len(value)
    at = HEAD_BYTES
    count = payload_bytes = 0
    topics, values, counts = received.topics, received.values, received.counts
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
        counts.append(messages)
        count += messages
        payload_bytes += row_bytes
    received.count = count
    received.payload_bytes = payload_bytes
    return at


def _read_operations(value: bytes, at: int, received: Received, spoken: set[bytes]) -> bool:
    """Add the operations; returns whether they all are of kinds that look at nothing."""
    size = len(value)
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
            received.operations.append(speak_at(value, start, at))
            received.speaking.append(said)
        elif kind == PUT_CURSOR:
            # One for each client that has acknowledged anything, and made an object of when it is
            # known that none follows it.
            cursor = start + _OWNER_BYTES + (value[start + 8] << 8 | value[start + 9])
            if not is_cursor(value, cursor, at):
                return False
            owner = value[start:cursor]
            if owner not in received.cursors:
                owner[_OWNER_BYTES:].decode()  # or it is no name
            received.cursors[owner] = value[cursor:at]
        elif kind in (PUT_AWAITING, DELETE_AWAITING):
            received.operations.append(DECODERS[kind](value[start:at], _NOWHERE))
        else:
            return False
    return True
