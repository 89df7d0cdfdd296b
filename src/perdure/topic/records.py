"""What the log keeps of its learned topic structure: one record for each node of the trie.

Knows nothing of how the trie learns. Invariant: a release reads what every earlier release wrote,
and a later one as long as that keeps the version.

The bytes, big-endian; those after the token belong to later releases and are ignored, and so are
unknown flags::

    version (1) | flags (1) | node id (8) | parent id (8) | token length (2) | token, UTF-8
    version: 2 = a child of an overflow root, which earlier releases do not know; else 1
    flags: bit 0 = a topic ends here: the node is a stream
"""

from __future__ import annotations

import struct
from typing import Final, final

from perdure.errors import FormatTooNew, StorageCorrupt

ROOT_ID: Final = 0
DOLLAR_ROOT_ID: Final = 1
FIRST_NODE_ID: Final = 2
OVERFLOW_ROOT_ID: Final = 2**64 - 1
DOLLAR_OVERFLOW_ROOT_ID: Final = 2**64 - 2

_RECORD_VERSION: Final = 1
_OVERFLOW_VERSION: Final = 2
_FLAG_STREAM: Final = 1
_HEAD: Final = struct.Struct(">BBQQH")


@final
class NodeRecord:
    """What has to be kept of one node; a later record with the same ``node_id`` replaces it.

    Attributes:
        node_id: from 2, in order of creation; a parent's is lower than its children's.
        parent_id: 0 = the root, 1 = the root of ``$`` topics; 2**64 - 1 and 2**64 - 2 those of
            what came when the trie was full.
        token: the level, or ``+``.
        is_stream: whether a topic ends here; then ``node_id`` is the stream's id.
    """

    __slots__ = ("is_stream", "node_id", "parent_id", "token")

    def __init__(self, *, node_id: int, parent_id: int, token: str, is_stream: bool) -> None:
        self.node_id = node_id
        self.parent_id = parent_id
        self.token = token
        self.is_stream = is_stream

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, NodeRecord)
            and self.node_id == other.node_id
            and self.parent_id == other.parent_id
            and self.token == other.token
            and self.is_stream == other.is_stream
        )

    def __hash__(self) -> int:
        return hash((self.node_id, self.parent_id, self.token, self.is_stream))

    def __repr__(self) -> str:
        return (
            f"NodeRecord(node_id={self.node_id}, parent_id={self.parent_id}, "
            f"token={self.token!r}, is_stream={self.is_stream})"
        )

    def encode(self) -> bytes:
        """The record as bytes."""
        token = self.token.encode()
        flags = _FLAG_STREAM if self.is_stream else 0
        overflows = self.parent_id >= DOLLAR_OVERFLOW_ROOT_ID
        version = _OVERFLOW_VERSION if overflows else _RECORD_VERSION
        head = _HEAD.pack(version, flags, self.node_id, self.parent_id, len(token))
        return head + token


def decode_record(data: bytes) -> NodeRecord:
    """The record in bytes that ``NodeRecord.encode`` made.

    Raises:
        FormatTooNew: a later release made them, in a way that this one cannot read.
        StorageCorrupt: they are no record.
    """
    if data and data[0] > _OVERFLOW_VERSION:
        raise FormatTooNew(f"topic structure record has version {data[0]}")
    if len(data) < _HEAD.size or data[0] < _RECORD_VERSION:
        raise StorageCorrupt("topic structure record is cut short or has no version")
    _, flags, node_id, parent_id, length = _HEAD.unpack_from(data)
    token = data[_HEAD.size : _HEAD.size + length]
    if len(token) != length:
        raise StorageCorrupt("topic structure record is cut short")
    try:
        text = token.decode()
    except UnicodeDecodeError as error:
        raise StorageCorrupt("topic structure record has a token that is not UTF-8") from error
    return NodeRecord(
        node_id=node_id, parent_id=parent_id, token=text, is_stream=bool(flags & _FLAG_STREAM)
    )
