"""What an archive is asked for, and what a round of it did."""

from __future__ import annotations

import msgspec

from perdure.pipeline.archive_file import Gap
from perdure.pipeline.lake.lake import NAMESPACE
from perdure.pipeline.offsets import StreamPosition
from perdure.pipeline.payload_rules import Rule
from perdure.pipeline.tables import TableSpec


class Wanted(msgspec.Struct, frozen=True):
    """What is to be archived into which tables.

    Attributes:
        tables: those that the user named, without the catch-all.
        learns: structures that the log has learned get tables too.
        has_fields: fields of payloads become columns.
        format: iceberg, delta or parquet.
        catalog: name of an Iceberg catalog.
        namespace: of its tables there.
        payloads: of which format they are, by topic; JSON without a rule.
    """

    tables: tuple[TableSpec, ...] = ()
    learns: bool = True
    has_fields: bool = True
    format: str = "iceberg"
    catalog: str | None = None
    namespace: str = NAMESPACE
    payloads: tuple[Rule, ...] = ()


class Round(msgspec.Struct, frozen=True):
    """What a round did.

    Attributes:
        rows: messages added to tables.
        files: files added.
        position: everything up to here is archived.
        is_last: the log had no more messages when the round was planned.
        tables: that were added to.
        columns: that were added for fields, or became wider, as ``table.column``.
        misfits: values of fields that have no column or another type; they are in payload.
        gap: messages that were dropped before this round could read them, or None.
        behind_us: from the position to the end of the log after the round; 0 = it has everything.
        is_close: retention dropped what this round had just read: the next one may be too late.
    """

    rows: int
    files: int
    position: StreamPosition
    is_last: bool
    tables: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    misfits: int = 0
    gap: Gap | None = None
    behind_us: int = 0
    is_close: bool = False
