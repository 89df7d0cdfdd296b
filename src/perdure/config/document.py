"""Configuration files as trees of values that know where they were written.

YAML and TOML both become nested ``dict`` and ``list`` with ``Leaf`` at the ends. Nothing here
knows the schema: a leaf whose text came from an interpolation, the environment or a flag stays
text (``raw``), and the binder gives it its type.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias, final

import msgspec
import yaml

from perdure.config.interpolate import interpolate
from perdure.errors import ConfigError

DEPTH_MAX = 16
"""Nesting of a file; the schema has four levels. Ends a YAML alias that holds itself."""

FILE_BYTES_MAX = 4 * 1024 * 1024
"""Largest configuration file."""


@final
class Origin(msgspec.Struct, frozen=True):
    """Where a value comes from.

    Attributes:
        kind: default, file, env, flag, or api (changed while the broker ran).
        where: ``file:line``, the variable's name or the flag; empty for a default.
        secret: the value was read from a secret file.
    """

    kind: Literal["default", "file", "env", "flag", "api"]
    where: str = ""
    secret: bool = False

    def __str__(self) -> str:
        return self.where or self.kind


DEFAULT = Origin("default")


@final
class Leaf(msgspec.Struct, frozen=True):
    """A value and its origin; ``raw`` text has no type yet."""

    value: Any
    origin: Origin
    raw: bool = False


Node: TypeAlias = "dict[str, Node] | list[Node] | Leaf"


@final
class Document(msgspec.Struct, frozen=True):
    """A file's content.

    Attributes:
        root: the top mapping.
        places: where each key was written, by dotted path.
    """

    root: dict[str, Node]
    places: dict[str, Origin]


def read_document(path: Path, environ: Mapping[str, str]) -> Document:
    """Read a ``.yaml``, ``.yml``, ``.json`` or ``.toml`` file.

    Raises:
        ConfigError: it cannot be read or parsed; the message has file and line.
    """
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
        text = data.decode()
    except OSError as error:
        raise ConfigError(
            f"cannot read {path}: {error.strerror}",
            hint="name a file that the broker's user may read with --config, or none for defaults",
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text") from error
    if len(data) > FILE_BYTES_MAX:
        raise ConfigError(f"{path}: larger than {FILE_BYTES_MAX} bytes")
    if path.suffix == ".toml":
        return parse_toml(text, str(path), environ)
    return parse_yaml(text, str(path), environ)


def parse_yaml(text: str, name: str, environ: Mapping[str, str]) -> Document:
    """Parse YAML (and so JSON); an empty text is an empty mapping."""
    try:
        loader = yaml.SafeLoader(text)
    except yaml.YAMLError as error:  # a control character
        raise ConfigError(f"{name}: {str(error).splitlines()[0]}") from error
    try:
        node = loader.get_single_node()
        reader = _YamlReader(loader, name, environ)
        root = {} if node is None else reader.read(node, "", 0)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        raise ConfigError(f"{name}{line}: {error.problem or error.context}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{name}: {str(error).splitlines()[0]}") from error
    except RecursionError as error:
        raise ConfigError(f"{name}: nested too deeply") from error
    finally:
        loader.dispose()
    if isinstance(root, Leaf) and root.value is None:
        root = {}
    if not isinstance(root, dict):
        raise ConfigError(f"{name}: expected a mapping of sections, such as `mqtt:`")
    return Document(root, reader.places)


class _YamlReader:
    """Turns YAML nodes into ours, and remembers the lines."""

    def __init__(self, loader: yaml.SafeLoader, name: str, environ: Mapping[str, str]) -> None:
        self._loader = loader
        self._name = name
        self._environ = environ
        self.places: dict[str, Origin] = {}

    def _origin(self, node: yaml.Node, *, secret: bool = False) -> Origin:
        return Origin("file", f"{self._name}:{node.start_mark.line + 1}", secret)

    def read(self, node: yaml.Node, path: str, depth: int) -> Node:
        if depth > DEPTH_MAX:
            raise ConfigError(f"{self._origin(node)}: nested too deeply", path=path)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path, depth)
        if isinstance(node, yaml.SequenceNode):
            return [
                self.read(item, f"{path}.{index}", depth + 1)
                for index, item in enumerate(node.value)
            ]
        assert isinstance(node, yaml.ScalarNode)
        return self._scalar(node, path)

    def _mapping(self, node: yaml.MappingNode, path: str, depth: int) -> dict[str, Node]:
        written = [key.value for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
        self._loader.flatten_mapping(node)
        found: dict[str, Node] = {}
        for key_node, value_node in node.value:
            key = key_node.value
            origin = self._origin(key_node)
            if not isinstance(key, str):
                raise ConfigError(f"{origin}: a key must be a word", path=path)
            below = f"{path}.{key}" if path else key
            if key in found and written.count(key) > 1:
                raise ConfigError(f"{origin}: {below}: written twice", path=below)
            self.places[below] = origin
            found[key] = self.read(value_node, below, depth + 1)
        return found

    def _scalar(self, node: yaml.ScalarNode, path: str) -> Leaf:
        origin = self._origin(node)
        try:
            result = interpolate(node.value, self._environ)
        except ValueError as error:
            raise ConfigError(f"{origin}: {path}: {error}", path=path) from error
        if result.changed:
            return Leaf(result.text, self._origin(node, secret=result.secret), raw=True)
        try:
            return Leaf(self._loader.construct_object(node), origin)
        except (ValueError, LookupError, AttributeError) as error:
            # A date such as 2026-99-99, or a tag on what it does not fit (`!!bool x`): the
            # constructors of PyYAML let fall what their parsing meets.
            text = f"{origin}: {path}: {node.value!r} is not a value"
            raise ConfigError(text, path=path) from error


def parse_toml(text: str, name: str, environ: Mapping[str, str]) -> Document:
    """Parse TOML."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        match = re.search(r"\(at line (\d+)", str(error))
        line = f":{match[1]}" if match else ""
        raise ConfigError(f"{name}{line}: {error}") from error
    except RecursionError as error:
        raise ConfigError(f"{name}: nested too deeply") from error
    lines = _toml_lines(text)
    reader = _TomlReader(name, lines, environ)
    root = reader.read(data, "", 0)
    assert isinstance(root, dict)
    return Document(root, reader.places)


class _TomlReader:
    """Turns tomllib's values into ours."""

    def __init__(self, name: str, lines: dict[str, int], environ: Mapping[str, str]) -> None:
        self._name = name
        self._lines = lines
        self._environ = environ
        self.places: dict[str, Origin] = {}

    def _origin(self, path: str, *, secret: bool = False) -> Origin:
        # A value inside an inline table or a list stands where its nearest named parent stands.
        nearest = path
        while nearest and nearest not in self._lines:
            nearest = nearest.rpartition(".")[0]
        line = f":{self._lines[nearest]}" if nearest else ""
        return Origin("file", f"{self._name}{line}", secret)

    def read(self, value: object, path: str, depth: int) -> Node:
        if depth > DEPTH_MAX:
            raise ConfigError(f"{self._origin(path)}: nested too deeply", path=path)
        if isinstance(value, dict):
            found: dict[str, Node] = {}
            for key, item in value.items():
                below = f"{path}.{key}" if path else key
                self.places[below] = self._origin(below)
                found[key] = self.read(item, below, depth + 1)
            return found
        if isinstance(value, list):
            return [
                self.read(item, f"{path}.{index}", depth + 1) for index, item in enumerate(value)
            ]
        if not isinstance(value, str):
            return Leaf(value, self._origin(path))
        try:
            result = interpolate(value, self._environ)
        except ValueError as error:
            raise ConfigError(f"{self._origin(path)}: {path}: {error}", path=path) from error
        origin = self._origin(path, secret=result.secret)
        return Leaf(result.text, origin, raw=result.changed)


_TOML_TABLE = re.compile(r"\s*(\[\[?)\s*([A-Za-z0-9_.\-\s\"']+?)\s*\]\]?\s*(?:#.*)?$")
_TOML_KEY = re.compile(r"\s*([A-Za-z0-9_.\-\"']+)\s*=")


def _toml_lines(text: str) -> dict[str, int]:
    """The line of each key, found by its header and name; tomllib does not tell.

    Only used in messages. Keys with unusual quoting fall back to their table's line.
    """
    lines: dict[str, int] = {}
    counts: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), 1):
        if match := _TOML_TABLE.match(line):
            table = re.sub(r"[\s\"']", "", match[2])
            if match[1] == "[[":
                index = counts.get(table, 0)
                counts[table] = index + 1
                lines.setdefault(table, number)
                table = f"{table}.{index}"
            lines.setdefault(table, number)
        elif match := _TOML_KEY.match(line):
            key = re.sub(r"[\"']", "", match[1])
            lines.setdefault(f"{table}.{key}" if table else key, number)
    return lines
