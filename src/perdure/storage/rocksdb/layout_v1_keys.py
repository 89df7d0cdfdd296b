"""Keys and values of layouts 1 and 4, which are drawn in ``layout_v1``.

Invariant: an index entry that ``run_of`` takes is one that ``append_rows`` could have written.
"""

from __future__ import annotations

import struct
from hashlib import blake2b
from typing import Final

from perdure.errors import StorageCorrupt
from perdure.limits import OFFSET_MAX

INDEXED_LEVELS: Final = 16
"""Varying levels of a topic that have an index entry, the first ones. A message on a topic of
hundreds of levels would else write as many; who asks for one of the others finds its rows by the
first ones, or by looking at all of the stream."""

RUN_OFFSETS_MAX: Final = 256
"""Rows that an index entry stands for: one that wants a single one decodes all."""

RUN_SPAN: Final = 1 << 22
"""Between the first and the last offset of a run, about four seconds: so much further than it wants
a reader looks into the index."""

DATA_HEAD: Final = 16
INDEX_OFFSET_AT: Final = 17
INDEX_KEY_BYTES: Final = 25

pack_offset: Final = struct.Struct(">Q").pack
unpack_data: Final = struct.Struct(">QQ").unpack_from
unpack_offset: Final = struct.Struct(">Q").unpack_from
_unpack_run: Final = [struct.Struct(f">{count}Q").unpack for count in range(RUN_OFFSETS_MAX)]
"""For each count of offsets in a value."""


def token_hash(token: str) -> bytes:
    """Hash of a varying token in the index."""
    return blake2b(token.encode(), digest_size=8).digest()


def index_prefix(stream: bytes, level: int, token: str) -> bytes:
    """What index entries of a token begin with; the offset follows.

    Args:
        stream: packed.
        level: which of the varying ones, below ``INDEXED_LEVELS``.
        token: that is there.
    """
    return b"%b%c%b" % (stream, level, token_hash(token))


def run_of(key: bytes, value: bytes) -> tuple[int, ...]:
    """The offsets of the rows that an index entry stands for, ascending.

    Raises:
        StorageCorrupt: it is none that ``append_rows`` could have written.
    """
    count = len(value) // 8
    if len(key) != INDEX_KEY_BYTES or len(value) % 8 or count >= RUN_OFFSETS_MAX:
        raise StorageCorrupt(f"index entry {key.hex()} has a wrong length")
    run: tuple[int, ...] = _unpack_run[count](value) + unpack_offset(key, INDEX_OFFSET_AT)
    before = -1
    for offset in run:
        if offset <= before:
            raise StorageCorrupt(f"the offsets of index entry {key.hex()} do not ascend")
        before = offset
    if before - run[0] > RUN_SPAN:
        raise StorageCorrupt(f"the offsets of index entry {key.hex()} are too far apart")
    return run


def overlapping(key: bytes) -> StorageCorrupt:
    """The error of an index entry whose run begins within the one before it."""
    return StorageCorrupt(f"index entry {key.hex()} begins within the one before it")


def tokens_of(key: bytes) -> list[str]:
    """The varying tokens of a data key of a stream that has some."""
    try:
        return key[DATA_HEAD:].decode().split("/")
    except UnicodeDecodeError as error:
        raise StorageCorrupt(f"data key {key.hex()} is not UTF-8") from error


def end_of(prefix: bytes, until: int) -> bytes:
    """The first key after those of a prefix up to an offset."""
    return prefix + pack_offset(min(until, OFFSET_MAX) + 1)
