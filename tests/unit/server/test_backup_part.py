"""Backups that the broker makes by itself, by a real process."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from perdure.backup.directory import DirectoryPlace
from perdure.backup.keeping import read_backups
from perdure.clock import SystemClock
from perdure.config.schema import BackupConfig, Config, RocksdbConfig, StorageConfig
from perdure.errors import ConfigError
from perdure.observe.metrics import Metrics
from perdure.server import backup_part
from perdure.server.backup_part import BackupPart
from perdure.server.preflight import _backups
from perdure.storage.rocksdb import RocksDatabase
from tests.support.bounds import HANG_S


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(HANG_S):
        while not condition():
            await asyncio.sleep(0.01)


def part(data: Path, to: Path, metrics: Metrics, **options: object) -> BackupPart:
    return BackupPart(
        BackupConfig(to=str(to), every=1, keep=2),
        data,
        rocksdb=RocksdbConfig(),
        metrics=metrics,
        clock=SystemClock(),
        **options,  # type: ignore[arg-type]
    )


async def test_they_are_made_in_time_and_pruned(tmp_path: Path) -> None:
    database = RocksDatabase.open(tmp_path / "d")
    metrics = Metrics()
    made = part(tmp_path / "d", tmp_path / "b", metrics)
    await made.start()
    assert metrics.backup_age_seconds == -1
    await until(lambda: metrics.backups_made == 3)
    await made.stop()
    database.close()
    found = read_backups(DirectoryPlace(tmp_path / "b"))
    assert len(found) == 2
    assert metrics.backups_failed == metrics.backup_failed == 0
    assert 0 <= metrics.backup_age_seconds < 10
    # The next broker knows when the last one was made, and waits.
    again = Metrics()
    later = BackupPart(
        BackupConfig(to=str(tmp_path / "b"), every=3600),
        tmp_path / "d",
        rocksdb=RocksdbConfig(),
        metrics=again,
        clock=SystemClock(),
    )
    await later.start()
    await until(lambda: later._last_us > 0)
    await later.stop()
    assert again.backups_made == 0


async def test_one_that_fails_is_counted_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backup_part, "RETRY_S", 0)
    metrics = Metrics()
    failing = part(tmp_path / "none", tmp_path / "b", metrics)
    await failing.start()
    await until(lambda: metrics.backups_failed >= 1)
    await failing.stop()
    assert metrics.backup_failed == 1
    assert metrics.backup_age_seconds == -1
    dying = part(
        tmp_path / "d",
        tmp_path / "b",
        metrics,
        command=(sys.executable, "-c", "raise SystemExit(3)"),
    )
    assert "ended with 3" in (await dying._ask(make=True)).error


@pytest.mark.parametrize(
    ("backup", "storage", "path"),
    [
        (BackupConfig(every=60), StorageConfig(), "backup.to"),
        (BackupConfig(every=60, to="b"), StorageConfig(backend="redis"), "backup.every"),
    ],
)
def test_what_cannot_be_is_said_at_the_start(
    backup: BackupConfig, storage: StorageConfig, path: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        _backups(Config(backup=backup, storage=storage))
    assert caught.value.path == path
