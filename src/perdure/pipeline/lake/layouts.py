"""How a table's rows are laid out in files: by partition, and in which order.

A partition field is written as Iceberg's engines do: ``day(published_at)``, ``bucket(16, device)``,
``truncate(8, topic)``, ``hour``, ``month``, ``year``, or a column's name alone. Every file has the
rows of one partition, so that a reader leaves out files by what they are named for.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from perdure.errors import ConfigError

_FIELD: Final = re.compile(
    r"\s*(?:(day|hour|month|year)\((\w+)\)|(bucket|truncate)\(\s*(\d+)\s*,\s*(\w+)\s*\)|(\w+))\s*"
)
_TIMES: Final = frozenset({"day", "hour", "month", "year"})
_SORT: Final = re.compile(r"\s*(\w+)(?:\s+(asc|desc))?\s*")
FIELDS_MAX: Final = 8
BUCKETS_MAX: Final = 10_000


class PartitionField(msgspec.Struct, frozen=True):
    """One field.

    Attributes:
        column: whose values are transformed.
        transform: as Iceberg names it: ``day``, ``bucket[16]``, ``identity``.
    """

    column: str
    transform: str

    @property
    def name(self) -> str:
        """As the table calls it: what divides in another way has another name, for pyiceberg
        adds none that a spec before it had removed at once."""
        word, _, width = self.transform.rstrip("]").partition("[")
        if word == "identity":
            return f"{self.column}_value"
        return f"{self.column}_{word}_{width}" if width else f"{self.column}_{word}"

    @property
    def kind(self) -> str:
        """What may divide a column once: ``time``, ``bucket``, ``truncate``, ``identity``."""
        word = self.transform.partition("[")[0]
        return "time" if word in _TIMES else word


class Layout(msgspec.Struct, frozen=True):
    """How the files of a table are made now.

    Attributes:
        spec: number of the partition spec in the table.
        partition: fields; empty = files take rows as they come.
        sort: columns with ``asc`` or ``desc``, which maintenance sorts by.
        used: columns that divide or sort the table's rows, or did at some time.
    """

    spec: int = 0
    partition: tuple[PartitionField, ...] = ()
    sort: tuple[tuple[str, str], ...] = ()
    used: frozenset[str] = frozenset()

    def fixed(self, fields: Mapping[str, str]) -> dict[str, str]:
        """Those of a table's fields that keep their types, for its files are told by them."""
        return {name: kind for name, kind in fields.items() if name in self.used}


def parse_partition(texts: Sequence[str]) -> tuple[PartitionField, ...]:
    """Partition fields from the setting.

    Raises:
        ConfigError: one cannot be used.
    """
    fields: list[PartitionField] = []
    for text in texts:
        found = _FIELD.fullmatch(text)
        if found is None:
            raise ConfigError(
                f"partition {text!r}: expected day(published_at), bucket(16, device) or the like",
                path="pipeline.tables.partition",
            )
        if found[1]:
            fields.append(PartitionField(found[2], found[1]))
        elif found[3]:
            if not 0 < int(found[4]) <= BUCKETS_MAX:
                raise ConfigError(
                    f"partition {text!r}: 1 to {BUCKETS_MAX}", path="pipeline.tables.partition"
                )
            fields.append(PartitionField(found[5], f"{found[3]}[{found[4]}]"))
        else:
            fields.append(PartitionField(found[6], "identity"))
    if len(fields) > FIELDS_MAX:
        raise ConfigError(
            f"partition: {FIELDS_MAX} fields at most", path="pipeline.tables.partition"
        )
    if len({(each.column, each.kind) for each in fields}) < len(fields):
        raise ConfigError(
            "partition: a column is divided once in a way: by one time, one count of buckets, "
            "one length",
            path="pipeline.tables.partition",
        )
    return tuple(fields)


def parse_sort(texts: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Columns to sort by, from the setting.

    Raises:
        ConfigError: one cannot be used.
    """
    columns = []
    for text in texts:
        found = _SORT.fullmatch(text)
        if found is None:
            raise ConfigError(
                f"sort {text!r}: expected a column, and asc or desc", path="pipeline.tables.sort"
            )
        columns.append((found[1], found[2] or "asc"))
    return tuple(columns)


def present(fields: Iterable[PartitionField], columns: Collection[str]) -> list[PartitionField]:
    """The fields whose columns a table has."""
    return [field for field in fields if field.column in columns]
