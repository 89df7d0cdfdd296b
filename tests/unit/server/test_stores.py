"""Which store a configuration opens, and what is told when it cannot."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from perdure.bench.ports import free_port
from perdure.config.schema import Config, PostgresConfig, RedisConfig, StorageConfig
from perdure.errors import ConfigError, StorageError, StorageLocked
from perdure.server import stores
from perdure.storage.memory import MemoryDatabase
from perdure.storage.rocksdb import RocksDatabase
from perdure.storage.rocksdb.layout import table_names
from tests.contract.values import append_all, message


def configured(path: Path, **fields: object) -> Config:
    return Config(storage=StorageConfig(path=str(path), **fields))  # type: ignore[arg-type]


def test_embedded_stores(tmp_path: Path) -> None:
    assert isinstance(stores.open_embedded(configured(tmp_path, backend="memory")), MemoryDatabase)
    database = stores.open_embedded(configured(tmp_path))
    assert isinstance(database, RocksDatabase)
    database.close()


def test_newest_messages_are_in_memory_after_a_start(tmp_path: Path) -> None:
    database = stores.open_embedded(configured(tmp_path))
    offsets = append_all(database, message("a"), message("b"))
    assert isinstance(database, RocksDatabase)
    database.close()
    database = stores.open_embedded(configured(tmp_path))
    assert isinstance(database, RocksDatabase)
    assert database._tail.between(0, offsets[-1], 9) == [
        message("a", offset=offsets[0]),
        message("b", offset=offsets[1]),
    ]
    database.close()


def test_a_damaged_message_does_not_prevent_a_start(tmp_path: Path) -> None:
    stores.open_embedded(configured(tmp_path)).close()
    database = RocksDatabase.open(tmp_path)
    (offset,) = append_all(database, message("a"))
    engine = database.tables()[0]
    (row,) = engine.keys(table_names(1)[0], b"", b"\xff")
    engine.write([table_names(1)[0], row, b""])
    database.close()
    with capture_logs() as events:
        started = stores.open_embedded(configured(tmp_path))
    assert started.last_offset == offset
    assert [event["event"] for event in events] == ["storage.tail_unread"]
    started.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize(("backend", "package"), [("redis", "hiredis"), ("postgres", "asyncpg")])
def test_a_missing_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, backend: str, package: str
) -> None:
    for name in [name for name in sys.modules if name.startswith(f"perdure.storage.{backend}")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError) as error:
        stores.make_driver(StorageConfig(backend=backend), "me")
    assert package in error.value.message
    assert f"perdure[{backend}]" in error.value.hint


@pytest.mark.parametrize("url", ["http://x", "redis://a,b", "redis://h:x"])
async def test_a_wrong_url_is_a_wrong_configuration(tmp_path: Path, url: str) -> None:
    config = configured(tmp_path, backend="redis", redis=RedisConfig(url=url))
    with pytest.raises(ConfigError):
        await stores.open_remote(config)
    # The directory is free again.
    stores.open_embedded(configured(tmp_path)).close()


@pytest.mark.parametrize("backend", ["redis", "postgres"])
async def test_a_server_that_is_not_there_is_told_without_its_password(
    tmp_path: Path, backend: str
) -> None:
    scheme = "redis" if backend == "redis" else "postgresql"
    url = f"{scheme}://me:hush-hush@127.0.0.1:{free_port()}/0"
    sections: dict[str, object] = {
        "redis": RedisConfig(url=url, connect_timeout_s=0),
        "postgres": PostgresConfig(url=url, connect_timeout_s=0),
    }
    config = configured(tmp_path, backend=backend, **{backend: sections[backend]})
    with pytest.raises(StorageError) as error:
        await stores.open_remote(config)
    assert not error.value.retriable
    assert "hush-hush" not in error.value.message + error.value.hint


async def test_one_broker_for_a_directory(tmp_path: Path) -> None:
    database = stores.open_embedded(configured(tmp_path))
    with pytest.raises(StorageLocked):
        await stores.open_remote(configured(tmp_path, backend="redis"))
    database.close()


async def test_an_identity_is_made_once(tmp_path: Path) -> None:
    config = configured(
        tmp_path,
        backend="redis",
        redis=RedisConfig(url=f"redis://127.0.0.1:{free_port()}", connect_timeout_s=0),
    )
    kept = []
    for _ in range(2):
        with pytest.raises(StorageError):
            await stores.open_remote(config)
        kept.append((tmp_path / stores.IDENTITY_FILE).read_text())
    assert kept[0] == kept[1] != ""
