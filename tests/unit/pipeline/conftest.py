"""A log to write to, and the options that read it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.pipeline.options import ReadOptions
from perdure.storage.rocksdb import RocksDatabase
from tests.unit.pipeline.logs import open_log


@pytest.fixture
def database(tmp_path: Path) -> Iterator[RocksDatabase]:
    opened = open_log(tmp_path / "db")
    yield opened
    opened.close()


@pytest.fixture
def options(tmp_path: Path) -> ReadOptions:
    return ReadOptions(str(tmp_path / "db"))
