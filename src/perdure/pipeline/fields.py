"""Columns out of payloads: what fields there are, of which types, and their values.

A field of an object becomes a column of its name; one of a nested object is joined to the names
above it (``{"position": {"lat": 1}}`` is ``position_lat``); a payload that is no object is the
column ``value``. Names are lower case letters, digits and underscores, so that no reader has to
quote them; a name that the table has already gets ``payload_`` before it.

Types are ``boolean``, ``long``, ``double`` and ``string``. Arrays, and objects nested deeper than
``COLUMN_DEPTH_MAX``, are strings of JSON. A new column takes the type of most of its values; later
only ``long`` becomes ``double``. A value of another type is null in its column: columns are a view
of the payload, which a table always keeps whole.

Knows no files and no Spark. Invariant: while rules are the same, what is in a column depends on the
payload and the column's type alone, so that a file can be made again from the payloads in it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec
import pyarrow as pa

from perdure.limits import OFFSET_MAX
from perdure.payloads.values import COLUMN_DEPTH_MAX

FIELDS_MAX: Final = 200
"""Columns of a table that come from payloads; names that are data would make thousands."""

NAME_MAX: Final = 63

ARROW: Final = {
    "boolean": pa.bool_(),
    "long": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
}
"""Types of columns, with what Arrow calls them."""

Fields: TypeAlias = dict[str, str]
"""Column names with their types, in the order of the table."""

NONE: Final[Mapping[str, str]] = {}

UNDECODED: Final = ""
"""Stands in ``Seen`` for payloads that are not what they were declared to be."""

LARGE: Final = "large"
"""Stands in ``Seen`` for whole numbers beyond 64 bits: they make no column wider, as one of them
would take from all others what a double does not hold."""

Seen: TypeAlias = dict[str, dict[str, int]]
"""How many values of each type were found for each column."""

_VALUE: Final = "value"
_WHOLE: Final = frozenset(("long", LARGE))
_LONG_MIN: Final = -(OFFSET_MAX + 1)
_UNUSABLE: Final = re.compile(r"[^a-z0-9_]+")
_TYPES: Final = {bool: "boolean", float: "double", str: "string", list: "string", dict: "string"}

_decoder = msgspec.json.Decoder()


def column_name(path: str, reserved: Collection[str]) -> str:
    """The column of a field.

    Args:
        path: its name, after those of the objects around it.
        reserved: columns that are no fields.
    """
    name = _UNUSABLE.sub("_", path.lower())[:NAME_MAX]
    if not name or name[0].isdigit():
        name = f"_{name}"
    return f"payload_{name}" if name in reserved else name


def look(payloads: Any, reserved: Collection[str]) -> dict[str, list[Any]]:
    """The fields of JSON payloads, a binary array; see ``look_at``."""
    return look_at([_json(payload) for payload in payloads.to_pylist()], reserved)


def _json(payload: bytes) -> object:
    try:
        return _decoder.decode(payload)
    except (ValueError, RecursionError):
        return None


def look_at(decoded: Sequence[object], reserved: Collection[str]) -> dict[str, list[Any]]:
    """The values of every field, a list as long as the payloads for each column.

    Args:
        decoded: what each payload says; None = nothing.
        reserved: columns that are no fields.
    """
    count = len(decoded)
    columns: dict[str, list[Any]] = {}
    names: dict[str, str] = {}

    def put(row: int, path: str, value: Any, depth: int) -> None:
        if value is None:
            return
        if type(value) is dict and depth < COLUMN_DEPTH_MAX:
            for key, each in value.items():
                put(row, f"{path}_{key}" if path else key, each, depth + 1)
            return
        name = names.get(path)
        if name is None:
            name = names[path] = column_name(path, reserved)
        column = columns.get(name)
        if column is None:
            column = columns[name] = [None] * count
        # Two fields of one payload may have one column: the first is in it.
        if column[row] is None:
            column[row] = value

    for row, value in enumerate(decoded):
        if type(value) is dict:
            for key, each in value.items():
                put(row, key, each, 1)
        else:
            put(row, _VALUE, value, 1)
    return columns


def count(columns: Mapping[str, list[Any]]) -> Seen:
    """How many values of each type the columns have."""
    seen: Seen = {}
    for name, values in columns.items():
        found: Counter[str] = Counter()
        for kind, number in Counter(map(type, values)).items():
            if kind is int:
                longs = sum(1 for value in values if type(value) is int and _is_long(value))
                found["long"] += longs
                found[LARGE] += number - longs
            elif kind in _TYPES:
                found[_TYPES[kind]] += number
        seen[name] = {kind: number for kind, number in found.items() if number}
    return seen


def add(one: Seen, other: Seen) -> Seen:
    """Both counts together."""
    total = {name: Counter(kinds) for name, kinds in one.items()}
    for name, kinds in other.items():
        total.setdefault(name, Counter()).update(kinds)
    return {name: dict(kinds) for name, kinds in total.items()}


def grown(known: Mapping[str, str], seen: Seen, declared: Mapping[str, str] = NONE) -> Fields:
    """The columns of a table after values were seen: its own, some of them wider, and new ones.

    New columns come in alphabetical order, whatever the order in which they were found; those that
    a schema declares come first, in its order, and stay as it says: values do not change them, only
    a later schema does.
    """
    found: Fields = dict(known)
    for name, kind in declared.items():
        if name in found:
            # A later schema may say so of a column that is there.
            if (found[name], kind) == ("long", "double"):
                found[name] = kind
        elif len(found) < FIELDS_MAX:
            found[name] = kind
    known = dict(found)
    for name, kinds in seen.items():
        if known.get(name) == "long" and kinds.get("double") and name not in declared:
            found[name] = "double"
    fresh = sorted(name for name in seen if name not in known)
    if len(known) + len(fresh) > FIELDS_MAX:
        fresh.sort(key=lambda name: (-sum(seen[name].values()), name))
        fresh = sorted(fresh[: max(0, FIELDS_MAX - len(known))])
    for name in fresh:
        most = _type_of_most(seen[name])
        if most is not None:
            found[name] = most
    return found


def _type_of_most(kinds: Mapping[str, int]) -> str | None:
    large = kinds.get(LARGE, 0)
    numbers = kinds.get("long", 0) + kinds.get("double", 0) + large
    best = max(numbers, kinds.get("string", 0), kinds.get("boolean", 0))
    if not best:
        return None
    if numbers == best:
        return "double" if kinds.get("double") or large > kinds.get("long", 0) else "long"
    return "string" if kinds.get("string") == best else "boolean"


def arrays(columns: Mapping[str, list[Any]], fields: Mapping[str, str], rows: int) -> list[Any]:
    """Arrow arrays of the fields, in their order; values of other types are null."""
    made = []
    for name, kind in fields.items():
        values = columns.get(name)
        if values is None:
            made.append(pa.nulls(rows, ARROW[kind]))
        else:
            made.append(pa.array(map(_FITTING[kind], values), ARROW[kind], size=rows))
    return made


def kept(rows: Any, fields: Mapping[str, str]) -> list[Any]:
    """Arrow arrays of the fields, from columns of rows that were made before, maybe less wide."""
    there = set(rows.schema.names)
    return [
        # A whole number beyond 53 bits becomes the nearest double, as it does out of a payload.
        rows.column(name).cast(ARROW[kind], safe=False)
        if name in there
        else pa.nulls(rows.num_rows, ARROW[kind])
        for name, kind in fields.items()
    ]


def misfits(seen: Seen, fields: Mapping[str, str]) -> int:
    """How many values are in no column."""
    return sum(
        number
        for name, kinds in seen.items()
        for kind, number in kinds.items()
        if kind != fields.get(name) and not (kind in _WHOLE and fields.get(name) == "double")
    )


def schema_fields(fields: Mapping[str, str]) -> list[Any]:
    """The fields as Arrow names them."""
    return [pa.field(name, ARROW[kind]) for name, kind in fields.items()]


def is_within(own: Mapping[str, str], fields: Mapping[str, str]) -> bool:
    """Whether a file with its own columns can be in a table with these."""
    return own.items() <= fields.items()


def total(counts: Iterable[Seen]) -> Seen:
    """All counts together."""
    found: Seen = {}
    for each in counts:
        found = add(found, each)
    return found


def _is_long(value: int) -> bool:
    return _LONG_MIN <= value <= OFFSET_MAX


def _boolean(value: Any) -> Any:
    return value if type(value) is bool else None


def _long(value: Any) -> Any:
    return value if type(value) is int and _is_long(value) else None


def _double(value: Any) -> Any:
    if type(value) is float:
        return value
    if type(value) is int:
        try:
            return float(value)
        except OverflowError:
            return None
    return None


def _string(value: Any) -> Any:
    if type(value) is str:
        return value
    if type(value) is list or type(value) is dict:
        return msgspec.json.encode(value).decode()
    return None


_FITTING: Final[Mapping[str, Callable[[Any], Any]]] = {
    "boolean": _boolean,
    "long": _long,
    "double": _double,
    "string": _string,
}
