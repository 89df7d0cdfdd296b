"""The checksum, against published values and against its definition."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.storage.rocksdb.crc32c import crc32c, masked


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        # RFC 3720, appendix B.4.
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(reversed(range(32))), 0x113FDB5C),
        (b"123456789", 0xE3069283),
        (b"", 0),
    ],
)
def test_published_values(data: bytes, expected: int) -> None:
    assert crc32c(data, 0, len(data)) == expected


@given(st.binary(max_size=40), st.integers(0, 7), st.integers(0, 7))
def test_a_part(data: bytes, before: int, after: int) -> None:
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    whole = bytes(before) + data + bytes(after)
    assert crc32c(whole, before, before + len(data)) == value ^ 0xFFFFFFFF


def test_a_mask_keeps_32_bits() -> None:
    assert masked(0) == 0xA282EAD8
    assert masked(0xFFFFFFFF) == 0xA282EAD7
