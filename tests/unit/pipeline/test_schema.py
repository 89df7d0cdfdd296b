"""Columns have the types that Spark expects of them, to the letter."""

from __future__ import annotations

import pytest

from perdure.errors import ConfigError

pa = pytest.importorskip("pyarrow")
from perdure.pipeline import schema  # noqa: E402 - needs pyarrow


def test_arrow_types_are_those_that_spark_makes() -> None:
    types = pytest.importorskip("pyspark.sql.types")
    to_arrow_schema = pytest.importorskip("pyspark.sql.pandas.types").to_arrow_schema
    simple = {
        "string": types.StringType(),
        "binary": types.BinaryType(),
        "bigint": types.LongType(),
        "timestamp": types.TimestampType(),
        "tinyint": types.ByteType(),
        "int": types.IntegerType(),
        "boolean": types.BooleanType(),
        "array<struct<name:string,value:string>>": types.ArrayType(
            types.StructType().add("name", "string").add("value", "string")
        ),
    }
    struct = types.StructType()
    for column in schema.COLUMNS:
        assert simple[column.spark].simpleString() == column.spark
        struct = struct.add(column.name, simple[column.spark])
    expected = to_arrow_schema(struct, timezone="UTC")
    assert schema.arrow_schema([column.name for column in schema.COLUMNS]).equals(expected)


def test_unknown_columns_are_named() -> None:
    with pytest.raises(ConfigError, match="unknown column 'nope'"):
        schema.arrow_schema(["topic", "nope"])


def test_ddl() -> None:
    assert schema.ddl(["topic", "offset"]) == "topic string, offset bigint"
    assert schema.ddl().startswith("topic string, payload binary, ")
    assert len(schema.ddl().split(" string")) > 4
