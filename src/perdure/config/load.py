"""Reads a whole configuration: defaults < file < ``PERDURE__*`` < flags.

The result has the ``Config``, the origin of every value that is not a default, and warnings.
This module reads no global state: file path, environment and flags are arguments.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, final

import msgspec

from perdure.config.bind import Binder, Problem
from perdure.config.document import DEFAULT, Document, Origin, read_document
from perdure.config.environ import Override, apply, from_environ, from_sets
from perdure.config.fields import Setting, field_types, settings
from perdure.config.listener_kinds import LISTENER_KINDS
from perdure.config.schema import Config, Listener, ListenersConfig, type_of
from perdure.config.units import parse_address
from perdure.config.validate import validate
from perdure.errors import ConfigError

REDACTED = "********"


@final
class Loaded(msgspec.Struct, frozen=True):
    """A configuration and how it came about.

    Attributes:
        config: the values.
        origins: by path with list indices; a path that is missing has its default.
        warnings: what was ignored.
    """

    config: Config
    origins: dict[str, Origin]
    warnings: tuple[str, ...]


@final
class Effective(msgspec.Struct, frozen=True):
    """One setting as it is in force; ``value`` is redacted if it is a secret."""

    path: str
    value: Any
    origin: Origin
    setting: Setting


def load(
    path: Path | None = None,
    *,
    environ: Mapping[str, str],
    sets: Iterable[str] = (),
    overrides: Iterable[Override] = (),
) -> Loaded:
    """Load a configuration.

    Args:
        path: the file; None = defaults only.
        environ: for ``${NAME}`` and ``PERDURE__*``.
        sets: ``section.name=value`` flags.
        overrides: what other flags mean (``--data``); after ``sets``.

    Raises:
        ConfigError: it cannot be used; the first problem, and how many more there are.
    """
    loaded, problems = examine(path, environ=environ, sets=sets, overrides=overrides)
    if problems:
        first = problems[0]
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        hint = first.hint or ("perdure config check shows all of them" if more else "")
        raise ConfigError(f"{first}{more}", path=first.path, hint=hint)
    assert loaded is not None
    return loaded


def examine(
    path: Path | None = None,
    *,
    environ: Mapping[str, str],
    sets: Iterable[str] = (),
    overrides: Iterable[Override] = (),
) -> tuple[Loaded | None, list[Problem]]:
    """Load a configuration and return every problem in it; None if there is one."""
    try:
        document = read_document(path, environ) if path else Document({}, {})
        flags = [*from_sets(sets), *overrides]
    except ConfigError as error:
        return None, [Problem("", error.message, "", error.hint)]
    tree = document.root
    warnings: list[str] = []
    problems: list[Problem] = []
    for override in [*from_environ(environ), *flags]:
        try:
            apply(tree, override)
        except KeyError as error:
            dotted = ".".join(override.path)
            hint = str(error.args[0])
            if override.origin.kind == "env":
                warnings.append(
                    f"{override.origin}: there is no setting {dotted}{f'; {hint}' if hint else ''}"
                )
            else:
                problems.append(Problem(dotted, "unknown setting", str(override.origin), hint))
        except ConfigError as error:
            problems.append(Problem("", error.message, "", error.hint))
    binder = Binder(document.places)
    values = binder.section(Config, tree)
    problems += binder.problems
    if problems:
        return None, problems
    config = _complete(msgspec.convert(values, Config), binder.origins)
    problems = validate(config, binder.origins)
    if problems:
        return None, problems
    return Loaded(config, binder.origins, tuple(warnings)), []


def _complete(config: Config, origins: Mapping[str, Origin]) -> Config:
    """Give each listener its kind's default address and port."""
    kinds = {
        kind: tuple(
            _with_port(listener, traits.port, given=f"listeners.{kind}.{index}.bind" in origins)
            for index, listener in enumerate(getattr(config.listeners, kind))
        )
        for kind, traits in LISTENER_KINDS.items()
    }
    return msgspec.structs.replace(config, listeners=ListenersConfig(**kinds))


def _with_port(listener: Listener, port: int, *, given: bool) -> Listener:
    address = parse_address(listener.bind, default_port=port)
    bind = str(address) if given else f"{address.host}:{port}"
    return msgspec.structs.replace(listener, bind=bind)


def effective(loaded: Loaded) -> Iterator[Effective]:
    """Every setting in force, in schema order; secrets are redacted."""
    described = {setting.path: setting for setting in settings(Config)}
    for path, value in leaves(loaded.config):
        setting = described[_template(path, loaded.config)]
        origin = loaded.origins.get(path, DEFAULT)
        hidden = (setting.secret or origin.secret) and bool(value)
        yield Effective(path, REDACTED if hidden else value, origin, setting)


def _template(path: str, config: Config) -> str:
    """The path of a setting as ``settings`` has it."""
    top, _, rest = path.partition(".")
    if top != "forwarders":
        return re.sub(r"\.\d+(?=\.)", "[]", path)
    name, _, setting = rest.partition(".")
    return f"{top}.<{type_of(config.forwarders[name])}>.{setting}"


def leaves(section: msgspec.Struct, path: str = "") -> Iterator[tuple[str, Any]]:
    """Path and value of every setting below a section, list indices included."""
    for name, shape in field_types(type(section)).items():
        below = f"{path}.{name}" if path else name
        value = getattr(section, name)
        if shape.variants:
            for entry, settings_of in value.items():
                yield from leaves(settings_of, f"{below}.{entry}")
        elif shape.section is None:
            yield below, value
        elif shape.is_list:
            for index, item in enumerate(value):
                yield from leaves(item, f"{below}.{index}")
        else:
            yield from leaves(value, below)


@final
class Changes(msgspec.Struct, frozen=True):
    """What a reload would change: paths that take effect at once, and those that do not."""

    live: tuple[str, ...]
    restart: tuple[str, ...]


def changes(old: Config, new: Config) -> Changes:
    """Compare two configurations, for a reload. A listener added or removed needs a restart."""
    reloads = {setting.path: setting.reload for setting in settings(Config)}
    before, after = dict(leaves(old)), dict(leaves(new))
    live: list[str] = []
    restart: list[str] = []
    for path in [*after, *(path for path in before if path not in after)]:
        if path in before and path in after and before[path] == after[path]:
            continue
        is_live = reloads[_template(path, new if path in after else old)] == "live"
        (live if is_live else restart).append(path)
    return Changes(tuple(live), tuple(restart))
