"""A log is opened where options say, and closed."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.errors import StorageUnavailable
from perdure.pipeline.address import Remote
from perdure.pipeline.log_index import opened
from perdure.pipeline.options import ReadOptions
from tests.unit.pipeline.logs import START, append, open_log


def test_a_directory(tmp_path: Path) -> None:
    database = open_log(tmp_path / "db")
    append(database, ["a"], at=START)
    with opened(ReadOptions(str(tmp_path / "db"))) as index:
        assert index.database_id == database.format.database_id
        newest = index.newest()
        assert newest is not None
        assert newest.offset == START
    database.close()
    with (
        pytest.raises(StorageUnavailable, match="holds no database"),
        opened(ReadOptions(str(tmp_path / "other"))),
    ):
        pass


def test_a_broker_that_is_not_there(unused_tcp_port: int) -> None:
    remote = Remote(f"http://127.0.0.1:{unused_tcp_port}", wait_s=0)
    for patient in (False, True):
        with (
            pytest.raises(StorageUnavailable, match="cannot reach"),
            opened(ReadOptions("", remote=remote), patient=patient),
        ):
            pass
