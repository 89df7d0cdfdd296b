"""Many streams at once: windows of time, cut where they are full and jumped where empty.

How one stream is read is tested through the layout.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.config.schema import RocksdbConfig
from perdure.errors import StorageCorrupt
from perdure.storage.rocksdb import layout_v1_scan
from perdure.storage.rocksdb.effort import Effort
from perdure.storage.rocksdb.engine import Engine
from perdure.storage.rocksdb.iterators import Seeker, bounded
from perdure.storage.rocksdb.layout import table_names
from perdure.storage.rocksdb.layout_v1_keys import (
    RUN_OFFSETS_MAX,
    RUN_SPAN,
    index_prefix,
    pack_offset,
    run_of,
    token_hash,
)
from perdure.storage.rocksdb.layout_v1_scan import Constraints, Plan, Scanner

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


# -- runs ----------------------------------------------------------------------------------


def put_run(engine: Engine, level: int, token: str, *run: int) -> None:
    """An index entry of stream 6."""
    *others, last = run
    key = index_prefix(pack_offset(6), level, token) + pack_offset(last)
    engine.write([INDEX, key, b"".join(map(pack_offset, others))])


def offsets(engine: Engine, constraints: Constraints, after: int, until: int) -> list[int]:
    scanner = Scanner(lambda: engine, DATA, INDEX)
    return list(scanner._offsets(pack_offset(6), constraints, after, until))


A, B = (0, "a"), (1, "b")


def test_a_read_ends_and_begins_within_a_run(engine: Engine) -> None:
    put_run(engine, 0, "a", 10, 20, 30, 40)
    put_run(engine, 0, "a", 50)
    put_run(engine, 0, "a", 60, 70)
    put_run(engine, 0, "other", 45, 46)
    everything = [10, 20, 30, 40, 50, 60, 70]
    scanner = Scanner(lambda: engine, DATA, INDEX)
    for after in range(0, 75, 5):
        for until in range(0, 80, 5):
            expected = [at for at in everything if after < at <= until]
            assert offsets(engine, (A,), after, until) == expected
            assert scanner.entries(6, (A,), after, until, 3) == expected[:3]
            row_keys = scanner.picked(6, {(A,)}, after, until, 99)
            assert row_keys == [pack_offset(6) + pack_offset(at) + b"a" for at in expected]


def test_the_end_of_a_run_may_be_so_far_behind_what_is_wanted(engine: Engine) -> None:
    put_run(engine, 0, "a", 10, 11, 10 + RUN_SPAN)
    put_run(engine, 1, "b", 9, 10, 10 + RUN_SPAN - 1)
    for constraints in ((A,), (A, B)):
        assert offsets(engine, constraints, 0, 10) == [10]
    assert offsets(engine, (A,), 10, 2**62) == [11, 10 + RUN_SPAN]


@pytest.mark.parametrize("rows_max", [0, 1, 2, 3, 100])
def test_leaps_of_levels_whose_runs_differ(engine: Engine, rows_max: int) -> None:
    put_run(engine, 0, "a", 1, 3, 5, 7)
    put_run(engine, 0, "a", 8, 20, 22)
    put_run(engine, 0, "a", 30)
    put_run(engine, 1, "b", 2, 3)
    put_run(engine, 1, "b", 7, 8, 9)
    put_run(engine, 1, "b", 21)
    put_run(engine, 1, "b", 22, 30, 40)
    assert offsets(engine, (A, B), 0, 99) == [3, 7, 8, 22, 30]
    assert offsets(engine, (A, B), 3, 22) == [7, 8, 22]
    # In parts: each says how far it came, and the next goes on there.
    scanner, found, after = Scanner(lambda: engine, DATA, INDEX), [], 0
    while True:
        effort = Effort(rows_max, part_rows_min=1)
        some = list(scanner._offsets(pack_offset(6), (A, B), after, 99, effort))
        if not some or some[-1] >= 0:
            break
        assert ~some[-1] > after
        after = ~some.pop()
        found += some
    assert found + some == [3, 7, 8, 22, 30]


def test_a_leap_within_a_run_is_no_seek(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    put_run(engine, 0, "a", *range(100, 300, 2))
    put_run(engine, 1, "b", *range(100, 300, 3))
    seeks: list[bytes] = []

    class Watched:
        def __init__(self, kept: Any) -> None:
            self._kept = kept

        def __getattr__(self, name: str) -> Any:
            return getattr(self._kept, name)

        def seek(self, key: bytes) -> None:
            seeks.append(key)
            self._kept.seek(key)

    def seeker(table: str, end: bytes) -> Seeker:
        options = bounded(end)
        return Seeker(cast("Any", Watched(engine._tables[table].iter(options))), options)

    monkeypatch.setattr(engine, "seeker", seeker)
    assert offsets(engine, (A, B), 0, 2**62) == list(range(100, 300, 6))
    assert len(seeks) == 3, "one for each run, and one behind them"


DAMAGED = [
    ("length", bytes(7)),
    ("length", bytes(8) * RUN_OFFSETS_MAX),
    ("ascend", pack_offset(30)),
    ("ascend", pack_offset(31)),
    ("ascend", pack_offset(20) + pack_offset(19)),
    ("ascend", pack_offset(20) * 2),
    ("too far", pack_offset(29)),
    ("within the one before it", pack_offset(29 + RUN_SPAN)),
]


@pytest.mark.parametrize(("problem", "value"), DAMAGED)
def test_a_damaged_run_is_corrupt(engine: Engine, problem: str, value: bytes) -> None:
    last = 30 + RUN_SPAN if problem in ("too far", "within the one before it") else 30
    for level, token in (A, B):
        put_run(engine, level, token, 29 if last == 30 else 29 + RUN_SPAN)
        engine.write([INDEX, index_prefix(pack_offset(6), level, token) + pack_offset(last), value])
    for constraints in ((A,), (A, B)):
        with pytest.raises(StorageCorrupt, match=problem) as raised:
            offsets(engine, constraints, 0, 2**62)
        assert pack_offset(last).hex() in raised.value.message


def test_a_run_within_a_run_is_corrupt(engine: Engine) -> None:
    for level, token in (A, B):
        put_run(engine, level, token, 5, 20)
        put_run(engine, level, token, 19, 30)
    for constraints in ((A,), (A, B)):
        with pytest.raises(StorageCorrupt, match="within the one before it"):
            offsets(engine, constraints, 0, 2**62)


def test_a_key_of_another_length_is_corrupt() -> None:
    with pytest.raises(StorageCorrupt, match="length"):
        run_of(bytes(26), pack_offset(1))
