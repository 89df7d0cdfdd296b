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
    written = "".join(path.read_text() for path in (tmp_path / "a").iterdir())
    assert str(started.port) in written or str(started.port) in " ".join(started.process._command())


def test_a_peer_that_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("perdure.bench.peer._SYSTEM_PATH", "")
    for variable in ("GOBIN", "GOPATH", "CARGO_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / "none"))
    monkeypatch.setattr(PEERS["rabbitmq"], "folder", "")
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
    monkeypatch.setattr(PEERS["rabbitmq"], "folder", str(tmp_path / "own"))
    assert PEERS["rabbitmq"].program() == str(tmp_path / "own/rabbitmq-server")
    monkeypatch.setattr(PEERS["rabbitmq"], "folder", str(tmp_path / "none"))
    assert PEERS["rabbitmq"].program() == str(tmp_path / "path/rabbitmq-server")


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return path


MOCHI = "#!/bin/sh\n# mod\tgithub.com/mochi-mqtt/server/v2\tv2.7.9\n"


def test_what_other_installers_have_built_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("perdure.bench.peer._SYSTEM_PATH", "")
    monkeypatch.delenv("GOBIN", raising=False)
    monkeypatch.setenv("GOPATH", str(tmp_path / "go"))
    monkeypatch.setenv("CARGO_HOME", str(tmp_path / "cargo"))
    assert PEERS["mochi"].program() is None
    # Go names a program after its folder; another one of that name is not Mochi.
    other = program(tmp_path / "go/bin/cmd", "#!/bin/sh\n")
    assert PEERS["mochi"].program() is None
    other.write_text(MOCHI, encoding="utf-8")
    assert PEERS["mochi"].program() == str(other)
    rust = program(tmp_path / "cargo/bin/rumqttd", "#!/bin/sh\n")
    assert PEERS["rumqttd"].program() == str(rust)


@pytest.mark.parametrize("option", ["-config", "-tcp"])
def test_mochi_is_started_as_its_program_takes_it(option: str, tmp_path: Path) -> None:
    path = program(tmp_path / "mochi", MOCHI + f"echo '  {option} string' >&2\n")
    started = PEERS["mochi"].prepare(tmp_path / "a", program=str(path))
    assert started.broker.version == "2.7.9"
    assert (tmp_path / "a/mochi.yaml").exists() == (option == "-config")
