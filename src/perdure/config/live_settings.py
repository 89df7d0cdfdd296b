"""Settings that were changed while the broker ran, and the configuration with them in force.

They are kept in ``live-settings.json`` in the data directory, ``{"log.level": "debug"}``, and stand
over the file, the environment and the flags, at a reload and at the next start too.

Invariant: the file holds only what can be loaded: a change is tried before it is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, final

import msgspec

from perdure.config.document import Origin
from perdure.config.environ import Override
from perdure.config.fields import settings
from perdure.config.load import Changes, Loaded, changes
from perdure.config.schema import Config
from perdure.errors import ConfigError
from perdure.files import replace_file

LIVE_FILE: Final = "live-settings.json"
FILE_BYTES_MAX: Final = 1024 * 1024

Read = Callable[[Sequence[Override]], Loaded]
"""Loads the configuration with these overrides after all others; raises ``ConfigError``."""


@final
class LiveSettings:
    """The configuration of a process and what was changed of it.

    Args:
        read: loads it.

    Attributes:
        loaded: what is in force.

    Raises:
        ConfigError: it cannot be used.
    """

    def __init__(self, read: Read) -> None:
        self._read = read
        storage = read(()).config.storage
        self._path = Path(storage.path) / LIVE_FILE if storage.traits.is_kept else None
        self._changed: dict[str, Any] = {}
        self.loaded = self._load()

    def reload(self) -> Changes:
        """Read everything again; what is different now.

        Raises:
            ConfigError: it cannot be used, and what was in force stays.
        """
        fresh = self._load()
        found = changes(self.loaded.config, fresh.config)
        self.loaded = fresh
        return found

    def change(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Keep other values of live settings, to be in force from the next ``reload``.

        Args:
            values: by path; None takes a change back.

        Returns:
            What was kept before, for ``put_back``.

        Raises:
            ConfigError: there is no such setting, it needs a restart, or cannot have the value.
        """
        live = {setting.path for setting in settings(Config) if setting.reload == "live"}
        for path in values:
            if path not in live:
                raise ConfigError(
                    f"{path:.200} is no setting that can be changed while the broker runs",
                    path=path[:200],
                    hint="GET /api/v1/config shows which are live",
                )
        changed = {**self._changed, **values}
        changed = {path: value for path, value in changed.items() if value is not None}
        self._read(_overrides(changed))
        before = self._changed
        self.put_back(changed)
        return before

    def put_back(self, kept: Mapping[str, Any]) -> None:
        """Keep what was kept before, from the next ``reload`` on.

        Raises:
            ConfigError: the file cannot be written.
        """
        if self._path is not None:
            _write(self._path, msgspec.json.format(msgspec.json.encode(kept)) + b"\n")
        self._changed = dict(kept)

    def _load(self) -> Loaded:
        if self._path is not None:
            self._changed = _read_file(self._path)
        try:
            return self._read(_overrides(self._changed))
        except ConfigError as error:
            if self._changed and self._path is not None and not error.hint:
                error.hint = f"{self._path} holds changes that were made while the broker ran"
            raise


def _overrides(values: Mapping[str, Any]) -> list[Override]:
    return [
        Override(tuple(path.split(".")), _text(value), Origin("api", "api"))
        for path, value in values.items()
    ]


def _text(value: Any) -> str:
    """A value as it would stand behind ``--set``."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _read_file(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except (FileNotFoundError, NotADirectoryError):
        return {}  # what is wrong with the directory is told by who opens it
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    try:
        return msgspec.json.decode(data, type=dict[str, Any])
    except ValueError as error:
        raise ConfigError(
            f"{path}: {error}", hint="without this file, settings are as configured"
        ) from error


def _write(path: Path, data: bytes) -> None:
    """Replace a file that only its owner may read."""
    try:
        replace_file(path, data)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from error
