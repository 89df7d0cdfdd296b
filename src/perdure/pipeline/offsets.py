"""Where a stream of micro-batches stands in a log. Knows no Spark.

An offset is a JSON object, kept by Spark in the query's checkpoint::

    {"database": "<id>", "shards": {"0": {"generation": 7, "offset": 1764...}}}

Everything up to ``offset`` was read. Messages become visible in offset order, so a batch between
two offsets has the same messages whenever it is read again.

Invariant: a stream passes over messages that it has not read only if it was told to skip what was
dropped; a database that was replaced is always an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from perdure.errors import ConfigError, StorageCorrupt, StorageUnavailable
from perdure.pipeline.log_index import LogIndex
from perdure.pipeline.options import ReadOptions

SHARD: Final = "0"
"""The embedded log has one shard."""

DATA_LOSS: Final = "onDataLoss"
"""The option that an error names if messages were dropped unread."""

FIRST_GENERATION: Final = 1
"""Where the log begins with a later one, something was dropped."""


class ShardPosition(msgspec.Struct, frozen=True):
    """A position in one shard: everything up to ``offset`` was read."""

    generation: int
    offset: int


class StreamPosition(msgspec.Struct, frozen=True):
    """A position in a database."""

    database: str
    shards: dict[str, ShardPosition]

    @property
    def offset(self) -> int:
        """The offset in the only shard."""
        return self.shards[SHARD].offset

    @property
    def generation(self) -> int:
        """The generation in the only shard; 0 = before the first message."""
        return self.shards[SHARD].generation

    def to_dict(self) -> dict[str, Any]:
        """As Spark keeps it."""
        made: dict[str, Any] = msgspec.to_builtins(self)
        return made


def position(database_id: str, generation: int, offset: int) -> StreamPosition:
    """A position in the only shard."""
    return StreamPosition(database_id, {SHARD: ShardPosition(generation, offset)})


def parse_position(data: Mapping[str, Any]) -> StreamPosition:
    """A position as Spark kept it.

    Raises:
        StorageCorrupt: it is not one of ours.
    """
    try:
        found = msgspec.convert(data, StreamPosition)
    except msgspec.ValidationError as error:
        raise StorageCorrupt(f"the checkpoint holds an offset of another source: {error}") from None
    if set(found.shards) != {SHARD}:
        raise StorageCorrupt("the checkpoint holds an offset of a log with other shards")
    return found


def initial(files: LogIndex, options: ReadOptions) -> StreamPosition:
    """Where a new stream begins: a place that the log has, so that a drop before its first batch is
    a loss like any other. Before it there may be an archive, and then generation 0.

    Raises:
        StorageUnavailable: the begin must be there, and was dropped.
    """
    if options.starts_latest:
        newest = files.newest()
        info = files.generations()[-1]
        if newest is None:
            return position(files.database_id, info.generation, info.since_offset - 1)
        return position(files.database_id, newest.generation, newest.offset)
    if options.catalog:
        return position(files.database_id, 0, options.after_offset)
    if options.whole:
        check_whole(files, options.after_offset, options.place)
    generations = files.generations()
    offset = max(options.after_offset, generations[0].since_offset - 1)
    generation = max(
        (info.generation for info in generations if info.since_offset <= offset + 1),
        default=generations[0].generation,
    )
    return position(files.database_id, generation, offset)


def latest(
    files: LogIndex, start: StreamPosition, options: ReadOptions, *, rows_max: int, cap: int
) -> StreamPosition:
    """Where the next micro-batch ends.

    Args:
        files: the log as it is now.
        start: where it begins.
        options: of the reader.
        rows_max: most messages of it; 0 = all there are.
        cap: an offset that it does not pass.
    """
    check(files, start, options)
    newest = files.newest()
    # A generation that has ended gets nothing more. Its last offsets may belong to what is not
    # recorded: a stream that stopped at its last message would seem to lack them once it is
    # dropped. Of several nodes each has generations of its own, so there what is recorded counts.
    ended = 0 if options.is_of_several else files.generations()[-1].since_offset - 1
    until = min(max(ended, newest.offset if newest else 0), cap)
    if until <= start.offset:
        return start
    if rows_max:
        until = files.bound(options.filter_sets, start.offset, until, rows_max)
    generations = files.generations()
    generation = max(
        (info.generation for info in generations if info.since_offset <= until),
        # What was before it was dropped, and nothing has come since.
        default=generations[0].generation,
    )
    return position(files.database_id, generation, until)


def check(files: LogIndex, start: StreamPosition, options: ReadOptions) -> None:
    """Make sure that nothing after a position was dropped.

    Raises:
        ConfigError: messages may have been dropped unread, or the database is another one.
    """
    check_same(files, start, options)
    lost = lost_until(files, start)
    if lost and not options.skip_data_loss:
        raise ConfigError(
            f"generations up to {files.generations()[0].generation - 1} were dropped before this "
            f"stream had read them to their end (it stood at offset {start.offset}, the log "
            f"begins at {lost + 1})",
            path=DATA_LOSS,
            hint="set option onDataLoss to skip to go on behind them; retention.keep_for and "
            "retention.time_s say how long the log waits",
        )


def lost_until(files: LogIndex, start: StreamPosition) -> int:
    """The last of the offsets after a position that may have been dropped unread; 0 = none."""
    oldest = files.generations()[0]
    # Generation 0: what is before the log comes from an archive, which was asked by itself. Others
    # say nothing: another node of a cluster, from which the position may be, counts its own.
    missed = start.generation and oldest.generation > FIRST_GENERATION
    return oldest.since_offset - 1 if missed and start.offset + 1 < oldest.since_offset else 0


def check_same(files: LogIndex, start: StreamPosition, options: ReadOptions) -> None:
    """Make sure that a position is one in this log.

    Raises:
        ConfigError: the database is another one.
    """
    if start.database != files.database_id:
        raise ConfigError(
            f"{options.place} holds another database than the one that this stream was reading",
            path="path",
            hint="give the stream a new checkpoint, or the directory back",
        )


def check_reach(files: LogIndex, offset: int, options: ReadOptions) -> None:
    """Make sure that a node has what another one has told of.

    Args:
        files: the log as the node has it.
        offset: that was seen on one of the nodes.
        options: name them.

    Raises:
        StorageUnavailable: it is behind.
    """
    if not options.is_of_several:
        return
    newest = files.newest()
    # What had ended was counted, too, while there was one address.
    reached = max(newest.offset if newest else 0, files.generations()[-1].since_offset - 1)
    if reached < offset:
        raise StorageUnavailable(
            f"the node that was asked has come to offset {reached}, and another one to {offset}",
            hint="does it still read the cluster's log? perdure cluster status",
        )


def check_whole(files: LogIndex, after_offset: int, place: str) -> None:
    """Make sure that a log still has all that it ever had after an offset.

    Raises:
        StorageUnavailable: messages after it may have been dropped.
    """
    oldest = files.generations()[0]
    if oldest.generation > FIRST_GENERATION and after_offset + 1 < oldest.since_offset:
        raise StorageUnavailable(
            f"{place} no longer has all after offset {after_offset}: retention has dropped what "
            f"was before {oldest.since_offset}",
            hint="retention.keep_for has the log wait for an archive, which option catalog reads; "
            "startingOffsets earliest, or failOnDataLoss false, is what is left",
        )
