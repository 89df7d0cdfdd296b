"""Configurations of peers are stated without the machine's paths and ports."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure import __version__
from perdure.bench.errors import BenchError
from perdure.bench.peers import PEERS


def test_perdure_is_the_one_that_runs_here(tmp_path: Path) -> None:
    started = PEERS["perdure"].prepare(tmp_path / "a")
    assert started.broker.version in (f"{__version__} pure Python", f"{__version__} compiled")
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
    for name, peer in PEERS.items():
        if name != "perdure":
            with pytest.raises(BenchError, match="not installed"):
                peer.prepare(tmp_path)
