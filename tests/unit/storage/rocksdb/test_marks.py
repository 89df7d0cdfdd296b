"""The high marks round-trip."""

from __future__ import annotations

import pytest

from perdure.errors import FormatTooNew, StorageCorrupt
from perdure.storage.rocksdb.marks import Marks


def test_marks_round_trip() -> None:
    marks = Marks(2**60, 7, 8, 9, 10)
    found = Marks.decode(marks.encode())
    assert (found.last_offset, found.commit) == (2**60, 7)
    assert (found.session_count, found.retained_count, found.retained_bytes) == (8, 9, 10)
    assert Marks.decode(None).encode() == Marks().encode()


def test_foreign_marks_are_refused() -> None:
    value = Marks(1).encode()
    with pytest.raises(FormatTooNew):
        Marks.decode(b"\x02" + value[1:])
    with pytest.raises(StorageCorrupt):
        Marks.decode(value[:-1])
