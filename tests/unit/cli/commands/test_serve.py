"""perdure serve: what it hands to the server, and what it refuses."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from perdure.cli.main import run
from perdure.config.live_settings import LiveSettings
from perdure.config.schema import Config
from perdure.observe import logs


class App:
    """Stands for the server: remembers what it was given."""

    def __init__(self) -> None:
        self.configs: list[Config] = []
        self.reload: Callable[[], Config] | None = None

    def run(
        self,
        config: Config,
        *,
        reload: Callable[[], Config],
        greet: Callable[[str], object] | None = None,
        live: LiveSettings,
    ) -> int:
        assert live.loaded.config == config
        self.configs.append(config)
        self.reload = reload
        return 0


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> App:
    found = App()
    module = ModuleType("perdure.server.app")
    module.run = found.run  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "perdure.server.app", module)
    return found


def test_needs_nothing(app: App) -> None:
    assert run(["serve"]) == 0
    assert app.configs == [Config()]


def test_flags_win(app: App, tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("storage: {path: a}\nmqtt: {maximum_qos: 1}\n")
    flags = ["--data", "d", "--bind", "localhost:99", "--set", "storage.path=b"]
    assert run(["serve", "-c", str(path), *flags]) == 0
    (config,) = app.configs
    assert config.storage.path == "d"
    assert config.listeners.tcp[0].bind == "localhost:99"
    assert config.mqtt.maximum_qos == 1


def test_reload_reads_the_file_again(app: App, tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("log: {level: info}\n")
    run(["serve", "-c", str(path), "--data", "d"])
    path.write_text("log: {level: debug}\n")
    assert app.reload is not None
    again = app.reload()
    assert (again.log.level, again.storage.path) == ("debug", "d")
    assert logs.is_debug()


def test_reload_tells_what_needs_a_restart(
    app: App, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("mqtt: {maximum_qos: 1}\n")
    run(["serve", "-c", str(path)])
    path.write_text("mqtt: {maximum_qos: 2}\nretention: {time_s: 5d}\n")
    assert app.reload is not None
    assert app.reload().retention.time_s == 5 * 86_400
    (line,) = capsys.readouterr().err.splitlines()
    assert "config.needs_restart" in line
    assert "mqtt.maximum_qos" in line
    assert "retention" not in line
    app.reload()
    assert capsys.readouterr().err == ""


def test_refuses_to_be_open_by_accident(app: App, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["serve", "--bind", "0.0.0.0:1883"]) == 78
    error = capsys.readouterr().err
    assert error.startswith("perdure: --bind: listeners.tcp.0.bind: 0.0.0.0:1883 is open to other")
    assert "auth.allow_anonymous=always" in error
    assert app.configs == []
    assert run(["serve", "--bind", "0.0.0.0:1883", "--set", "auth.allow_anonymous=always"]) == 0
    assert len(app.configs) == 1


def test_unknown_variables_are_logged(
    app: App, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PERDURE__MQTT__MAX_QOS", "1")
    assert run(["serve"]) == 0
    assert "config.ignored" in capsys.readouterr().err


def test_a_profile_is_written_when_the_server_has_ended(app: App, tmp_path: Path) -> None:
    path = tmp_path / "broker.collapsed"
    assert run(["serve", "--data", "d", "--profile", str(path)]) == 0
    assert len(app.configs) == 1
    assert path.exists()


def test_a_profile_that_cannot_be_written(
    app: App, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "none" / "broker.collapsed"
    assert run(["serve", "--data", "d", "--profile", str(path)]) == 65
    assert f"cannot write {path}: No such file or directory" in capsys.readouterr().err
    assert app.configs == []
