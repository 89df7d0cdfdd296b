"""Operations on the configuration."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, final

from perdure.admin.operation import Request
from perdure.admin.problems import Refused
from perdure.admin.records.config import (
    ConfigChange,
    ConfigPage,
    ConfigSchema,
    GetConfig,
    GetConfigSchema,
    GetLogLevel,
    LogLevel,
    PatchConfig,
    ReloadConfig,
    SetLogLevel,
    SettingRow,
)
from perdure.admin.revisions import check_revision, revision_of
from perdure.config.json_schema import json_schema
from perdure.config.live_settings import LiveSettings
from perdure.config.load import Effective, Loaded, changes, effective
from perdure.config.schema import Config
from perdure.errors import ConfigError
from perdure.server.administration.service import Call, Handler

CONFIGURATION: Final = "configuration"
"""The part of a reload that puts settings in force: all of them, or none."""


@final
class ConfigOperations:
    """Answers what is asked of the configuration.

    Args:
        live: what is in force; None = this broker was started without one that could be read again.
        reload: has everything read its files again; what failed by part, and why.
    """

    def __init__(self, live: LiveSettings | None, reload: Callable[[], dict[str, str]]) -> None:
        self._settings = live
        self._reload = reload
        self._lock = asyncio.Lock()
        self._shown: _Shown | None = None

    def handlers(self) -> Mapping[type[Request[Any]], Handler]:
        """By request."""
        return {
            GetConfig: self.show,
            GetConfigSchema: self.schema,
            PatchConfig: self.patch,
            ReloadConfig: self.reload,
            GetLogLevel: self.log_level,
            SetLogLevel: self.set_log_level,
        }

    async def show(self, request: GetConfig, _call: Call) -> ConfigPage:
        """Settings in force."""
        rows = [
            row
            for row in self._rows()
            if row.setting.startswith(request.prefix)
            and (not request.changed or row.origin != "default")
        ]
        return ConfigPage(items=rows, estimated_total=len(rows), revision=self._revision())

    async def schema(self, _request: GetConfigSchema, _call: Call) -> ConfigSchema:
        """What a file may hold."""
        found = json_schema()
        return ConfigSchema(
            schema=found["$schema"],
            title=found["title"],
            description=found["description"],
            type=found["type"],
            properties=found["properties"],
            additional_properties=found["additionalProperties"],
        )

    async def patch(self, request: PatchConfig, call: Call) -> ConfigChange:
        """Change live settings, durably, and put them in force.

        What cannot be in force is not kept either: the next start would fail by it.
        """
        async with self._lock:
            check_revision(request.if_match, self._revision(), "the configuration")
            call.before = self._values(request.settings)
            kept = self._live.change(request.settings)
            change = self._again()
            if CONFIGURATION in change.failed:
                self._live.put_back(kept)
                self._again()
                raise ConfigError(change.failed[CONFIGURATION], hint="nothing was changed")
            call.after = self._values(request.settings)
            return change

    async def reload(self, _request: ReloadConfig, call: Call) -> ConfigChange:
        """Read everything again."""
        async with self._lock:
            call.after = change = self._again()
            return change

    async def log_level(self, _request: GetLogLevel, _call: Call) -> LogLevel:
        """The level in force."""
        return LogLevel(self._live.loaded.config.log.level)

    async def set_log_level(self, request: SetLogLevel, call: Call) -> LogLevel:
        """Another one."""
        await self.patch(PatchConfig(settings={"log.level": request.level}), call)
        return LogLevel(request.level)

    @property
    def _live(self) -> LiveSettings:
        if self._settings is None:
            raise Refused("not_available", "this broker cannot read its configuration again")
        return self._settings

    def _again(self) -> ConfigChange:
        before: Config = self._live.loaded.config
        failed = self._reload()
        found = changes(before, self._live.loaded.config)
        return ConfigChange(
            changed=list(found.live),
            needs_restart=list(found.restart),
            failed=failed,
            revision=self._revision(),
        )

    def _rows(self) -> Sequence[SettingRow]:
        return self._in_force().rows

    def _values(self, paths: Mapping[str, Any]) -> dict[str, Any]:
        return {row.setting: row.value for row in self._rows() if row.setting in paths}

    def _revision(self) -> str:
        return self._in_force().revision

    def _in_force(self) -> _Shown:
        """Made once for what is loaded: it takes thousands of lookups."""
        loaded = self._live.loaded
        if self._shown is None or self._shown.loaded is not loaded:
            rows = [_row(item) for item in effective(loaded)]
            revision = revision_of([(row.setting, row.value, row.origin) for row in rows])
            self._shown = _Shown(loaded, rows, revision)
        return self._shown


class _Shown(NamedTuple):
    """The rows of one loaded configuration."""

    loaded: Loaded
    rows: Sequence[SettingRow]
    revision: str


def _row(item: Effective) -> SettingRow:
    return SettingRow(
        setting=item.path,
        value=item.value,
        origin=str(item.origin),
        unit=item.setting.unit,
        reload=item.setting.reload,
        description=item.setting.description,
    )
