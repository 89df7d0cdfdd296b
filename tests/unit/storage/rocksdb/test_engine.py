"""The engine: atomic writes, damage that is noticed, space that is given back."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.config.schema import RocksdbConfig
from perdure.errors import (
    StorageCorrupt,
    StorageError,
    StorageFull,
    StorageUnavailable,
)
from perdure.storage.rocksdb.engine import META, STATE, Engine, prefix_end, storage_error
from perdure.storage.rocksdb.iterators import CHUNK_ROWS_MAX

ALL_END = b"\xff" * 9


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "d"


@pytest.fixture
def engine(path: Path) -> Iterator[Engine]:
    engine = Engine(path, RocksdbConfig())
    yield engine
    engine.abandon()


def test_rows_are_read_within_bounds(engine: Engine) -> None:
    engine.write([STATE, b"a", b"1", STATE, b"b", b"2", STATE, b"c", b"", META, b"b", b"x"])
    assert engine.get(STATE, b"b") == b"2"
    assert engine.get(STATE, b"d") is None
    assert list(engine.items(STATE, b"b", ALL_END)) == [(b"b", b"2"), (b"c", b"")]
    assert list(engine.keys(STATE, b"", b"b")) == [b"a"]
    seeker = engine.seeker(STATE, b"c")
    assert seeker.seek(b"aa") == b"b"
    assert seeker.value() == b"2"
    assert seeker.next() is None
    assert seeker.seek(b"c") is None
    engine.write([STATE, b"b", None, STATE, b"never", None])
    assert list(engine.keys(STATE, b"", ALL_END)) == [b"a", b"c"]


def test_chunks_are_rows_in_turn_up_to_a_bound(engine: Engine) -> None:
    for number in range(300):
        engine.write([STATE, b"%03d" % number, bytes([number % 256])])
    found = list(engine.chunks(STATE, b"002", b"299"))
    assert all(0 < len(rows) <= 2 * CHUNK_ROWS_MAX for rows in found)
    rows = [each for part in found for each in part]
    assert rows[0::2] == [b"%03d" % number for number in range(2, 299)]
    assert rows[1::2] == [bytes([number % 256]) for number in range(2, 299)]
    assert list(engine.chunks(STATE, b"x", b"y")) == []


def test_the_last_key_below_a_bound(engine: Engine) -> None:
    assert engine.last_key(STATE, b"", ALL_END) is None
    for key in (b"b", b"d"):
        engine.write([STATE, key, b""])
    assert engine.last_key(STATE, b"", ALL_END) == b"d"
    assert engine.last_key(STATE, b"", b"d") == b"b"
    assert engine.last_key(STATE, b"c", b"d") is None
    assert engine.last_key(STATE, b"", b"b") is None


def test_operations_on_a_dropped_table_are_left_out(engine: Engine) -> None:
    engine.create_table("g1")
    engine.write(["g1", b"k", b"v"])
    engine.drop_table("g1")
    assert "g1" not in engine.tables
    assert engine.table_bytes("g1") == 0
    engine.write(["g1", b"k", b"v", STATE, b"k", b"v"])
    engine.sync()
    assert engine.get(STATE, b"k") == b"v"


def test_dropping_a_table_gives_its_space_back(path: Path) -> None:
    engine = Engine(path, RocksdbConfig())
    engine.create_table("g1")
    for number in range(200):
        engine.write(["g1", b"%d" % number, bytes([number]) * 20_000])
    engine.close()
    before = sum(file.stat().st_size for file in path.glob("*.sst"))
    assert before > 1_000_000
    engine = Engine(path, RocksdbConfig())
    assert engine.table_bytes("g1") > 1_000_000
    engine.drop_table("g1")
    engine.close()
    engine = Engine(path, RocksdbConfig())
    assert sum(file.stat().st_size for file in path.glob("*.sst")) < 100_000
    engine.close()


def test_an_empty_database_is_small(engine: Engine, path: Path) -> None:
    engine.sync()
    on_disk = sum(file.stat().st_blocks * 512 for file in path.iterdir())
    assert on_disk < 512 * 1024


@pytest.mark.parametrize("options", [{}, {"read_only": True}, {"read_only": True, "mapped": True}])
def test_a_damaged_block_is_noticed(path: Path, options: dict[str, bool]) -> None:
    """An iterator that ends at a damaged block must not look like the end of the table."""
    engine = Engine(path, RocksdbConfig())
    for number in range(3_000):
        engine.write([STATE, number.to_bytes(8), number.to_bytes(8) * 20])
    engine.close()
    Engine(path, RocksdbConfig()).close()
    (table,) = sorted(path.glob("*.sst"), key=lambda file: file.stat().st_size)[-1:]
    content = bytearray(table.read_bytes())
    middle = len(content) // 3
    content[middle : middle + 64] = bytes(64)
    table.write_bytes(content)
    engine = Engine(path, RocksdbConfig(), **options)
    with pytest.raises(StorageCorrupt):
        list(engine.items(STATE, b"", ALL_END))
    with pytest.raises(StorageCorrupt):
        list(engine.keys(STATE, b"", ALL_END))
    with pytest.raises(StorageCorrupt):
        list(engine.chunks(STATE, b"", ALL_END))
    seeker = engine.seeker(STATE, ALL_END)

    def walk() -> None:
        key = seeker.seek(b"")
        while key is not None:
            key = seeker.next()

    with pytest.raises(StorageCorrupt):
        walk()
    engine.abandon()


def test_errors_of_a_read_only_engine(engine: Engine, path: Path) -> None:
    engine.write([STATE, b"a", b"1"])
    reader = Engine(path, RocksdbConfig(), read_only=True)
    assert reader.get(STATE, b"a") == b"1"
    with pytest.raises(StorageUnavailable):
        reader.write([STATE, b"a", b"2"])
    reader.abandon()


def test_a_second_engine_is_refused(engine: Engine, path: Path) -> None:
    with pytest.raises(StorageUnavailable):
        Engine(path, RocksdbConfig())


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("IO error: No space left on device: While appending", StorageFull),
        ("IO error: Disk quota exceeded: x", StorageFull),
        ("IO error: File too large: x", StorageFull),
        ("Corruption: block checksum mismatch", StorageCorrupt),
        ("IO error: Writer has previous error.", StorageUnavailable),
    ],
)
def test_statuses_become_errors_of_ours(text: str, kind: type[StorageError]) -> None:
    assert type(storage_error(Exception(text))) is kind
    known = StorageFull("x")
    assert storage_error(known) is known


def test_prefix_end() -> None:
    assert prefix_end(b"a") == b"b"
    assert prefix_end(b"a\xff\xff") == b"b"
    assert b"x\xff" < prefix_end(b"x") <= b"y"


def test_blocks_and_writes_have_one_bound(path: Path) -> None:
    """What is written and not yet in a table file is taken from what blocks may have."""
    config = RocksdbConfig(write_buffer_bytes=8 * 2**20, block_cache_bytes=4 * 2**20)
    engine = Engine(path, config)
    try:
        used = engine._cache.get_usage
        empty, chance = used(), random.Random(1)
        for number in range(10):
            engine.write([STATE, b"%d" % number, chance.randbytes(2**18)])
        assert used() - empty >= 10 * 2**18
        for number in range(10, 100):
            engine.write([STATE, b"%d" % number, chance.randbytes(2**18)])
        for number in range(100):
            assert engine.get(STATE, b"%d" % number) is not None
        assert used() <= config.block_cache_bytes + config.write_buffer_bytes
    finally:
        engine.close()
