"""How many partitions ``planned`` has, and what each layout takes. Pure.

A partition is a hash that Redis keeps as a listpack, one piece of memory, while it has at most
``hash-max-listpack-entries`` entries. The seed's rule: partitions = 1.2 times the tokens, divided
by that limit. Partitions are a power of two, so that each can be split in two when there are more.
"""

from __future__ import annotations

import math
from typing import Final, final

import msgspec

from perdure.errors import StorageCorrupt

ROOM: Final = 1.2
"""Tokens are not evenly spread: partitions have room for so many times their mean."""

BITS_MAX: Final = 32
"""Partitions are numbered by so many bits of the identifier at most: 4 billion of them."""

CLUSTER_BITS: Final = 8
"""In a cluster the first bits of an identifier are a hash tag: what a partition is split into is on
its own node."""

HOUR_S: Final = 3600


@final
class Plan(msgspec.Struct, frozen=True):
    """How tokens are spread now.

    Attributes:
        bits: of the identifier that number its partition.
        is_splitting: partitions are on their way to being twice as many.
    """

    bits: int
    is_splitting: bool = False

    def text(self) -> bytes:
        """As it is kept: ``14``, or ``14>15`` while they are split."""
        return b"%d>%d" % (self.bits, self.bits + 1) if self.is_splitting else b"%d" % self.bits


def parse_plan(data: object) -> Plan | None:
    """The plan that ``Plan.text`` wrote; None = there is none.

    Raises:
        StorageCorrupt: it is something else.
    """
    if data is None:
        return None
    if isinstance(data, bytes):
        first, _, second = data.partition(b">")
        if first.isdigit() and len(first) <= 2:
            plan = Plan(int(first), bool(second))
            if plan.bits <= BITS_MAX and plan.text() == data:
                return plan
    raise StorageCorrupt(f"the plan of the token store cannot be read: {data!r}")


def partition_of(token_id: bytes, bits: int) -> int:
    """The number of a token's partition: its first bits."""
    return int.from_bytes(token_id[:5], "big") >> (40 - bits)


def field_of(token_id: bytes, bits: int) -> bytes:
    """What of an identifier its partition does not tell, in whole bytes."""
    return token_id[bits // 8 :]


def id_of(field: bytes, bits: int, partition: int) -> bytes:
    """The identifier of a field in a partition."""
    told = bits // 8
    return (partition >> (bits - 8 * told)).to_bytes(told, "big") + field


def bits_for(count: int, entries_max: int) -> int:
    """How many bits number the partitions for so many tokens.

    Args:
        count: tokens, expected or there.
        entries_max: the server's ``hash-max-listpack-entries``.
    """
    partitions = ROOM * count / max(1, entries_max)
    return min(BITS_MAX, max(0, math.ceil(math.log2(partitions)))) if partitions > 1 else 0


def is_crowded(mean: float, entries_max: int) -> bool:
    """Whether partitions with so many entries on average should be split."""
    return mean * ROOM > entries_max


@final
class Estimate(msgspec.Struct, frozen=True):
    """What so many tokens take in a layout, by arithmetic.

    Attributes:
        layout: its name.
        partitions: hashes; 0 = a key for each token.
        bytes_each: for one token.
        total_bytes: for all of them.
    """

    layout: str
    partitions: int
    bytes_each: float
    total_bytes: int


# Measured with Redis 7.0 and jemalloc, 64 bits, at a million tokens with an identity of 6 digits
# A key of its own has a dictEntry in two tables, an object and a string; an entry of a hash table
# has a dictEntry and two strings, one of a listpack only its bytes.
_KEYED: Final = {"json": 225.0, "packed": 177.0, "hash": 177.0}
_TABLE_HASH: Final = 122.0
_TABLE_ZSET: Final = 107.0
_LIST_HASH: Final = 36.0
_LIST_ZSET: Final = 28.0
_PARTITION: Final = 150.0
_PLANNED_ENTRY: Final = 36.0
_PLANNED_PARTITION: Final = 125.0
_ZSET_ENTRIES: Final = 128


def estimate(
    layout: str, count: int, *, hash_entries: int, zset_entries: int = _ZSET_ENTRIES,
    hours: int = 720
) -> Estimate:  # fmt: skip
    """Roughly what a layout takes.

    Args:
        layout: one of ``LAYOUTS``.
        count: tokens, at least 1.
        hash_entries, zset_entries: the server's limits for listpacks.
        hours: over which expiries are spread.
    """
    if layout in _KEYED:
        partitions, total = 0, count * _KEYED[layout]
    elif layout == "planned":
        partitions = 1 << bits_for(count, hash_entries)
        told = (partitions.bit_length() - 1) // 8
        total = count * (_PLANNED_ENTRY - told) + partitions * _PLANNED_PARTITION
        total += hours * (partitions / 8 + 100)
    else:
        partitions = int(layout.partition(":")[2])
        mean = count / partitions
        total = min(count, partitions) * 2 * _PARTITION
        total += count * (_LIST_HASH if mean <= hash_entries else _TABLE_HASH)
        total += count * (_LIST_ZSET if mean <= zset_entries else _TABLE_ZSET)
    return Estimate(layout, partitions, round(total / count, 1), round(total))
