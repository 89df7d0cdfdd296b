"""The columns of a message table, as Arrow and as Spark name their types.

Knows no Spark and no bytes. Invariant: the Arrow type of a column is exactly the one that Spark's
``to_arrow_schema(..., timezone="UTC")`` makes of its Spark type; Spark refuses a batch otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa

from perdure.errors import ConfigError

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
USER_PROPERTIES: Final = pa.list_(
    pa.field(
        "element",
        pa.struct([pa.field("name", pa.string(), nullable=True), pa.field("value", pa.string())]),
        nullable=True,
    )
)


class ColumnSpec(NamedTuple):
    """One column.

    Attributes:
        name: as in SQL.
        type: Arrow type.
        spark: Spark type, in its DDL.
        about: what is in it, for the documentation.
    """

    name: str
    type: Any
    spark: str
    about: str


COLUMNS: Final = (
    ColumnSpec("topic", pa.string(), "string", "topic name"),
    ColumnSpec("payload", pa.binary(), "binary", "application bytes"),
    ColumnSpec("client_id", pa.string(), "string", "publisher; empty for the broker itself"),
    ColumnSpec("offset", pa.int64(), "bigint", "position in the log, and its order"),
    ColumnSpec("published_at", TIMESTAMP, "timestamp", "when the broker took it"),
    ColumnSpec("qos", pa.int8(), "tinyint", "0, 1 or 2, as published"),
    ColumnSpec("retain", pa.bool_(), "boolean", "the RETAIN flag, as published"),
    ColumnSpec("expires_at", TIMESTAMP, "timestamp", "end of its message expiry, or null"),
    ColumnSpec("payload_format", pa.int8(), "tinyint", "payload format indicator, or null"),
    ColumnSpec("content_type", pa.string(), "string", "or null"),
    ColumnSpec("response_topic", pa.string(), "string", "or null"),
    ColumnSpec("correlation_data", pa.binary(), "binary", "or null"),
    ColumnSpec(
        "user_properties",
        USER_PROPERTIES,
        "array<struct<name:string,value:string>>",
        "in order, names may repeat; null if there is none",
    ),
    ColumnSpec("generation", pa.int32(), "int", "generation of the log"),
    ColumnSpec("structure", pa.string(), "string", "learned structure, + where a level varies"),
)
"""All columns, in the order of ``select *``."""

BY_NAME: Final = {column.name: column for column in COLUMNS}

PROPERTY_COLUMNS: Final = frozenset(
    {"payload_format", "content_type", "response_topic", "correlation_data", "user_properties"}
)


def arrow_schema(names: Sequence[str]) -> Any:
    """The Arrow schema of some columns.

    Raises:
        ConfigError: a column is unknown.
    """
    unknown = [name for name in names if name not in BY_NAME]
    if unknown:
        raise ConfigError(
            f"unknown column {unknown[0]!r}", hint=f"the columns are {', '.join(BY_NAME)}"
        )
    return pa.schema([pa.field(name, BY_NAME[name].type) for name in names])


def ddl(names: Sequence[str] | None = None) -> str:
    """Columns in Spark's DDL; all of them by default."""
    return ", ".join(f"{name} {BY_NAME[name].spark}" for name in names or BY_NAME)
