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
from typing import Any, Final, TypeAlias, final

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

BEYOND: Final = "beyond"
"""Stands in ``Seen`` for whole numbers beyond a double, which no column takes."""

Seen: TypeAlias = dict[str, dict[str, int]]
"""How many values of each type were found for each column."""

RARE: Final = "rare"
"""Stands in ``Seen`` for values whose names are not kept."""

SEEN_MAX: Final = 2_000
"""Names without a column whose values are counted one by one."""


_DENSE_MAX: Final = 256
"""Fields of a batch that have a list with a place for each row; there is no end to rarer ones."""


@final
class Sparse(dict[int, Any]):
    """The values of a field that few rows have, by row; None for all others."""

    def __missing__(self, row: int) -> None:
        return None


Columns: TypeAlias = dict[str, "list[Any] | Sparse"]
"""What a batch has of each field: by row, None where there is nothing."""

_VALUE: Final = "value"
_WHOLE: Final = frozenset(("long", LARGE))
_LONG_MIN: Final = -(OFFSET_MAX + 1)
_UNUSABLE: Final = re.compile(r"[^a-z0-9_]+")
_TYPES: Final = {bool: "boolean", float: "double", str: "string", list: "string", dict: "string"}


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


def look_at(decoded: Sequence[object], reserved: Collection[str]) -> Columns:
    """The values of every field, in memory of the size of the payloads, whatever names they have.

    Args:
        decoded: what each payload says; None = nothing.
        reserved: columns that are no fields.
    """
    count = len(decoded)
    columns: Columns = {}
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
            dense = len(columns) < _DENSE_MAX
            column = columns[name] = [None] * count if dense else Sparse()
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


def count(columns: Columns) -> Seen:
    """How many values of each type the columns have."""
    seen: Seen = {}
    for name, column in columns.items():
        values = column.values() if isinstance(column, Sparse) else column
        found: Counter[str] = Counter()
        for kind, number in Counter(map(type, values)).items():
            if kind is int:
                longs = sum(1 for value in values if type(value) is int and _is_long(value))
                found["long"] += longs
                if longs < number:
                    beyond = sum(1 for value in values if type(value) is int and _is_beyond(value))
                    found[BEYOND] += beyond
                    found[LARGE] += number - longs - beyond
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


def bounded(seen: Seen, known: Collection[str]) -> Seen:
    """A count of at most ``SEEN_MAX`` names beside those that have a column: names that are data
    have no end. The values of the rarest of the others are counted together, as in no column."""
    others = [name for name in seen if name not in known]
    if len(others) <= SEEN_MAX:
        return seen
    others.sort(key=lambda name: (name != UNDECODED, -sum(seen[name].values()), name))
    rare = others[SEEN_MAX // 2 :]
    left = dict(seen)
    number = sum(sum(left.pop(name).values()) for name in rare)
    return add(left, {UNDECODED: {RARE: number}})


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
    types = {name: _type_of_most(kinds) for name, kinds in seen.items() if name not in known}
    fresh = sorted(name for name, kind in types.items() if kind)
    if len(known) + len(fresh) > FIELDS_MAX:
        fresh.sort(key=lambda name: (-sum(seen[name].values()), name))
        fresh = sorted(fresh[: max(0, FIELDS_MAX - len(known))])
    found.update({name: types[name] for name in fresh})
    return found


def _type_of_most(kinds: Mapping[str, int]) -> str:
    """The type of a column for values of these; empty = there are none that a column takes."""
    large = kinds.get(LARGE, 0)
    numbers = kinds.get("long", 0) + kinds.get("double", 0) + large
    best = max(numbers, kinds.get("string", 0), kinds.get("boolean", 0))
    if not best:
        return ""
    if numbers == best:
        return "double" if kinds.get("double") or large > kinds.get("long", 0) else "long"
    return "string" if kinds.get("string") == best else "boolean"


def arrays(columns: Columns, fields: Mapping[str, str], rows: int) -> list[Any]:
    """Arrow arrays of the fields, in their order; values of other types are null."""
    made = []
    for name, kind in fields.items():
        column = columns.get(name)
        if column is None:
            made.append(pa.nulls(rows, ARROW[kind]))
        else:
            values = map(column.__getitem__, range(rows)) if isinstance(column, Sparse) else column
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


def _is_beyond(value: int) -> bool:
    try:
        float(value)
    except OverflowError:
        return True
    return False


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
