"""Operations become the calls of a write batch, in their order."""

from __future__ import annotations

import pytest

from perdure.storage.rocksdb.writes import fill


class Calls:
    """A write batch that writes down what is asked of it."""

    def __init__(self) -> None:
        self.story: list[tuple[object, ...]] = []
        self.handle = ""

    def set_default_column_family(self, handle: str) -> None:
        self.handle = handle

    def put(self, key: bytes, value: bytes) -> None:
        self.story.append(("put", key, value, self.handle))

    def delete(self, key: bytes) -> None:
        self.story.append(("delete", key, self.handle))


def test_in_order_and_only_where_there_is_a_table() -> None:
    calls = Calls()
    operations = ["a", b"1", b"x", "gone", b"2", b"y", "a", b"1", None, "b", b"3", b""]
    fill(calls, operations, {"a": "A", "b": "B"})
    assert calls.story == [("put", b"1", b"x", "A"), ("delete", b"1", "A"), ("put", b"3", b"", "B")]


def test_half_an_operation_is_a_bug() -> None:
    with pytest.raises(AssertionError):
        fill(Calls(), ["a", b"1"], {"a": "A"})
