"""What an archive knows of itself: ``archive.json`` at its place.

It says where reading goes on, which table each message belongs to, and what is known to be missing.
It is replaced as a whole, and safe against power loss before anything relies on it.

Invariant: a plan is added only where every table is complete, so the last one holds for everything
that is still to be archived.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from perdure.pipeline.archive_file import NAME, Gap, damaged, load_archive_file
from perdure.pipeline.lake.lake import Lake
from perdure.pipeline.lake.stores import LOCAL, Store, below
from perdure.pipeline.log_index import LogIndex
from perdure.pipeline.offsets import StreamPosition
from perdure.pipeline.tables import TableSpec
from perdure.storage.rocksdb.bulk import FilterSets


class Plan(msgspec.Struct, frozen=True):
    """The tables for messages after an offset, the catch-all last."""

    since_offset: int
    tables: tuple[TableSpec, ...]


def dropped(files: LogIndex, start: StreamPosition) -> Gap | None:
    """What was dropped after a position."""
    oldest = files.generations()[0]
    if start.generation < oldest.generation and start.offset + 1 < oldest.since_offset:
        return Gap(start.offset, oldest.since_offset - 1)
    return None


def together(one: Gap | None, other: Gap | None) -> Gap | None:
    """Two gaps of one round, of which the second follows the first."""
    if one is None or other is None:
        return one or other
    return Gap(one.after_offset, other.until_offset)


class ArchiveState(msgspec.Struct, frozen=True):
    """The file.

    Attributes:
        version: of the file.
        format: iceberg, delta or parquet.
        catalog: name of an Iceberg catalog; None = the one in the directory.
        filter_sets: what is archived; empty = everything.
        position: everything wanted up to here is in the tables.
        plans: oldest first.
        gaps: in order.
        namespace: of the tables in the catalog.
        round_rows: most messages of the next round; 0 = as many as any may have.
    """

    version: int
    format: str
    catalog: str | None
    filter_sets: FilterSets
    position: StreamPosition
    plans: tuple[Plan, ...]
    gaps: tuple[Gap, ...] = ()
    namespace: str = "perdure"
    round_rows: int = 0

    def within(self, lake: Lake) -> Lake:
        """A lake with the format and the names that this archive was begun with."""
        return msgspec.structs.replace(
            lake, format=self.format, catalog=self.catalog or "", namespace=self.namespace
        )

    @property
    def tables(self) -> tuple[TableSpec, ...]:
        """Every table that was ever written to, each once, as it was planned last."""
        return tuple({spec.name: spec for plan in self.plans for spec in plan.tables}.values())


def load_state(place: Path | str, store: Store = LOCAL) -> ArchiveState | None:
    """The state of the archive at a place; None = there is none.

    Raises:
        FormatTooNew, StorageCorrupt: it cannot be used.
        StorageUnavailable: its store is not there now.
    """
    data = load_archive_file(place, store)
    try:
        return None if data is None else msgspec.json.decode(data, type=ArchiveState)
    except ValueError as error:
        raise damaged(place, error) from error


def save_state(place: Path | str, state: ArchiveState, store: Store = LOCAL) -> None:
    """Replace the state, safe against power loss when this returns."""
    store.write(below(place, NAME), msgspec.json.format(msgspec.json.encode(state), indent=2))
