"""Many streams at once: windows of time, cut where they are full and jumped where empty.

How one stream is read is tested through the layout.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.config.schema import RocksdbConfig
from perdure.errors import StorageCorrupt
from perdure.storage.rocksdb import layout_v1_scan
from perdure.storage.rocksdb.engine import Engine
from perdure.storage.rocksdb.layout import table_names
from perdure.storage.rocksdb.layout_v1_scan import (
    Constraints,
    Plan,
    Scanner,
    pack_offset,
    token_hash,
)

DATA, INDEX = table_names(1)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = Engine(tmp_path / "d", RocksdbConfig())
    for name in (DATA, INDEX):
        engine.create_table(name)
    yield engine
    engine.close()


def fill(engine: Engine, rows: dict[int, int]) -> None:
    """Rows of offset -> stream; streams above 5 have the token of their offset's parity."""
    for table in (DATA, INDEX):
        for key in list(engine.keys(table, b"", b"\xff")):
            engine.write([table, key, None])
    for offset, stream in rows.items():
        head, at = pack_offset(stream), pack_offset(offset)
        token = f"{offset % 2}" if stream > 5 else ""
        engine.write([DATA, head + at + token.encode(), b"%d" % offset])
        if token:
            engine.write([INDEX, head + b"\0" + token_hash(token) + at, b""])


@settings(
    max_examples=80,
)
@given(
    rows=st.dictionaries(
        st.integers(1, 60) | st.integers(10**6, 10**6 + 60) | st.integers(10**15, 10**15 + 60),
        st.integers(1, 9),
        max_size=60,
    ),
    after=st.integers(0, 40) | st.integers(10**6, 10**6 + 40),
    until=st.integers(30, 70) | st.integers(10**6, 10**15 + 70),
)
def test_windows_give_what_a_merge_gives(
    engine: Engine, rows: dict[int, int], after: int, until: int
) -> None:
    fill(engine, rows)
    plan: Plan = {stream: None if stream <= 5 else {((0, "1"),)} for stream in range(1, 9)}
    kept = layout_v1_scan.WINDOW_ROWS_MAX
    layout_v1_scan.WINDOW_ROWS_MAX = 8  # type: ignore[misc]
    try:
        windows = list(Scanner(lambda: engine, DATA, INDEX, merged_max=0).rows(plan, after, until))
    finally:
        layout_v1_scan.WINDOW_ROWS_MAX = kept  # type: ignore[misc]
    assert windows == list(Scanner(lambda: engine, DATA, INDEX).rows(plan, after, until))
    assert [row[0] for row in windows] == [
        offset
        for offset in sorted(rows)
        if after < offset <= until and (rows[offset] <= 5 or (rows[offset] < 9 and offset % 2))
    ]


def test_a_long_silence_takes_few_steps(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(engine, {5: 1, 10**15: 2, 10**15 + 1: 1, 2 * 10**15: 3})
    scanner = Scanner(lambda: engine, DATA, INDEX, merged_max=0)
    steps: list[int] = []
    window = Scanner._window

    def counting(self: Scanner, plan: Plan, after: int, *bounds: Any) -> object:
        steps.append(after)
        return window(self, plan, after, *bounds)

    monkeypatch.setattr(Scanner, "_window", counting)
    rows = list(scanner.rows({1: None, 2: None, 3: None}, 0, 2**62))
    assert [row[0] for row in rows] == [5, 10**15, 10**15 + 1, 2 * 10**15]
    assert len(steps) <= 4


def test_picked_rows_are_those_that_leaps_find(engine: Engine) -> None:
    fill(engine, {offset: 6 + offset % 2 for offset in range(1, 400)})
    scanner = Scanner(lambda: engine, DATA, INDEX)
    both: set[Constraints] = {((0, "0"),), ((0, "1"),), ((0, "2"),)}
    for stream, after, until in ((6, 0, 2**62), (7, 13, 377), (6, 399, 500)):
        row_keys = scanner.picked(stream, both, after, until, 1_000)
        assert row_keys is not None
        found = [each for some in scanner.picked_rows(row_keys) for each in some]
        rows = scanner.stream_rows(stream, both, after, until)
        assert found == [each for _, key, value in rows for each in (key, value)]
    assert scanner.picked(6, both, 0, 2**62, 100) is None


def test_entries_are_the_first_ones(engine: Engine) -> None:
    fill(engine, dict.fromkeys(range(1, 100), 6))
    scanner = Scanner(lambda: engine, DATA, INDEX)
    assert scanner.entries(6, ((0, "1"),), 10, 2**62, 3) == [11, 13, 15]
    assert scanner.entries(6, ((0, "1"),), 10, 13, 9) == [11, 13]


def test_another_token_of_the_same_hash_is_no_row(engine: Engine) -> None:
    head = pack_offset(6)
    engine.write([DATA, head + pack_offset(5) + b"x", b"x"])
    engine.write([INDEX, head + b"\0" + token_hash("y") + pack_offset(5), b""])
    scanner = Scanner(lambda: engine, DATA, INDEX)
    row_keys = scanner.picked(6, {((0, "y"),)}, 0, 2**62, 9)
    assert row_keys == [head + pack_offset(5) + b"y"]
    assert list(scanner.picked_rows(row_keys)) == [[]]
    with pytest.raises(StorageCorrupt, match="an entry for 6 and no message"):
        list(scanner.picked_rows([head + pack_offset(6) + b"y"]))
