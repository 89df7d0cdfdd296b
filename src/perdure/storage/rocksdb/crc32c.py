"""CRC-32C (Castagnoli), by which RocksDB protects its write-ahead logs and manifests.

Our own, because no library that we depend on has it, and because it is only asked about files that
are already known to disagree: what a start reads is checked by RocksDB itself.

Four bytes are a step, by two tables of 65,536 numbers that are made when they are first needed.
Pure functions of their arguments.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import Final

_POLYNOMIAL: Final = 0x82F63B78
"""Reversed."""

_MASK_DELTA: Final = 0xA282EAD8
"""RocksDB masks what it stores: a checksum of data that hold checksums is a weak one."""


@cache
def _bytes_table() -> list[int]:
    found: list[int] = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        found.append(value)
    return found


@cache
def _tables() -> tuple[list[int], list[int]]:
    """What the lower and the upper half of a number are after four more bytes."""
    last = _bytes_table()
    third = [value >> 8 ^ last[value & 0xFF] for value in last]
    second = [value >> 8 ^ last[value & 0xFF] for value in third]
    first = [value >> 8 ^ last[value & 0xFF] for value in second]
    low = [first[half & 0xFF] ^ second[half >> 8] for half in range(65_536)]
    high = [third[half & 0xFF] ^ last[half >> 8] for half in range(65_536)]
    return low, high


def crc32c(data: bytes, start: int, stop: int) -> int:
    """The checksum of ``data[start:stop]``."""
    low, high = _tables()
    count = (stop - start) // 4
    words: tuple[int, ...] = struct.unpack_from(f"<{count}I", data, start)
    value = 0xFFFFFFFF
    for word in words:
        value ^= word
        value = low[value & 0xFFFF] ^ high[value >> 16]
    last = _bytes_table()
    for byte in data[start + 4 * count : stop]:
        value = value >> 8 ^ last[(value ^ byte) & 0xFF]
    return value ^ 0xFFFFFFFF


def masked(checksum: int) -> int:
    """A checksum as RocksDB stores it."""
    return ((checksum >> 15 | checksum << 17) + _MASK_DELTA) & 0xFFFFFFFF
