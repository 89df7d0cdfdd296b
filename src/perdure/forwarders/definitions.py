"""Forwarders that were added while the broker ran, and those that are paused: one file.

``<data>/forwarders.json`` is replaced as a whole, and read at start. What the configuration names
cannot be added or removed here, only paused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, final

import msgspec

from perdure.config.bind import NAME_PATTERN, Binder
from perdure.config.document import Leaf, Node, Origin
from perdure.config.schema import Config, ForwarderConfig
from perdure.errors import ConfigError, StorageUnavailable
from perdure.files import replace_file

FILE_NAME: Final = "forwarders.json"
FILE_BYTES_MAX: Final = 4 * 1024 * 1024
_ORIGIN: Final = Origin("file", FILE_NAME)


@final
class Definitions(msgspec.Struct):
    """What the file holds.

    Attributes:
        forwarders: settings by name, as they were given.
        paused: names of paused ones, those of the configuration included.
        resumed: wall times at which somebody has asked some to go on, by name: in a cluster it is
            another node, perhaps, where it has stopped.
    """

    forwarders: dict[str, dict[str, Any]] = {}
    paused: list[str] = []
    resumed: dict[str, int] = {}


def bind_settings(name: str, given: dict[str, Any]) -> ForwarderConfig:
    """The settings of a forwarder from plain values, text included (``30s``, ``true``).

    Raises:
        ConfigError: one cannot be used.
    """
    tree: dict[str, Node] = {
        "forwarders": {name: {key: _node(each) for key, each in given.items()}}
    }
    binder = Binder({})
    bound = binder.section(Config, tree)
    if binder.problems:
        first = binder.problems[0]
        raise ConfigError(f"{first.path}: {first.message}", path=first.path, hint=first.hint)
    return msgspec.convert(bound, Config).forwarders[name]


def _node(value: Any) -> Node:
    if isinstance(value, list):
        return [_node(each) for each in value]
    return Leaf(value, _ORIGIN, raw=isinstance(value, str))


def load(path: Path | None) -> Definitions:
    """What a file holds; None, or one that is not there, holds nothing.

    Raises:
        ConfigError: it cannot be read.
    """
    if path is None:
        return Definitions()
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return Definitions()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", path="storage.path") from error
    try:
        if len(data) > FILE_BYTES_MAX:
            raise ConfigError(f"{path} is larger than {FILE_BYTES_MAX} bytes", path="forwarders")
        return msgspec.json.decode(data, type=Definitions)
    except ValueError as error:
        raise ConfigError(
            f"{path}: {error}", path="forwarders", hint="restore it from a backup, or move it away"
        ) from error


def save(path: Path | None, definitions: Definitions) -> None:
    """Replace the file; it is safe against power loss when this returns.

    Raises:
        StorageUnavailable: the directory takes no writes.
    """
    if path is None:
        return
    try:
        replace_file(path, msgspec.json.format(msgspec.json.encode(definitions)) + b"\n")
    except OSError as error:
        raise StorageUnavailable(f"{path} cannot be written: {error.strerror}") from error


__all__ = ["FILE_NAME", "NAME_PATTERN", "Definitions", "bind_settings", "load", "save"]
