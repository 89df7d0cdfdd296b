"""Files of an Iceberg table as its metadata describe them, and columns that it is to have."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.table.sorting import NullOrder, SortDirection
from pyiceberg.transforms import IdentityTransform, parse_transform
from pyiceberg.typedef import Record
from pyiceberg.types import BooleanType, DoubleType, LongType, StringType

from perdure.errors import ConfigError, StorageConflict
from perdure.pipeline.fields import ARROW
from perdure.pipeline.lake.layouts import Layout, PartitionField
from perdure.pipeline.lake.partitions import partition_key, partition_values
from perdure.pipeline.lake.stores import local_path, scheme_of
from perdure.pipeline.sinks.contract import DataFile

_TYPES: Final = {
    "boolean": BooleanType(),
    "long": LongType(),
    "double": DoubleType(),
    "string": StringType(),
}


def place_of(location: str) -> str:
    """A location of Iceberg as we name it: a path of this machine, or a URI."""
    return local_path(location)


def location_of(place: str) -> str:
    """A place of ours as Iceberg names it: a URI."""
    return place if scheme_of(place) else Path(place).as_uri()


def data_file(opened: Any, metadata: Any, file: DataFile) -> Any:
    """A file as a manifest has it, with the statistics of its columns.

    Args:
        opened: the table, for its files.
        metadata: of the table as the transaction makes it.
        file: made under the table's current partition spec.

    Raises:
        StorageConflict: the table has another partition spec meanwhile.
    """
    spec = metadata.spec()
    values: list[Any] = []
    number = spec.spec_id
    if file.partition:
        number, values = partition_values(file.partition)
    if number != spec.spec_id or len(values) != len(spec.fields):
        raise StorageConflict(f"table {file.table} was divided in another way meanwhile")
    schema = metadata.schema()
    found = opened.io.new_input(location_of(file.path))
    with found.open() as stream:
        parquet = pq.read_metadata(stream)
    statistics = data_file_statistics_from_parquet_metadata(
        parquet_metadata=parquet,
        stats_columns=compute_statistics_plan(schema, metadata.properties),
        parquet_column_mapping=parquet_path_to_id_mapping(schema),
    )
    return IcebergFile.from_args(
        content=DataFileContent.DATA,
        file_path=location_of(file.path),
        file_format=FileFormat.PARQUET,
        partition=Record(*values),
        file_size_in_bytes=file.size,
        sort_order_id=None,
        spec_id=spec.spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )


def described(table: str, opened: Any, tasks: Iterable[Any]) -> list[DataFile]:
    """Files of a table as we describe them."""
    field = opened.schema().find_field("offset").field_id
    specs = opened.specs()
    found = []
    for task in tasks:
        file = task.file
        first, last = (
            int.from_bytes((bounds or {}).get(field, b""), "little")
            for bounds in (file.lower_bounds, file.upper_bounds)
        )
        values = [file.partition[n] for n in range(len(specs[file.spec_id].fields))]
        key = partition_key(file.spec_id, values) if values else ""
        path, size = place_of(file.file_path), file.file_size_in_bytes
        found.append(DataFile(table, path, file.record_count, size, first, last, key))
    return found


def evolve(transaction: Any, schema: Any) -> None:
    """Make the columns of a table those of a schema: new ones, and ones of another type."""
    found = {
        field.name: str(field.field_type) for field in transaction.table_metadata.schema().fields
    }
    names = {kind: name for name, kind in ARROW.items()}
    fresh = [field for field in schema if field.name not in found]
    wider = [
        field
        for field in schema
        if field.name in found and field.type in names and names[field.type] != found[field.name]
    ]
    if wider:
        # Iceberg knows no way from long to double: the column is another one of the same name.
        with transaction.update_schema(allow_incompatible_changes=True) as update:
            for field in wider:
                update.delete_column((field.name,))
    if fresh or wider:
        with transaction.update_schema(allow_incompatible_changes=True) as update:
            for field in [*wider, *fresh]:
                update.add_column((field.name,), _TYPES[names[field.type]])


def layout_of(opened: Any) -> Layout:
    """How a table's next files are made, from its current spec and order."""
    schema = opened.schema()
    spec = opened.spec()
    fields = tuple(
        PartitionField(schema.find_column_name(field.source_id), str(field.transform))
        for field in spec.fields
    )
    order = tuple(
        (schema.find_column_name(field.source_id), field.direction.value)
        for field in opened.sort_order().fields
        if str(field.transform) == "identity"
    )
    ever = [*opened.specs().values(), *opened.sort_orders().values()]
    used = {schema.find_column_name(field.source_id) for each in ever for field in each.fields}
    return Layout(spec.spec_id, fields, order, frozenset(used - {None}))


def divide(transaction: Any, wanted: list[PartitionField]) -> None:
    """Give a table another partition spec; the files that it has keep theirs.

    Raises:
        ConfigError: a column can't be divided so.
    """
    metadata = transaction.table_metadata
    schema, spec = metadata.schema(), metadata.spec()
    have = {
        PartitionField(schema.find_column_name(field.source_id), str(field.transform)): field.name
        for field in spec.fields
    }
    with transaction.update_spec() as update:
        for field, name in have.items():
            if field not in wanted:
                update.remove_field(name)
        for field in wanted:
            if field not in have:
                _check(schema, field)
                update.add_field(field.column, field.transform, field.name)


def _check(schema: Any, field: PartitionField) -> None:
    kind = schema.find_type(field.column)
    if not parse_transform(field.transform).can_transform(kind):
        raise ConfigError(
            f"column {field.column} has {kind} values, which have no {field.transform}",
            path="pipeline.tables.partition",
        )


def order(transaction: Any, wanted: list[tuple[str, str]]) -> None:
    """Give a table another sort order."""
    with transaction.update_sort_order() as update:
        for column, direction in wanted:
            add = update.asc if SortDirection(direction) == SortDirection.ASC else update.desc
            add(column, IdentityTransform(), NullOrder.NULLS_LAST)
