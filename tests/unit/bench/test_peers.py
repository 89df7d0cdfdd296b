"""Configurations of peers are stated without the machine's paths and ports."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure import __version__
from perdure.bench.errors import BenchError
from perdure.bench.peers import PEERS
from perdure.pure import build


def test_perdure_is_the_one_that_runs_here(tmp_path: Path) -> None:
    started = PEERS["perdure"].prepare(tmp_path / "a")
    assert started.broker.version == f"{__version__} {build()}"
    assert started.broker.configuration == "perdure serve --data DIR/data --bind 127.0.0.1:PORT"
    assert started.broker.durability == "PUBACK after fsync"


@pytest.mark.parametrize("name", [name for name in PEERS if name != "perdure"])
def test_a_peer_is_described_by_its_configuration(name: str, tmp_path: Path) -> None:
    started = PEERS[name].prepare(tmp_path / "a", program="/bin/true")
    broker = started.broker
    assert broker.name == name
    assert "PORT" in broker.configuration
    assert str(tmp_path) not in broker.configuration
    assert str(started.port) not in broker.configuration
    assert "PUBACK" in broker.durability
    written = list((tmp_path / "a").iterdir())
    assert any(str(started.port) in path.read_text() for path in written)


def test_a_peer_that_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("perdure.bench.peers._SYSTEM_PATH", "")
    monkeypatch.setattr(PEERS["rabbitmq"], "_folder", "")
    for name, peer in PEERS.items():
        if name != "perdure":
            with pytest.raises(BenchError, match="not installed"):
                peer.prepare(tmp_path)


def test_the_version_may_be_in_the_name_of_the_folder(tmp_path: Path) -> None:
    program = tmp_path / "rabbitmq_server-3.10.8/sbin/rabbitmq-server"
    program.parent.mkdir(parents=True)
    program.touch()
    link = tmp_path / "rabbitmq-server"
    link.symlink_to(program)
    started = PEERS["rabbitmq"].prepare(tmp_path / "a", program=str(link))
    assert started.broker.version == "3.10.8"


def test_a_folder_of_its_own_comes_before_the_search_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("own", "path"):
        program = tmp_path / folder / "rabbitmq-server"
        program.parent.mkdir()
        program.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setattr(PEERS["rabbitmq"], "_folder", str(tmp_path / "own"))
    assert PEERS["rabbitmq"].program() == str(tmp_path / "own/rabbitmq-server")
    monkeypatch.setattr(PEERS["rabbitmq"], "_folder", str(tmp_path / "none"))
    assert PEERS["rabbitmq"].program() == str(tmp_path / "path/rabbitmq-server")
