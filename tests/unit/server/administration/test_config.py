"""The configuration in force, and live changes of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from perdure.admin.problems import Refused
from perdure.admin.records.config import GetConfig, PatchConfig, ReloadConfig, SetLogLevel
from perdure.clock import SystemClock
from perdure.config.environ import Override
from perdure.config.live_settings import LIVE_FILE, LiveSettings
from perdure.config.load import Loaded, effective, load
from perdure.errors import ConfigError
from perdure.server.administration import config as operations
from perdure.server.administration.config import ConfigOperations
from perdure.server.administration.service import AdminService, Call
from perdure.server.administration.socket import LOCAL


class Settings:
    """A configuration file, and what is asked of it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.file = directory / "perdure.yaml"
        self.file.write_text(f"storage: {{path: {directory}}}\nauth: {{password_file: users}}\n")
        self.live = LiveSettings(self.read)
        self.failed: dict[str, str] = {}
        self.refuses = ""
        self.operations = ConfigOperations(self.live, self.reload)
        self.service = AdminService([self.operations], audit=self, clock=SystemClock())

    async def record(self, _record: object) -> None: ...

    def read(self, more: Sequence[Override]) -> Loaded:
        return load(self.file, environ={}, overrides=more)

    def reload(self) -> dict[str, str]:
        self.live.reload()
        if self.refuses and (value := self.live.loaded.config.auth.acl_file):
            return {operations.CONFIGURATION: f"{self.refuses}: there is no {value}"}
        return self.failed

    async def value(self, path: str) -> tuple[Any, str]:
        page = await self.operations.show(GetConfig(prefix=path), Call(LOCAL))
        return page.items[0].value, page.items[0].origin


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(tmp_path)


async def test_a_change_is_in_force_and_outlasts_the_process(
    settings: Settings, tmp_path: Path
) -> None:
    call = Call(LOCAL)
    patch = PatchConfig(settings={"log.level": "debug", "auth.superusers": ["eva"]})
    change = await settings.operations.patch(patch, call)
    assert (sorted(change.changed), change.needs_restart) == (["auth.superusers", "log.level"], [])
    assert (call.before["log.level"], call.after["log.level"]) == ("info", "debug")
    assert await settings.value("log.level") == ("debug", "api")
    assert json.loads((tmp_path / LIVE_FILE).read_text())["log.level"] == "debug"
    assert (tmp_path / LIVE_FILE).stat().st_mode & 0o777 == 0o600
    again = LiveSettings(settings.read)
    assert again.loaded.config.auth.superusers == ("eva",)
    await settings.operations.patch(PatchConfig(settings={"log.level": None}), Call(LOCAL))
    assert await settings.value("log.level") == ("info", "default")
    done = await settings.operations.set_log_level(SetLogLevel(level="error"), Call(LOCAL))
    assert (done.level, await settings.value("log.level")) == ("error", ("error", "api"))


async def test_what_is_in_force_is_looked_up_once(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[int] = []

    def counted(loaded: Loaded) -> Any:
        looked.append(1)
        return effective(loaded)

    monkeypatch.setattr(operations, "effective", counted)
    first = await settings.operations.show(GetConfig(), Call(LOCAL))
    assert await settings.operations.show(GetConfig(), Call(LOCAL)) == first
    assert len(looked) == 1
    await settings.operations.patch(PatchConfig(settings={"log.level": "debug"}), Call(LOCAL))
    assert (await settings.operations.show(GetConfig(), Call(LOCAL))).revision != first.revision
    assert len(looked) == 2


@pytest.mark.parametrize(
    "values",
    [
        {"storage.path": "/elsewhere"},
        {"log.level": "loud"},
        {"log": {}},
        {"nothing.here": 1},
        {"log.level": "debug", "log.repeat_max": -1},
    ],
)
async def test_a_change_that_cannot_be_leaves_all_as_it_was(
    settings: Settings, tmp_path: Path, values: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError):
        await settings.operations.patch(PatchConfig(settings=values), Call(LOCAL))
    assert not (tmp_path / LIVE_FILE).exists()
    assert await settings.value("log.level") == ("info", "default")


async def test_a_change_that_cannot_be_in_force_does_not_wait_for_the_next_start(
    settings: Settings, tmp_path: Path
) -> None:
    await settings.operations.patch(PatchConfig(settings={"log.level": "debug"}), Call(LOCAL))
    revision = (await settings.operations.show(GetConfig(), Call(LOCAL))).revision
    kept = (tmp_path / LIVE_FILE).read_text()
    settings.refuses = "auth.acl_file"
    patch = PatchConfig(settings={"auth.acl_file": "nowhere", "log.level": "error"})
    with pytest.raises(ConfigError, match="nowhere"):
        await settings.operations.patch(patch, Call(LOCAL))
    assert (tmp_path / LIVE_FILE).read_text() == kept
    assert LiveSettings(settings.read).loaded.config.log.level == "debug"
    assert (await settings.operations.show(GetConfig(), Call(LOCAL))).revision == revision


async def test_who_has_read_an_older_configuration_changes_nothing(settings: Settings) -> None:
    revision = (await settings.operations.show(GetConfig(), Call(LOCAL))).revision
    patch = PatchConfig(settings={"log.level": "debug"}, if_match=revision)
    change = await settings.operations.patch(patch, Call(LOCAL))
    assert change.revision != revision
    with pytest.raises(Refused) as caught:
        await settings.operations.patch(patch, Call(LOCAL))
    assert caught.value.problem.code == "precondition_failed"


async def test_a_reload_says_what_waits_for_a_restart(settings: Settings) -> None:
    text = settings.file.read_text()
    settings.file.write_text(text + "mqtt: {topic_levels_max: 7}\nlog: {level: error}\n")
    settings.failed = {"tls": "no file"}
    change = await settings.operations.reload(ReloadConfig(), Call(LOCAL))
    assert (change.changed, change.needs_restart) == (["log.level"], ["mqtt.topic_levels_max"])
    assert change.failed == {"tls": "no file"}


def test_a_file_that_holds_nonsense_is_told(tmp_path: Path) -> None:
    (tmp_path / LIVE_FILE).write_text("{")
    with pytest.raises(ConfigError, match=LIVE_FILE):
        Settings(tmp_path)
    (tmp_path / LIVE_FILE).write_text('{"log.level": "loud"}')
    with pytest.raises(ConfigError, match="must be one of"):
        Settings(tmp_path)


async def test_without_a_configuration_that_can_be_read_again() -> None:
    with pytest.raises(Refused) as caught:
        await ConfigOperations(None, dict).show(GetConfig(), Call(LOCAL))
    assert caught.value.problem.code == "not_available"
