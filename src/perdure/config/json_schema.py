"""The configuration as JSON Schema, for editors and for checks before a deployment.

What is text in a file may be a number in it (``30s``, ``64MiB``) or come from elsewhere
(``${NAME}``), so the schema takes text wherever ``config.bind`` does. What it refuses, a start
refuses as well; a start looks at more (``perdure config check``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from perdure.config.bind import NAME_PATTERN
from perdure.config.environ import PREFIX
from perdure.config.fields import FieldType, field_types
from perdure.config.schema import Config

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

_FROM_ELSEWHERE: Final = {"type": "string", "pattern": r"\$\{"}
_MEASURED: Final[Mapping[str, str]] = {
    "bytes": r"^ *[0-9][0-9A-Za-z. ]*$",
    "s": r"^ *[0-9][0-9a-z. ]*$",
    "ms": r"^ *[0-9][0-9a-z. ]*$",
    "us": r"^ *[0-9][0-9a-z. ]*$",
}
"""Forms of numbers with a unit behind them, by the unit of the setting."""

Schema = dict[str, Any]


def json_schema() -> Schema:
    """The schema of a whole file."""
    made = _section(Config, ())
    return {
        "$schema": DIALECT,
        "title": "Perdure",
        "description": (Config.__doc__ or "").strip(),
        **made,
    }


def _section(kind: type[msgspec.Struct], path: tuple[str, ...]) -> Schema:
    defaults = kind()
    properties: Schema = {}
    for name, shape in field_types(kind).items():
        below = (*path, name)
        if shape.variants:
            properties[name] = _named(shape.variants, below)
        elif shape.section is None:
            properties[name] = _setting(shape, getattr(defaults, name), below)
        elif shape.is_list:
            one = _section(shape.section, below)
            properties[name] = {"anyOf": [one, {"type": "array", "items": one}]}
        else:
            about = {"description": (shape.section.__doc__ or "").strip()}
            properties[name] = {**about, **_section(shape.section, below)}
    return {
        "type": ["object", "null"] if path else "object",
        "properties": properties,
        "additionalProperties": False,
    }


def _named(variants: Mapping[str, type[msgspec.Struct]], path: tuple[str, ...]) -> Schema:
    """Sections by name, each of the class that its ``type`` says."""
    kinds = []
    for tag, variant in variants.items():
        made = _section(variant, (*path, "name"))
        made["type"] = "object"
        made["properties"] = {"type": {"const": tag}, **made["properties"]}
        made["required"] = ["type"]
        made["description"] = (variant.__doc__ or "").strip()
        kinds.append(made)
    return {
        "type": ["object", "null"],
        "propertyNames": {"pattern": f"^{NAME_PATTERN}$"},
        "additionalProperties": {"oneOf": kinds},
    }


def _setting(shape: FieldType, default: Any, path: tuple[str, ...]) -> Schema:
    assert shape.meta is not None
    plain = _scalar(shape)
    found: Schema = {
        "description": shape.meta.description or "",
        "anyOf": [*plain, {"type": "array", "items": {"anyOf": plain}}] if shape.is_list else plain,
        "x-reload": (shape.meta.extra or {}).get("reload", "restart"),
        "x-variable": PREFIX + "__".join(path).upper(),
    }
    if not shape.secret:
        found["default"] = list(default) if isinstance(default, tuple) else default
    if shape.unit:
        found["x-unit"] = shape.unit
    return found


def _scalar(shape: FieldType) -> list[Schema]:
    kind = shape.item if shape.is_list else shape.kind
    if kind is bool:
        words = {
            "type": "string",
            "pattern": "^ *(?:[Tt]rue|[Ff]alse|[Yy]es|[Nn]o|[Oo]n|[Oo]ff) *$",
        }
        return [{"type": "boolean"}, words, _FROM_ELSEWHERE]
    if kind is int:
        number: Schema = {"type": "integer"}
        if shape.minimum is not None:
            number["minimum"] = shape.minimum
        if shape.maximum is not None:
            number["maximum"] = shape.maximum
        text = {"type": "string", "pattern": _MEASURED.get(shape.unit, r"^[0-9_]+$")}
        return [number, text, _FROM_ELSEWHERE]
    if shape.choices:
        return [{"enum": list(shape.choices)}, _FROM_ELSEWHERE]
    return [{"type": "string"}]
