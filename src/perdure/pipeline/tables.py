"""Tables of an archive: which topics go where, and which of their levels become columns.

A table takes the topics of a pattern: ``rooms/{room}/temperature``. A level in braces becomes the
column of that name, ``+`` becomes ``level_2`` (levels count from 1), and ``#`` at the end takes
the rest without a column. The first table whose pattern matches gets a message; the catch-all,
which has no pattern, gets the rest. A table of a pattern has columns for the fields of its payloads
too (``fields``); the catch-all, whose messages have nothing in common, has not. Knows no files and
no Spark.

Invariant: every message belongs to exactly one table, and the same one whenever it is asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from perdure.errors import ConfigError, MqttError
from perdure.pipeline import fields
from perdure.pipeline.fields import Fields
from perdure.pipeline.schema import BY_NAME, COLUMNS
from perdure.topic.matching import matches
from perdure.topic.names import validate_topic_filter

CATCH_ALL: Final = "messages"

_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,62}")
_LEVELS_MAX: Final = 65_536

_STORED: Final = {pa.int8(): pa.int32()}
"""Types that table formats do not have, and what is stored instead."""


class TableSpec(msgspec.Struct, frozen=True):
    """One table.

    Attributes:
        name: lower case letters, digits and underscores.
        filter: of its topics; empty = the catch-all.
        levels: (index of a level, column name), ascending.
        has_fields: fields of JSON payloads are columns.
    """

    name: str
    filter: str = ""
    levels: tuple[tuple[int, str], ...] = ()
    has_fields: bool = False


def parse_table(text: str) -> TableSpec:
    """A table from ``name=pattern``.

    Raises:
        ConfigError: name, pattern or a column cannot be used.
    """
    name, equals, pattern = text.partition("=")
    if not equals or not _NAME.fullmatch(name):
        raise ConfigError(
            f"table {text!r}: expected name=pattern",
            path="table",
            hint="for example rooms=rooms/{room}/+; names have a-z, 0-9 and _",
        )
    levels: list[tuple[int, str]] = []
    parts: list[str] = []
    for index, level in enumerate(pattern.split("/")):
        column = ""
        if level == "+":
            column = f"level_{index + 1}"
        elif level.startswith("{") and level.endswith("}"):
            column = level[1:-1]
            level = "+"
        parts.append(level)
        if column:
            levels.append((index, column))
    columns = [column for _, column in levels]
    for column in columns:
        if not _NAME.fullmatch(column) or column in BY_NAME or columns.count(column) > 1:
            raise ConfigError(f"table {name}: {column!r} cannot be a column", path="table")
    topic_filter = "/".join(parts)
    try:
        validate_topic_filter(topic_filter, levels_max=_LEVELS_MAX)
    except MqttError as error:
        raise ConfigError(f"table {name}: {error.message}", path="table") from error
    return TableSpec(name, topic_filter, tuple(levels), has_fields=True)


def parse_tables(texts: Sequence[str]) -> tuple[TableSpec, ...]:
    """Tables in their order, with the catch-all at the end."""
    return with_catch_all(map(parse_table, texts))


def read_tables(path: Path) -> list[str]:
    """Tables from a file, as ``name=pattern``: JSON with ``tables``, names with their patterns.

    Raises:
        ConfigError: it is no such file.
    """
    try:
        found = msgspec.json.decode(path.read_bytes(), type=_TablesFile).tables
    except ValueError as error:
        raise ConfigError(
            f"{path}: {error}", path="tables", hint='expected {"tables": {"name": "pattern"}}'
        ) from error
    return [f"{name}={pattern}" for name, pattern in found.items()]


class _TablesFile(msgspec.Struct):
    tables: dict[str, str]


def with_catch_all(specs: Iterable[TableSpec]) -> tuple[TableSpec, ...]:
    """Tables in their order, with the catch-all at the end.

    Raises:
        ConfigError: two have the same name.
    """
    found = (*specs, TableSpec(CATCH_ALL))
    names = [spec.name for spec in found]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"two tables have the name {name}", path="table")
    return found


def without_fields(specs: Iterable[TableSpec]) -> tuple[TableSpec, ...]:
    """Tables whose payloads stay as they are."""
    return tuple(msgspec.structs.replace(spec, has_fields=False) for spec in specs)


def reserved(spec: TableSpec) -> frozenset[str]:
    """Columns that no field of a payload can have."""
    return frozenset(BY_NAME) | {column for _, column in spec.levels}


def table_schema(spec: TableSpec, known: Fields | None = None) -> Any:
    """The Arrow schema of a table: topic, the columns of its levels, those of the message, and
    those of the payload's fields."""
    found = [pa.field("topic", pa.string())]
    found += [pa.field(column, pa.string()) for _, column in spec.levels]
    found += [
        pa.field(column.name, _STORED.get(column.type, column.type))
        for column in COLUMNS
        if column.name != "topic"
    ]
    return pa.schema(found + fields.schema_fields(known or {}))


def split(batch: Any, specs: Sequence[TableSpec], positions: Sequence[int]) -> list[Any]:
    """The rows of a batch for each table, without the fields of payloads.

    Args:
        batch: all columns of ``schema``.
        specs: tables, the catch-all last.
        positions: rows up to this offset are in the table already, one for each table.
    """
    coded = batch.column("topic").dictionary_encode()
    topics = coded.dictionary.to_pylist()
    homes = pa.array([_home(topic, specs) for topic in topics], pa.int32()).take(coded.indices)
    found = []
    for number, spec in enumerate(specs):
        mask = pc.and_(
            pc.equal(homes, number), pc.greater(batch.column("offset"), positions[number])
        )
        rows = batch.filter(mask)
        columns = {name: rows.column(name) for name in rows.schema.names}
        columns |= _levels(rows.column("topic"), spec)
        schema = table_schema(spec)
        arrays = [columns[field.name].cast(field.type) for field in schema]
        found.append(pa.RecordBatch.from_arrays(arrays, schema=schema))
    return found


def _home(topic: str, specs: Sequence[TableSpec]) -> int:
    """Which table a topic belongs to."""
    for number, spec in enumerate(specs):
        if not spec.filter or matches(spec.filter, topic):
            return number
    raise AssertionError("there is no catch-all")


def _levels(topics: Any, spec: TableSpec) -> dict[str, Any]:
    coded = topics.dictionary_encode()
    split_topics = [topic.split("/") for topic in coded.dictionary.to_pylist()]
    return {
        column: pa.array([levels[index] for levels in split_topics], pa.string()).take(
            coded.indices
        )
        for index, column in spec.levels
    }
