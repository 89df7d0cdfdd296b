"""What a start says, and what it asks of the system."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.config.schema import AuthConfig, Config, LimitsConfig, StorageConfig
from perdure.config.schema.storage import RocksdbConfig
from perdure.server import startup
from perdure.server.startup import CONNECTIONS_MIN, bounded_by_files, facts, say_start


class Log:
    """Keeps what is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, dict[str, Any]]] = []

    def info(self, event: str, **values: Any) -> None:
        self.told.append((event, values))

    warning = info


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    made = Log()
    monkeypatch.setattr(startup, "log", made)
    return made


def test_the_line_has_what_an_operator_must_know(log: Log) -> None:
    config = Config(
        storage=StorageConfig(path="/var/lib/perdure", durability="os"),
        auth=AuthConfig(password_file="users", allow_anonymous="never"),
    )
    say_start(config, open_files=1_000_000)
    ((event, values),) = log.told
    assert event == "server.starting"
    assert values["data"] == "/var/lib/perdure"
    assert values["durability"] == "os"
    assert values["authentication"] == "passwords"
    assert (values["open_files"], values["connections_max"]) == (1_000_000, 100_000)
    for part in ("/var/lib/perdure", "os:", "passwords", "100,000 connections"):
        assert part in values["summary"]


def test_too_few_files_are_told_with_the_way_out(log: Log) -> None:
    say_start(Config(), open_files=1024)
    (_, (event, values)) = log.told
    assert event == "server.few_open_files"
    assert values["connections_max"] == 768
    assert "LimitNOFILE=" in values["hint"]
    log.told.clear()
    say_start(Config(limits=LimitsConfig(connections_max=500)), open_files=1024)
    assert [event for event, _ in log.told] == ["server.starting"]


@pytest.mark.parametrize(
    ("open_files", "tables", "connections"),
    [(1 << 30, 512, 100_000), (10_640, 512, 10_000), (64, 512, 48), (4, 512, CONNECTIONS_MIN)],
)
def test_the_store_keeps_its_descriptors(open_files: int, tables: int, connections: int) -> None:
    config = Config(storage=StorageConfig(rocksdb=RocksdbConfig(max_open_files=tables)))
    assert bounded_by_files(config, open_files).connections_max == connections


def test_who_may_come_in(log: Log) -> None:
    assert "this machine" in facts(Config(), open_files=9)["authentication"]
    nobody = Config(auth=AuthConfig(allow_anonymous="never"))
    assert "nobody" in facts(nobody, open_files=9)["authentication"]
    say_start(Config(auth=AuthConfig(allow_anonymous="always")), open_files=1 << 30)
    assert [event for event, _ in log.told] == ["server.starting", "server.anonymous"]
    memory = Config(storage=StorageConfig(backend="memory"))
    assert facts(memory, open_files=9)["durability"] == "memory"
