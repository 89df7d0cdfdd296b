"""Offsets follow the clock and never repeat."""

from __future__ import annotations

from perdure.storage.offsets import Offsets


def test_offsets() -> None:
    offsets = Offsets(5)
    assert [offsets.take(1, now_us) for now_us in (0, 7, 3, 100)] == [6, 7, 8, 100]
    assert offsets.take(3, 50) == 101
    assert offsets.last == 103


def test_the_next_offset_is_the_one_that_is_taken() -> None:
    offsets = Offsets(5)
    for now_us in (0, 6, 7, 90, 90):
        expected = offsets.next_at(now_us)
        assert offsets.next_at(now_us) == expected
        assert offsets.take(3, now_us) == expected
