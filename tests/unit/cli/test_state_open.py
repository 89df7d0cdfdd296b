"""What is said when a broker's state cannot be looked into where the configuration says."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from perdure.bench.ports import free_port
from perdure.cli.exit_codes import CommandFailed
from perdure.cli.main import run
from perdure.cli.state_open import open_directory_state, open_server_state, place
from perdure.config.schema import PostgresConfig, RedisConfig, StorageConfig

Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize("backend", ["redis", "postgres"])
def test_streams_are_for_a_data_directory(backend: str, capsys: Capture) -> None:
    assert run(["storage", "streams", "--set", f"storage.backend={backend}"]) == 64
    told = capsys.readouterr().err
    assert f"storage.backend is {backend}" in told
    assert "storage read" in told


@pytest.mark.parametrize("command", [["storage", "info"], ["sessions", "list"]])
def test_memory_keeps_nothing(command: list[str], tmp_path: Path, capsys: Capture) -> None:
    sets = ["--set", "storage.backend=memory", "--data", str(tmp_path)]
    assert run([*command, *sets]) == 67
    assert "memory: nothing is kept" in capsys.readouterr().err


@pytest.mark.parametrize("backend", ["redis", "postgres"])
def test_a_stopped_broker_that_kept_its_sessions_in_a_server(
    directory: Path, backend: str, capsys: Capture
) -> None:
    """Not even if the directory holds what an earlier broker left in it."""
    sets = ["--set", f"storage.backend={backend}", "--data", str(directory)]
    assert run(["sessions", "discard", "plain", "--yes", *sets]) == 67
    told = capsys.readouterr().err
    assert f"storage.backend is {backend}: this needs the running broker" in told
    assert run(["sessions", "show", "plain", "--data", str(directory)]) == 0


def test_rotate_needs_the_running_broker(tmp_path: Path, capsys: Capture) -> None:
    assert run(["storage", "rotate", "--set", "storage.backend=redis", "--data", str(tmp_path)])
    assert "no broker" in capsys.readouterr().err


def test_a_data_directory(directory: Path) -> None:
    storage = StorageConfig(path=str(directory))
    with open_directory_state(storage) as opened:
        assert opened.database.retained_count == 1
    assert place(storage) == str(directory)
    with pytest.raises(CommandFailed), open_directory_state(StorageConfig(backend="memory")):
        pass


@pytest.mark.parametrize("backend", ["redis", "postgres"])
def test_nobody_there(backend: str, capsys: Capture) -> None:
    url = f"{'redis' if backend == 'redis' else 'postgresql'}://u:hidden@127.0.0.1:{free_port()}"
    sets = ["--set", f"storage.backend={backend}", "--set", f"storage.{backend}.url={url}"]
    assert run(["storage", "info", *sets]) == 75
    told = capsys.readouterr().err
    assert "hidden" not in told
    assert len(told.strip().splitlines()) <= 2


@pytest.mark.parametrize("backend", ["redis", "postgres"])
def test_an_extra_that_is_not_installed_is_named(
    monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    monkeypatch.setitem(sys.modules, f"perdure.storage.{backend}.driver", None)
    storage = StorageConfig(
        backend="redis" if backend == "redis" else "postgres",
        redis=RedisConfig(url="redis://x"),
        postgres=PostgresConfig(url="postgresql://x"),
    )
    with pytest.raises(CommandFailed) as caught, open_server_state(storage):
        pass
    assert f"perdure[{backend}]" in caught.value.hint
