"""Binds a tree of leaves to the schema: types, units, bounds, unknown keys, origins.

All problems of a configuration are collected, so that an operator sees them at once. The result
is plain values that ``msgspec.convert`` takes without a complaint.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any, final

import msgspec
import yaml

from perdure.config.document import DEFAULT, Leaf, Node, Origin
from perdure.config.fields import FieldType, Setting, field_types, settings
from perdure.config.schema import Config
from perdure.config.units import parse_address, parse_duration, parse_integer, parse_size

_TRUE = frozenset({"true", "yes", "on"})
_FALSE = frozenset({"false", "no", "off"})

NAME_PATTERN = r"[a-z0-9][a-z0-9_-]{0,63}"
"""Of sections by name."""


@final
class Problem(msgspec.Struct, frozen=True):
    """Something in the configuration that cannot be used.

    Attributes:
        path: the setting.
        message: what is wrong.
        where: file and line, variable or flag; empty if unknown.
        hint: what to do, or empty.
    """

    path: str
    message: str
    where: str = ""
    hint: str = ""

    def __str__(self) -> str:
        return ": ".join(part for part in (self.where, self.path, self.message) if part)


@final
class Binder:
    """Collects origins and problems while it walks a tree.

    Attributes:
        origins: by setting path, list indices included, for every value that was given.
        problems: in the order in which they were found.
    """

    def __init__(self, places: dict[str, Origin]) -> None:
        self._places = places
        self.origins: dict[str, Origin] = {}
        self.problems: list[Problem] = []

    def section(self, kind: type[msgspec.Struct], tree: Node, path: str = "") -> dict[str, Any]:
        """The plain values that a tree gives to a section; what it leaves out is left out."""
        if isinstance(tree, Leaf):
            if tree.value is not None:
                self._problem(path, "expected a section with settings below it", tree.origin)
            return {}
        if isinstance(tree, list):
            self._problem(path, "expected one section, not a list", self._place(path))
            return {}
        shapes = field_types(kind)
        bound: dict[str, Any] = {}
        for name, node in tree.items():
            below = f"{path}.{name}" if path else name
            shape = shapes.get(name)
            if shape is None:
                hint = suggestion(name, shapes)
                self._problem(below, "unknown setting", self._place(below, node), hint=hint)
            elif shape.variants:
                bound[name] = self._named(shape.variants, node, below)
            elif shape.section is None:
                self._leaf(bound, name, node, shape, below)
            elif shape.is_list:
                items: Iterable[Node] = node if isinstance(node, list) else [node]
                bound[name] = [
                    self.section(shape.section, item, f"{below}.{index}")
                    for index, item in enumerate(items)
                ]
            else:
                bound[name] = self.section(shape.section, node, below)
        return bound

    def _named(
        self, variants: Mapping[str, type[msgspec.Struct]], tree: Node, path: str
    ) -> dict[str, Any]:
        """Sections by name, each of the class that its ``type`` names."""
        bound: dict[str, Any] = {}
        if not isinstance(tree, dict):
            if not isinstance(tree, Leaf) or tree.value is not None:
                self._problem(path, "expected names with settings below them", self._place(path))
            return bound
        for name, node in tree.items():
            below = f"{path}.{name}"
            if re.fullmatch(NAME_PATTERN, name) is None:
                what = "no name: small letters, digits, - and _, 64 at most"
                self._problem(below, what, self._place(below, node))
                continue
            kind = node.get("type") if isinstance(node, dict) else None
            value = kind.value if isinstance(kind, Leaf) else None
            variant = variants.get(str(value))
            if variant is None or not isinstance(node, dict):
                what = "needs a type" if value is None else f"there is no type {value!r}"
                known = f"one of {', '.join(variants)}"
                self._problem(f"{below}.type", what, self._place(below, node), hint=known)
                continue
            rest = {key: child for key, child in node.items() if key != "type"}
            bound[name] = {"type": str(value), **self.section(variant, rest, below)}
            self.origins[f"{below}.type"] = self._place(f"{below}.type", node)
        return bound

    def _leaf(
        self, bound: dict[str, Any], name: str, node: Node, shape: FieldType, path: str
    ) -> None:
        origin = _first_origin(node) or self._place(path, node)
        try:
            bound[name] = coerce(node, shape)
        except ValueError as error:
            self._problem(path, str(error), origin)
            return
        self.origins[path] = origin

    def _place(self, path: str, node: Node | None = None) -> Origin:
        # The path in the file of a single section in a list has no index.
        plain = ".".join(part for part in path.split(".") if not part.isdigit())
        found = self._places.get(path) or self._places.get(plain)
        return found or (_first_origin(node) if node is not None else None) or DEFAULT

    def _problem(self, path: str, message: str, origin: Origin, *, hint: str = "") -> None:
        self.problems.append(Problem(path, message, origin.where, hint))


def _first_origin(node: Node) -> Origin | None:
    if isinstance(node, Leaf):
        return node.origin
    children = node.values() if isinstance(node, dict) else node
    return next((origin for child in children if (origin := _first_origin(child))), None)


def suggestion(name: str, known: Iterable[str]) -> str:
    """``did you mean ...?`` for a key that does not exist, or empty."""
    here = list(known)
    close = difflib.get_close_matches(name, here, n=1, cutoff=0.6)
    # ``key`` is little like ``private_key``, and nearer than a ``key`` of another section.
    close = close or [each for each in here if name in each.split("_")]
    if close:
        return f"did you mean {close[0]}?"
    elsewhere = [setting.path for setting in settings(Config) if _last(setting) == name]
    return f"did you mean {elsewhere[0]}?" if elsewhere else ""


def _last(setting: Setting) -> str:
    return setting.path.rpartition(".")[2]


def coerce(node: Node, shape: FieldType) -> Any:
    """The value of a leaf in its declared type.

    Raises:
        ValueError: it has another type, is out of bounds or is not one of the choices.
    """
    if shape.is_list:
        return [_scalar(leaf, shape.item, shape) for leaf in _items(node)]
    if not isinstance(node, Leaf):
        raise ValueError("expected one value")
    return _scalar(node, shape.kind, shape)


def _items(node: Node) -> list[Leaf]:
    if isinstance(node, Leaf):
        if node.raw and node.value.lstrip().startswith("["):
            try:
                parsed = yaml.safe_load(node.value)
            except yaml.YAMLError as error:
                raise ValueError(f"expected a list such as [a, b], got {node.value!r}") from error
            return [Leaf(item, node.origin) for item in parsed]
        return [node]
    found: list[Leaf] = []
    for item in node if isinstance(node, list) else [node]:
        if not isinstance(item, Leaf):
            raise ValueError("expected a list of plain values")
        found.append(item)
    return found


def _scalar(leaf: Leaf, kind: type, shape: FieldType) -> Any:
    value = leaf.value
    if value is None:
        raise ValueError("has no value")
    if kind is bool:
        return _bool(value)
    if kind is int:
        return _int(value, shape)
    return _text(value, shape)


def _bool(value: object) -> bool:
    if isinstance(value, bool):
        return value
    word = value.strip().lower() if isinstance(value, str) else ""
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    raise ValueError(f"expected true or false, got {value!r}")


def _int(value: object, shape: FieldType) -> int:
    unit = shape.unit
    if isinstance(value, str):
        if unit == "bytes":
            number = parse_size(value)
        elif unit in {"s", "ms", "us"}:
            number = parse_duration(value, unit)
        else:
            number = parse_integer(value)
    elif isinstance(value, int) and not isinstance(value, bool):
        number = value
    else:
        raise ValueError(f"expected a whole number, got {value!r}")
    if shape.minimum is not None and number < shape.minimum:
        raise ValueError(f"must be at least {shape.minimum}, is {number}")
    if shape.maximum is not None and number > shape.maximum:
        raise ValueError(f"must be at most {shape.maximum}, is {number}")
    return number


def _text(value: object, shape: FieldType) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected text, got {value!r}; put it in quotes")
    if "\0" in value:
        raise ValueError(f"no text has U+0000 in it, got {value!r}")
    if shape.choices and value not in shape.choices:
        close = difflib.get_close_matches(value, shape.choices, n=1)
        guess = f"; did you mean {close[0]}?" if close else ""
        known = ", ".join(choice for choice in shape.choices if choice)
        raise ValueError(f"must be one of {known}, is {value!r}{guess}")
    if shape.unit == "address" and value:
        # Listeners add their own default port later; here only the form counts.
        parse_address(value, default_port=0)
    return value
