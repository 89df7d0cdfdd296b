"""A database on a disk that fails when a test says so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.storage.rocksdb import RocksDatabase
from tests.contract.values import NOW_US
from tests.unit.storage.rocksdb.faults import Disk


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def database(path: Path, disk: Disk) -> Iterator[RocksDatabase]:
    database = RocksDatabase.open(path, now_us=NOW_US, engine=disk.engine)
    yield database
    database.close()
