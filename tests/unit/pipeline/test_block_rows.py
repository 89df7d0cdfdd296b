"""Rows from the blocks of table files are those that RocksDB gives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyarrow")
pytest.importorskip("xxhash")

import numpy as np
import pyarrow as pa
import rocksdict

from perdure.config.schema import RocksdbConfig
from perdure.errors import StorageCorrupt
from perdure.model import Message
from perdure.pipeline import block_picks, block_rows
from perdure.pipeline.block_entries import NotPlain
from perdure.pipeline.block_page import BlockPage
from perdure.pipeline.block_rows import BlockRows
from perdure.pipeline.decode import Names, decode_page
from perdure.pipeline.schema import BY_NAME
from perdure.pipeline.table_files import Blocks, Pieces, TableFile, joined
from perdure.storage.batch import Batch
from perdure.storage.rocksdb import RocksDatabase, bulk_rows
from perdure.storage.rocksdb.blocks import Stretch
from perdure.storage.rocksdb.bulk import LogFiles
from perdure.storage.rocksdb.bulk_slices import Slice
from perdure.storage.rocksdb.engine import Engine
from perdure.storage.rocksdb.following import Follower

START = 1_700_000_000_000_000
CONFIG = RocksdbConfig(learn_thresholds=(2, 2), tail_messages=0)


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """What pays for long stretches only is done for all of them."""
    monkeypatch.setattr(bulk_rows, "ROWS_BEFORE_BLOCKS", 1)
    monkeypatch.setattr(block_rows, "_BLOCKS_MIN", 1)
    monkeypatch.setattr(block_rows, "_GROUP_BYTES", 20_000)
    monkeypatch.setattr(block_rows, "_PAGE_ROWS", 97)
    monkeypatch.setattr(bulk_rows, "KEYS_FOR_BLOCKS", 1)
    monkeypatch.setattr(block_rows, "_PART_ROWS", 0)
    monkeypatch.setattr(block_rows, "_FILE_ROWS", 0)
    monkeypatch.setattr(block_picks, "_ROWS_AT_ONCE", 41)
    monkeypatch.setattr(block_picks, "_BYTES_AT_ONCE", 30_000)


def submit(database: RocksDatabase, topics: list[str], sizes: list[int], at: int) -> None:
    batch = Batch()
    for topic, size in zip(topics, sizes, strict=True):
        batch.append(Message(topic, bytes(size), 1, publisher=f"p{size % 3}"))
    database.submit(batch, at)


def table_of(files: LogFiles) -> str:
    return files.layout(1).tables[0]


def flush(database: RocksDatabase, *, compact: bool = False) -> None:
    """Write the log's memory to a file, and perhaps merge files."""
    engine, generations = database.tables()
    for generation in generations:
        for name in generation.layout.tables:
            engine._tables[name].flush(True)
            if compact:
                engine._tables[name].compact_range(None, None)


def read(
    path: Path, part: Slice, *filters: str, by_blocks: bool
) -> tuple[list[tuple[bytes, bytes]], int, Any]:
    """Rows, how many of them came from blocks, and their columns."""
    files = LogFiles(path, mapped=True, blocks=BlockRows if by_blocks else None)
    layout = files.layout(part.generation)
    names = Names(part.generation, layout.topic, layout.pattern)
    rows: list[tuple[bytes, bytes]] = []
    columns: list[dict[str, Any]] = []
    from_blocks = 0
    for page in files.pages((filters,) if filters else (), part, rows_max=50):
        columns += decode_page(page, list(BY_NAME), names).to_pylist()
        from_blocks += len(page) if isinstance(page, BlockPage) else 0
        rows += page.rows()
        assert [
            row for each in (page.behind(0), page.behind(len(page))) for row in each.rows()
        ] == list(page.rows())
    files.close()
    return rows, from_blocks, columns


TOPICS = st.sampled_from(["d/1/t", "d/2/t", "d/3/t", "d/44/t", "d/5/u", "x", "d/6/t/7", "$s/1"])
PICKED = ("d/3/t", "d/44/t", "d/5/u", "d/77/u", "x")
SIZES = st.sampled_from([0, 1, 64, 100, 111, 127, 128, 200, 5_000, 20_000])


@settings(max_examples=25, deadline=None)
@given(
    commits=st.lists(
        st.tuples(
            st.lists(
                st.tuples(TOPICS, SIZES, st.sampled_from([1, 1, 5, 70])), min_size=1, max_size=9
            ),
            st.sampled_from(["", "", "flush", "compact"]),
        ),
        min_size=1,
        max_size=12,
    ),
    cuts=st.tuples(st.floats(0, 1), st.floats(0, 1)),
)
def test_the_same_rows_as_one_by_one(
    tmp_path_factory: pytest.TempPathFactory,
    commits: list[tuple[list[tuple[str, int, int]], str]],
    cuts: tuple[float, float],
) -> None:
    path = tmp_path_factory.mktemp("blocks") / "db"
    database = RocksDatabase.open(path, config=CONFIG, now_us=START)
    at = START
    for bursts, then in commits:
        for topic, size, count in bursts:
            submit(database, [topic] * count, [size] * count, at)
            at += 100
        if then:
            flush(database, compact=then == "compact")
    low, high = sorted(int(cut * (at - START + 100)) for cut in cuts)
    for part in (Slice(1, 0, 2 * START, 1), Slice(1, START + low, START + high, 1)):
        slow, none, expected = read(path, part, by_blocks=False)
        rows, _, columns = read(path, part, by_blocks=True)
        assert (rows, columns, none) == (slow, expected, 0)
        slow, none, expected = read(path, part, *PICKED, by_blocks=False)
        rows, _, columns = read(path, part, *PICKED, by_blocks=True)
        assert (rows, columns, none) == (slow, expected, 0)
    database.close()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[RocksDatabase]:
    """A log with three files, and a rest in memory."""
    database = RocksDatabase.open(tmp_path / "db", config=CONFIG, now_us=START)
    for number in range(3):
        fill(database, START + number * 10_000)
        flush(database)
    fill(database, START + 30_000)
    yield database
    database.close()


def fill(database: RocksDatabase, at: int) -> None:
    for number in range(200):
        topics = [f"d/{number % 7}/t", f"d/{number % 11}/u"]
        submit(database, topics, [number % 180, number % 90], at + number * 20)


ALL = Slice(1, 0, 2 * START, 1)


def test_most_rows_are_read_as_they_lie(log: RocksDatabase, tmp_path: Path) -> None:
    rows, from_blocks, _ = read(tmp_path / "db", ALL, by_blocks=True)
    assert len(rows) == 1_600
    assert from_blocks > 1_000
    assert rows == read(tmp_path / "db", ALL, by_blocks=False)[0]


def test_a_view_that_is_kept_knows_the_files_of_now(tmp_path: Path) -> None:
    database = RocksDatabase.open(tmp_path / "db", config=CONFIG, now_us=START)
    follower = Follower(tmp_path / "db", mapped=True, blocks=BlockRows)
    from_blocks: list[int] = []
    for number in range(5):
        fill(database, START + number * 20_000)
        if number:
            flush(database, compact=number == 3)
        # What is followed is followed by a write.
        submit(database, ["d/1/t"], [9], START + number * 20_000 + 10_000)
        with follower.look() as files:
            pages = list(files.pages((), ALL, rows_max=50))
            from_blocks.append(sum(len(page) for page in pages if isinstance(page, BlockPage)))
            found = [row for page in pages for row in page.rows()]
        assert found == read(tmp_path / "db", ALL, by_blocks=False)[0]
        assert len(found) == (number + 1) * 401
    assert from_blocks == sorted(set(from_blocks))
    assert from_blocks[-1] > 1_500
    follower.close()
    database.close()


def test_no_block_is_taken_apart_twice(
    log: RocksDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[tuple[int, int]] = []
    whole = TableFile.read

    def noted(file: TableFile, starts: Any, sizes: Any) -> Blocks:
        taken.extend((id(file), start) for start in starts.tolist())
        return whole(file, starts, sizes)

    monkeypatch.setattr(TableFile, "read", noted)
    engine, _ = log.tables()
    blocks = BlockRows(tmp_path / "db", engine.live_files())
    pages = blocks.pages(engine_table(log), stream_of(log), START + 3, 2 * START, 2 * START)
    assert sum(len(page) for page, _, _ in pages) > 400
    assert len(taken) > 10
    assert len(set(taken)) == len(taken)


def test_files_that_hold_the_same_range_are_left_to_rocksdb(
    log: RocksDatabase, tmp_path: Path
) -> None:
    engine, _ = log.tables()
    table = engine_table(log)
    stream = stream_of(log).to_bytes(8)
    key, value = [row for row in engine.items(table, stream, b"\xff") if row[0][:8] == stream][200]
    # An old row, written again: it is in two files then, and the later one holds.
    engine.write([table, key, value + b"!"])
    flush(log)
    rows, _, _ = read(tmp_path / "db", ALL, by_blocks=True)
    assert rows == read(tmp_path / "db", ALL, by_blocks=False)[0]
    assert len({key for key, _ in rows}) == len(rows)


def engine_table(database: RocksDatabase) -> str:
    _, generations = database.tables()
    return next(iter(generations)).layout.tables[0]


@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize("ranged", [False, True])
def test_rows_that_were_deleted_do_not_come_back(
    log: RocksDatabase, tmp_path: Path, flushed: bool, ranged: bool
) -> None:
    engine, table = log.tables()[0], engine_table(log)
    keys = list(engine.keys(table, b"", b"\xff"))[100:300]
    if ranged:
        engine.replace_range(table, keys[0], keys[-1] + b"\0", [])
    else:
        engine.write([each for key in keys for each in (table, key, None)])
    if flushed:
        flush(log)
    rows, from_blocks, _ = read(tmp_path / "db", ALL, by_blocks=True)
    assert not {key for key, _ in rows} & set(keys)
    assert len(rows) == 1_400
    assert from_blocks == 0


def data_files(path: Path) -> list[Path]:
    found = []
    for each in sorted(path.glob("*.sst")):
        try:
            if TableFile(each).table.endswith(".data"):
                found.append(each)
        except NotPlain:
            continue
    return found


@pytest.mark.parametrize("place", [0.1, 0.5])
def test_damage_ends_with_an_error(log: RocksDatabase, tmp_path: Path, place: float) -> None:
    file = data_files(tmp_path / "db")[1]
    data = bytearray(file.read_bytes())
    data[int(len(data) * place)] ^= 0x20
    file.write_bytes(data)
    with pytest.raises(StorageCorrupt):
        read(tmp_path / "db", ALL, by_blocks=True)


def test_a_file_that_is_gone_is_left_to_rocksdb(log: RocksDatabase, tmp_path: Path) -> None:
    expected = read(tmp_path / "db", ALL, by_blocks=False)[0]
    files = LogFiles(tmp_path / "db", mapped=True, blocks=BlockRows)
    flush(log, compact=True)
    found = [row for page in files.pages((), ALL, rows_max=50) for row in page.rows()]
    files.close()
    assert found == expected


def picked_from_blocks(path: Path, *filters: str) -> tuple[list[tuple[bytes, bytes]], int]:
    """Rows picked by topic, and how many of them came from blocks."""
    counts: list[int] = []

    class Counting(BlockRows):  # type: ignore[misc]
        def picked(self, table: str, stream: int, keys: Sequence[bytes]) -> Iterator[Stretch]:
            for each in super().picked(table, stream, keys):
                counts.append(len(each.page))
                yield each

    files = LogFiles(path, mapped=True, blocks=Counting)
    rows = [row for page in files.pages((filters,), ALL, rows_max=50) for row in page.rows()]
    files.close()
    return rows, sum(counts)


PICKS = ("d/3/t", "d/4/t", "d/9/u")


def test_rows_are_picked_from_blocks_and_from_memory(log: RocksDatabase, tmp_path: Path) -> None:
    expected = read(tmp_path / "db", ALL, *PICKS, by_blocks=False)[0]
    rows, from_blocks = picked_from_blocks(tmp_path / "db", *PICKS)
    assert rows == expected
    # Three of four parts are in files.
    assert len(rows) * 0.7 < from_blocks < len(rows)


def test_a_block_that_ends_just_before_a_key(tmp_path: Path) -> None:
    """An index may say that a block ends with what the next one begins with, but for tokens."""
    path = tmp_path / "db"
    database = RocksDatabase.open(path, config=CONFIG, now_us=START)
    for number in range(600):
        topics = [f"d/{number % 5}/t"]
        submit(database, topics, [900], (START & ~0xFFFF) + 0x20000 + number * 0x80)
    flush(database, compact=True)
    rows, from_blocks = picked_from_blocks(path, "d/3/t", "d/4/t")
    assert rows == read(path, ALL, "d/3/t", "d/4/t", by_blocks=False)[0]
    assert len(rows) == from_blocks == 240
    database.close()


@pytest.mark.parametrize("bound", ["_PART_ROWS", "_FILE_ROWS"])
def test_a_few_keys_of_a_large_stream_are_left_to_rocksdb(
    log: RocksDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    monkeypatch.setattr(block_rows, bound, 1_000)
    rows, from_blocks = picked_from_blocks(tmp_path / "db", *PICKS)
    assert (rows, from_blocks) == (read(tmp_path / "db", ALL, *PICKS, by_blocks=False)[0], 0)


def test_what_is_kept_of_streams_has_a_bound(
    log: RocksDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_rows, "_KEPT_MAX", 1)
    rows, from_blocks = picked_from_blocks(tmp_path / "db", *PICKS)
    assert rows == read(tmp_path / "db", ALL, *PICKS, by_blocks=False)[0]
    assert from_blocks


def test_a_row_that_was_written_again_is_picked_as_it_is_now(
    log: RocksDatabase, tmp_path: Path
) -> None:
    engine, _ = log.tables()
    table, head = engine_table(log), stream_of(log).to_bytes(8)
    found = [row for row in engine.items(table, head, b"\xff") if row[0].endswith(b"3")]
    key, value = found[20]
    engine.write([table, key, value + b"!"])
    flush(log)
    rows, _ = picked_from_blocks(tmp_path / "db", "d/3/t", "d/3/u")
    assert dict(rows)[key] == value + b"!"
    assert rows == read(tmp_path / "db", ALL, "d/3/t", "d/3/u", by_blocks=False)[0]


@pytest.mark.parametrize("flushed", [False, True])
def test_rows_that_were_deleted_are_not_picked(
    log: RocksDatabase, tmp_path: Path, flushed: bool
) -> None:
    engine, table = log.tables()[0], engine_table(log)
    keys = list(engine.keys(table, b"", b"\xff"))[100:300]
    index = log.tables()[1]
    layout: Any = next(iter(index)).layout
    gone = [each for key in keys for each in (table, key, None)]
    for key in keys:
        rows = layout.index_entries.of_row(key)
        gone += [each for at in range(0, len(rows), 3) for each in (rows[at], rows[at + 1], None)]
    engine.write(gone)
    if flushed:
        flush(log)
    found, from_blocks = picked_from_blocks(tmp_path / "db", *PICKS)
    assert found == read(tmp_path / "db", ALL, *PICKS, by_blocks=False)[0]
    assert from_blocks == 0
    assert not {key for key, _ in found} & set(keys)


@pytest.mark.parametrize("place", [0.1, 0.5])
def test_damage_to_a_picked_row_ends_with_an_error(
    log: RocksDatabase, tmp_path: Path, place: float
) -> None:
    file = data_files(tmp_path / "db")[1]
    data = bytearray(file.read_bytes())
    data[int(len(data) * place)] ^= 0x20
    file.write_bytes(data)
    everything = (f"d/{number}/{end}" for number in range(11) for end in "tu")
    with pytest.raises(StorageCorrupt):
        picked_from_blocks(tmp_path / "db", *everything)


class _Lz4(Engine):
    def _table_options(self, name: str) -> rocksdict.Options:
        options = super()._table_options(name)
        lz4 = rocksdict.DBCompressionType.lz4()
        options.set_compression_per_level([lz4] * 7)
        return options


def test_compressed_blocks(tmp_path: Path) -> None:
    path = tmp_path / "db"
    database = RocksDatabase.open(path, config=CONFIG, now_us=START, engine=_Lz4)
    fill(database, START)
    flush(database)
    (file,) = data_files(path)
    table = TableFile(file)
    places = table.blocks_of(stream_of(database), 0, 2 * START)
    blocks = table.read(places.starts, places.sizes)
    assert len(blocks.data) > file.stat().st_size
    rows, from_blocks, columns = read(path, ALL, by_blocks=True)
    assert (rows, columns) == read(path, ALL, by_blocks=False)[::2]
    assert from_blocks
    picked, from_blocks = picked_from_blocks(path, *PICKS)
    assert picked == read(path, ALL, *PICKS, by_blocks=False)[0]
    assert from_blocks == len(picked)
    database.close()


@pytest.mark.parametrize("large", [3, 70_000, 300_000, 1_200_000])
def test_blocks_become_one_piece(large: int) -> None:
    lz4 = pa.Codec("lz4_raw")
    made = [bytes(large), b"", b"abc" * 900, b"x" * 14, b"y" * 15, b"z" * 270, bytes(range(255))]
    data = list(made)
    for number in (0, 2):
        data[number] = lz4.compress(made[number], asbytes=True)
    sizes: Any = np.array([len(each) for each in made])
    packed: Any = np.array([number in (0, 2) for number in range(len(made))])
    whole = Pieces(data, sizes, packed)
    few = Pieces(data[3:], sizes[3:], packed[3:])
    for pieces, expected in (([whole], made), ([few], made[3:]), ([whole, few], made + made[3:])):
        memory, starts, ends = joined(pieces)
        found = [bytes(memory[a:b]) for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
        assert found == expected
        assert len(memory) == ends[-1] + 16
    damaged = Pieces([b"\xff\xff\xff"], np.array([9]), np.array([True]))
    large_one = Pieces([b"\xff\xff\xff"], np.array([5_000_000]), np.array([True]))
    for bad in (damaged, large_one):
        with pytest.raises(NotPlain):
            joined([few, bad])


def stream_of(database: RocksDatabase) -> int:
    _, generations = database.tables()
    layout: Any = next(iter(generations)).layout
    return next(stream for stream, pattern in layout.streams() if "+" in pattern)


def test_other_formats_are_left_to_rocksdb(tmp_path: Path) -> None:
    file = tmp_path / "1.sst"
    for data in (b"", b"x" * 100):
        file.write_bytes(data)
        with pytest.raises(NotPlain):
            TableFile(file)
    with pytest.raises(NotPlain):
        TableFile(tmp_path / "2.sst")
