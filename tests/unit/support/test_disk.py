"""The disk that obeys: what it fails, what it keeps."""

from __future__ import annotations

import functools
import random
import shutil
from pathlib import Path

import pytest

from perdure.config.schema import RocksdbConfig
from perdure.errors import StorageFull, StorageUnavailable
from perdure.storage.rocksdb.engine import META
from tests.support.disk import BROKEN, FULL, Disk, OrderedEngine, read_synced


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def disk(tmp_path: Path, data: Path) -> Disk:
    return Disk(tmp_path / "disk", data)


def open_engine(disk: Disk, data: Path) -> OrderedEngine:
    return functools.partial(OrderedEngine, disk.path)(data, RocksdbConfig())


def test_what_was_synced_survives_and_nothing_else(disk: Disk, data: Path, tmp_path: Path) -> None:
    engine = open_engine(disk, data)
    engine.write([META, b"kept", b"1"])
    engine.sync()
    engine.write([META, b"lost", b"2"])
    # As a kill leaves it: closing would write.
    dead = tmp_path / "dead"
    shutil.copytree(data, dead)
    engine.abandon()
    assert Disk(disk.path, dead).lose_power() > 0
    engine = open_engine(disk, dead)
    assert engine.get(META, b"kept") == b"1"
    assert engine.get(META, b"lost") is None
    engine.abandon()


def test_chance_may_let_more_survive_and_never_less(disk: Disk, data: Path) -> None:
    data.mkdir()
    log = data / "000004.log"
    left = set()
    for seed in range(30):
        log.write_bytes(b"x" * 100)
        (disk.path / "synced").write_text('{"000004.log": 40}\n')
        lost = disk.lose_power(random.Random(seed))
        size = log.stat().st_size
        assert size == 100 - lost
        assert read_synced(disk.path) == {"000004.log": size}
        left.add(size)
    assert min(left) == 40
    assert len(left) > 5


def test_a_log_without_a_sync_is_gone_unless_a_table_proves_one(disk: Disk, data: Path) -> None:
    data.mkdir()
    for name in ("000004.log", "000008.log"):
        (data / name).write_bytes(b"x" * 10)
    (data / "000009.sst").write_bytes(b"")
    assert disk.lose_power() == 10
    assert (data / "000004.log").stat().st_size == 10
    assert not (data / "000008.log").exists()


@pytest.mark.parametrize("operation", ["write", "sync", "read", "table", "open"])
def test_each_operation_fails_until_the_disk_is_healed(
    disk: Disk, data: Path, operation: str
) -> None:
    def use() -> None:
        engine = open_engine(disk, data)
        try:
            engine.write([META, b"key", b"value"])
            engine.sync()
            engine.create_table("g1")
            engine.drop_table("g1")
            assert engine.get(META, b"key") == b"value"
            assert list(engine.keys(META, b"a", b"z")) == [b"key"]
            assert list(engine.items(META, b"a", b"z")) == [(b"key", b"value")]
            assert engine.seeker(META, b"z").seek(b"a") == b"key"
        finally:
            engine.abandon()

    use()
    disk.fail(**{operation: FULL})
    with pytest.raises(StorageFull):
        use()
    disk.fail(**{operation: BROKEN})
    with pytest.raises(StorageUnavailable, match="Input/output"):
        use()
    disk.heal()
    use()
