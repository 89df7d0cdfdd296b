"""Divides rows among partitions.

Values are Iceberg's (its specification, "Partition Transforms"): days since 1970, Murmur3 modulo
buckets. Knows no files and no Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from perdure.pipeline.lake.layouts import Layout, PartitionField

_UNIT_US: Final = {"day": 86_400_000_000, "hour": 3_600_000_000}


def parts(rows: Any, layout: Layout) -> Iterator[tuple[str, Any]]:
    """The rows of a batch by partition: its key, and its rows in their order.

    Args:
        rows: a record batch with the columns of the partition fields.
        layout: of the table.
    """
    if not layout.partition or not rows.num_rows:
        if rows.num_rows:
            yield "", rows
        return
    columns = [_values(rows.column(field.column), field) for field in layout.partition]
    codes = np.zeros(rows.num_rows, dtype=np.int64)
    coded = [column.dictionary_encode() for column in columns]
    for column in coded:
        indices = pc.fill_null(column.indices, len(column.dictionary)).to_numpy(
            zero_copy_only=False
        )
        codes = codes * (len(column.dictionary) + 1) + indices
    distinct, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    for number in range(len(distinct)):
        at = int(first[number])
        key = partition_key(layout.spec, [column[at].as_py() for column in columns])
        if len(distinct) == 1:
            yield key, rows
        else:
            yield key, rows.take(pa.array(np.flatnonzero(inverse == number)))


def partition_key(spec: int, values: Sequence[Any]) -> str:
    """A partition as files carry it: the number of its spec, and its values as JSON."""
    return f"{spec}:{msgspec.json.encode(list(values)).decode()}"


def partition_values(key: str) -> tuple[int, list[Any]]:
    """The number of the spec and the values of a key."""
    spec, _, values = key.partition(":")
    return int(spec), msgspec.json.decode(values)


def _values(array: Any, field: PartitionField) -> Any:
    word = field.transform.partition("[")[0]
    if pa.types.is_timestamp(array.type):
        if word in _UNIT_US:
            return pc.divide(array.cast(pa.int64()), _UNIT_US[word])
        if word in {"month", "year"}:
            years = pc.subtract(pc.year(array), 1970)
            months = pc.add(pc.multiply(years, 12), pc.subtract(pc.month(array), 1))
            return years if word == "year" else months
    if word == "identity":
        return array.cast(pa.int64()) if pa.types.is_timestamp(array.type) else array
    return _transformed(array, field.transform)


def _transformed(array: Any, transform: str) -> Any:
    """Any other transform, once for each value that occurs."""
    from pyiceberg.transforms import parse_transform
    from pyiceberg.types import IntegerType, LongType, StringType

    kinds = {pa.string(): StringType(), pa.int64(): LongType(), pa.int32(): IntegerType()}
    convert = parse_transform(transform).transform(kinds[array.type])
    coded = array.dictionary_encode()
    made = [convert(value) for value in coded.dictionary.to_pylist()]
    return pa.array(made).take(coded.indices)
