"""``PERDURE__SECTION__NAME`` and ``--set section.name=value``: overrides of single settings.

A variable's name follows from the setting's path: upper case, ``__`` for each dot. A list of
sections takes its only member's settings directly, or by number
(``PERDURE__LISTENERS__TCP__1__BIND``). Values are YAML.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import final

import msgspec

from perdure.config.bind import suggestion
from perdure.config.document import Leaf, Node, Origin, parse_yaml
from perdure.config.fields import field_types
from perdure.config.schema import Config
from perdure.errors import ConfigError

PREFIX = "PERDURE__"


@final
class Override(msgspec.Struct, frozen=True):
    """One assignment: where to, what, and who says so."""

    path: tuple[str, ...]
    text: str
    origin: Origin


def from_environ(environ: Mapping[str, str]) -> list[Override]:
    """The overrides in an environment, in name order."""
    return [
        Override(tuple(name.removeprefix(PREFIX).lower().split("__")), text, Origin("env", name))
        for name, text in sorted(environ.items())
        if name.startswith(PREFIX)
    ]


def from_sets(assignments: Iterable[str]) -> list[Override]:
    """The overrides of ``--set`` flags, in order.

    Raises:
        ConfigError: one of them has no ``=``.
    """
    found = []
    for assignment in assignments:
        path, equals, text = assignment.partition("=")
        if not equals:
            raise ConfigError(f"--set {assignment}: expected section.name=value", path=path.strip())
        origin = Origin("flag", f"--set {path.strip()}")
        found.append(Override(tuple(path.strip().split(".")), text, origin))
    return found


def apply(tree: dict[str, Node], override: Override) -> None:
    """Put an override into a tree.

    Raises:
        KeyError: there is no such setting; the argument is a suggestion, or empty.
        ConfigError: the path exists and cannot take this value.
    """
    kind: type[msgspec.Struct] = Config
    here = tree
    dotted = ".".join(override.path)
    parts = list(override.path)
    while True:
        name = parts.pop(0)
        shape = field_types(kind).get(name)
        if shape is None:
            raise KeyError(suggestion(name, field_types(kind)))
        if shape.variants:
            _named(here, name, parts, override)
            return
        if shape.section is None:
            if parts:
                raise KeyError(f"{dotted.removesuffix('.' + '.'.join(parts))} is one value")
            here[name] = Leaf(override.text, override.origin, raw=True)
            return
        kind = shape.section
        if not parts:
            here[name] = _subtree(override)
            return
        if shape.is_list:
            here = _member(here, name, parts, override)
            if not parts:
                raise ConfigError(f"{override.origin}: name a setting below {dotted}", path=dotted)
        else:
            here = _child(here, name)


def _subtree(override: Override) -> Node:
    """A whole section given as YAML, such as ``{bind: ..., backlog: 10}``."""
    document = parse_yaml(f"value: {override.text}", str(override.origin), {})
    return _relabel(document.root["value"], override.origin)


def _relabel(node: Node, origin: Origin) -> Node:
    if isinstance(node, dict):
        return {key: _relabel(child, origin) for key, child in node.items()}
    if isinstance(node, list):
        return [_relabel(child, origin) for child in node]
    return Leaf(node.value, origin)


def _named(here: dict[str, Node], name: str, parts: list[str], override: Override) -> None:
    """A setting of a section by name; the binder knows its type, and whether there is one."""
    if not parts:
        here[name] = _subtree(override)
        return
    section, *rest = parts
    here = _child(here, name)
    if not rest:
        here[section] = _subtree(override)
    elif len(rest) > 1:
        raise KeyError(f"a setting is {name}.{section}.{rest[0]}")
    else:
        _child(here, section)[rest[0]] = Leaf(override.text, override.origin, raw=True)


def _child(here: dict[str, Node], name: str) -> dict[str, Node]:
    child = here.get(name)
    if not isinstance(child, dict):
        child = {}
        here[name] = child
    return child


def _member(
    here: dict[str, Node], name: str, parts: list[str], override: Override
) -> dict[str, Node]:
    """The member of a list of sections that the rest of a path means; eats its number."""
    numbered = parts[0].isdigit()
    index = int(parts.pop(0)) if numbered else 0
    node = here.get(name)
    if isinstance(node, dict) and index > 0:
        node = [node]
        here[name] = node
    if not isinstance(node, list):
        if index > 0:
            raise ConfigError(f"{override.origin}: there is no {name} listener 0 yet")
        return _child(here, name)
    if not numbered and len(node) > 1:
        raise ConfigError(
            f"{override.origin}: there are {len(node)} {name} listeners",
            hint=f"name one by its number: {name}.0",
        )
    if index > len(node):
        raise ConfigError(f"{override.origin}: there are only {len(node)} {name} listeners")
    if index == len(node):
        node.append({})
    member = node[index]
    if not isinstance(member, dict):
        member = {}
        node[index] = member
    return member
