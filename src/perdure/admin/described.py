"""The fields of a request in words, and what to do about a request that does not fit."""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

import msgspec

from perdure.admin.operation import Operation
from perdure.admin.problems import Refused

_PLACE: Final = re.compile(r"- at `\$\.([^`.\[]+)(?:\[[^`\]]*\])?([^`]*)`")
"""A field or an item of it, and what is wrong further in."""

_MISSING: Final = re.compile(r"missing required field `([^`]+)`$")

_RANGES: Final = (
    ("minimum", "maximum", ""),
    ("minLength", "maxLength", " characters"),
    ("minItems", "maxItems", " items"),
)


class Field(NamedTuple):
    """One field of a request.

    Attributes:
        name: as it is sent.
        kind: its type in JSON, or what it may be.
        required: there is no default.
    """

    name: str
    kind: str
    required: bool


def fields_of(operation: Operation) -> list[Field]:
    """What the request of an operation is made of."""
    schema = msgspec.json.schema_components([operation.request])[1]
    about = schema[operation.request.__name__]
    required = set(about.get("required", ()))
    return [
        Field(name, _kind(each), name in required)
        for name, each in about.get("properties", {}).items()
    ]


def result_fields(operation: Operation) -> frozenset[str]:
    """Names in the result of an operation, or in each item of the list that it is; none = it is
    no record."""
    kind = msgspec.inspect.type_info(operation.result)
    for field in getattr(kind, "fields", ()):
        if field.encode_name == "items" and isinstance(field.type, msgspec.inspect.ListType):
            kind = field.type.item_type
    kinds = kind.types if isinstance(kind, msgspec.inspect.UnionType) else (kind,)
    return frozenset(field.encode_name for each in kinds for field in getattr(each, "fields", ()))


def unfit(operation: Operation, error: Exception) -> Refused:
    """The refusal of what is no request of an operation: which field is wrong, and what it takes.

    Args:
        operation: that was asked for.
        error: of the decoder.
    """
    message = str(error)
    fields = fields_of(operation)
    place = _PLACE.search(message)
    if place is not None and place[2]:
        # What the field takes is not what is wrong.
        return Refused("bad_request", message)
    named = place or _MISSING.search(message)
    hint = "; ".join(f"{name}: {kind}" for name, kind, _ in fields if named and name == named[1])
    if not hint:
        hint = f"it takes {', '.join(name for name, _, _ in fields) or 'nothing'}"
    return Refused("bad_request", message, hint=hint)


def _kind(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    if "anyOf" in schema:
        return " | ".join(_kind(each) for each in schema["anyOf"])
    kind = [str(schema.get("type") or schema.get("$ref", "").rpartition("/")[2])]
    for least, most, of_what in _RANGES:
        if most in schema:
            kind.append(f"{schema.get(least, 0)} to {schema[most]}{of_what}")
        elif least in schema:
            kind.append(f"{schema[least]}{of_what} or more")
    if "pattern" in schema:
        kind.append(f"like {schema['pattern']}")
    return ", ".join(kind)
