"""The configuration in force, and the level of the log."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeAlias, final

import msgspec
from msgspec import Meta

from perdure.admin.limits import Revision
from perdure.admin.operation import Http, Operation, Page, Request

Level: TypeAlias = Literal["debug", "info", "warning", "error"]
PATCH_MAX: Final = 100
"""Settings of one change."""


@final
class SettingRow(msgspec.Struct, frozen=True, kw_only=True):
    """A setting in force.

    Attributes:
        setting: its path.
        value: secrets are redacted.
        origin: ``default``, ``file:line``, the variable, the flag, or ``api``.
        unit: of the value; empty = none.
        reload: ``live`` = it can be changed while the broker runs.
        description: what it does.
    """

    setting: str
    value: Any
    origin: str
    unit: str
    reload: str
    description: str


@final
class ConfigPage(Page[SettingRow], frozen=True, kw_only=True):
    """All settings, in the order of the reference.

    Attributes:
        revision: changes with each value; for ``If-Match``.
    """

    revision: str


@final
class ConfigChange(msgspec.Struct, frozen=True, kw_only=True):
    """What a change or a reload did.

    Attributes:
        changed: settings that have another value in force now.
        needs_restart: settings whose new value waits for a restart.
        failed: parts that kept what they had, and why.
        revision: of the configuration now.
    """

    changed: list[str]
    needs_restart: list[str]
    failed: dict[str, str]
    revision: str


@final
class LogLevel(msgspec.Struct, frozen=True):
    """The least level that is written."""

    level: Level


class GetConfig(Request[ConfigPage], frozen=True, kw_only=True):
    """Settings in force.

    Attributes:
        prefix: paths that begin so.
        changed: only what is not a default.
    """

    prefix: Annotated[str, Meta(max_length=200)] = ""
    changed: bool = False


class PatchConfig(Request[ConfigChange], frozen=True, kw_only=True):
    """Change live settings, for good: they are kept in the data directory, over all else.

    Attributes:
        settings: values by path; null takes a change back.
        if_match: the revision that was read; over HTTP the header ``If-Match``.
    """

    settings: Annotated[dict[str, Any], Meta(min_length=1, max_length=PATCH_MAX)]
    if_match: Revision = ""


@final
class ConfigSchema(msgspec.Struct, frozen=True, kw_only=True):
    """What a configuration file may hold, as JSON Schema (2020-12).

    Attributes:
        schema, title, description, type: of the schema.
        properties: sections and settings; ``x-unit``, ``x-reload`` and ``x-variable`` say what JSON
            Schema has no word for.
        additional_properties: other keys are refused.
    """

    schema: str = msgspec.field(name="$schema")
    title: str
    description: str
    type: str
    properties: dict[str, Any]
    additional_properties: bool = msgspec.field(name="additionalProperties")


class GetConfigSchema(Request[ConfigSchema], frozen=True, kw_only=True):
    """What a configuration file may hold, for editors and checks."""


class ReloadConfig(Request[ConfigChange], frozen=True, kw_only=True):
    """Read the files again, as on SIGHUP."""


class GetLogLevel(Request[LogLevel], frozen=True, kw_only=True):
    """The level in force."""


class SetLogLevel(Request[LogLevel], frozen=True, kw_only=True):
    """Write this level and above from now on, as the setting ``log.level``."""

    level: Level


OPERATIONS: Final = (
    Operation(
        name="config.show",
        summary="Settings in force, with their origin",
        request=GetConfig,
        result=ConfigPage,
        http=Http("GET", "/config"),
    ),
    Operation(
        name="config.schema",
        summary="JSON Schema of the configuration file",
        request=GetConfigSchema,
        result=ConfigSchema,
        http=Http("GET", "/config/schema"),
    ),
    Operation(
        name="config.patch",
        summary="Change live settings",
        request=PatchConfig,
        result=ConfigChange,
        right="admin",
        changes=True,
        http=Http("PATCH", "/config"),
        secret=("settings",),
    ),
    Operation(
        name="config.reload",
        summary="Read configuration, certificates, users and ACL again",
        request=ReloadConfig,
        result=ConfigChange,
        right="admin",
        changes=True,
        http=Http("POST", "/config:reload"),
    ),
    Operation(
        name="log_level.show",
        summary="Least level that is written to the log",
        request=GetLogLevel,
        result=LogLevel,
        http=Http("GET", "/log-level"),
    ),
    Operation(
        name="log_level.set",
        summary="Write another level from now on",
        request=SetLogLevel,
        result=LogLevel,
        right="admin",
        changes=True,
        http=Http("PUT", "/log-level"),
        target="level",
    ),
)
