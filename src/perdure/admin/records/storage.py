"""The databases that a broker keeps messages in: its log, and the generations of that."""

from __future__ import annotations

from typing import Final, final

import msgspec

from perdure.admin.operation import Http, Operation, Page, Request
from perdure.topic.proposal import Structure

DATABASE: Final = "log"
"""Name of the one database of this release."""


@final
class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """A time slice of the log.

    Attributes:
        generation: number, from 1.
        layout: version of its layout.
        state: ``current`` or ``closed``.
        since_offset, until_offset: its first possible offset, and the first one after it.
        created_at, created_at_us: when it was begun.
        message_count, bytes, stream_count: what it holds.
        drops_at, drops_at_us: when retention drops it by age; null = never, or it is current.
    """

    generation: int
    layout: int
    state: str
    since_offset: int
    until_offset: int | None
    created_at: str | None
    created_at_us: int
    message_count: int
    bytes: int
    stream_count: int
    drops_at: str | None = None
    drops_at_us: int | None = None


@final
class GenerationPage(Page[Generation], frozen=True, kw_only=True):
    """All generations, oldest first."""


@final
class Database(msgspec.Struct, frozen=True, kw_only=True):
    """Where a broker keeps messages.

    Attributes:
        database: its name.
        backend: what keeps it, as in ``storage.backend``.
        durability: what an acknowledgement promises, as in ``storage.durability``.
        shards: parts that commit by themselves; a database of this release has one.
        generations, message_count, bytes: what it holds.
        last_offset, last_at: of its last message, and when that was published; null = there is
            none.
    """

    database: str
    backend: str
    durability: str
    shards: int
    generations: int
    message_count: int
    bytes: int
    last_offset: int | None
    last_at: str | None


@final
class DatabasePage(Page[Database], frozen=True, kw_only=True):
    """All databases, by name; a broker of this release has one."""


@final
class Shard(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a database that commits by itself.

    Attributes:
        shard: its number, from 0; a database of this release has one.
        database: its name.
        state: ``ok``, ``refusing`` (the disk budget is used up) or ``failed``.
        reason: why it is not ``ok``; else empty.
        last_offset: of its last message; null = there is none.
        last_at: when that was published.
        generations, streams, message_count, bytes: what it holds.
        disk_bytes: that its files take; null = it is in a server.
    """

    shard: int
    database: str
    state: str
    reason: str
    last_offset: int | None
    last_at: str | None
    generations: int
    streams: int
    message_count: int
    bytes: int
    disk_bytes: int | None


@final
class ShardPage(Page[Shard], frozen=True, kw_only=True):
    """All shards of a database, by number."""


@final
class NewGeneration(msgspec.Struct, frozen=True, kw_only=True):
    """A generation that was begun."""

    generation: int
    created_at: str | None
    created_at_us: int


@final
class Drop(msgspec.Struct, frozen=True, kw_only=True):
    """What dropping a generation does, or would do.

    Attributes:
        generation: its number.
        dry_run: nothing was done.
        message_count, bytes: that go.
        sessions_behind, sessions_behind_is_exact: sessions that have not acknowledged all of it:
            what they are owed is copied to them before it goes; else it is at least that.
        carried: messages that were copied; null = nothing was done.
        held_by: pipeline that has not read all of it; null = none.
    """

    generation: int
    dry_run: bool
    message_count: int
    bytes: int
    sessions_behind: int
    sessions_behind_is_exact: bool
    carried: int | None
    held_by: str | None


class ListDatabases(Request[DatabasePage], frozen=True, kw_only=True):
    """The databases of the broker."""


class ListGenerations(Request[GenerationPage], frozen=True, kw_only=True):
    """All generations."""

    database: str = DATABASE


class ListShards(Request[ShardPage], frozen=True, kw_only=True):
    """The shards of a database."""

    database: str = DATABASE


class RotateLog(Request[NewGeneration], frozen=True, kw_only=True):
    """Begin a new generation, with a structure of topics if one is given."""

    database: str = DATABASE
    structure: Structure | None = None


class DropGeneration(Request[Drop], frozen=True, kw_only=True):
    """Drop the oldest generation, once what sessions are owed from it is copied to them.

    Attributes:
        generation: its number.
        dry_run: only say what would happen.
        force: drop what a pipeline has not read.
    """

    database: str = DATABASE
    generation: int
    dry_run: bool = False
    force: bool = False


_GENERATIONS: Final = "/storage/databases/{database}/generations"

OPERATIONS: Final = (
    Operation(
        name="storage.databases",
        summary="Databases of the broker, and what each holds",
        request=ListDatabases,
        result=DatabasePage,
        http=Http("GET", "/storage/databases"),
    ),
    Operation(
        name="storage.shards",
        summary="Shards of a database, and what each holds",
        request=ListShards,
        result=ShardPage,
        http=Http("GET", "/storage/databases/{database}/shards"),
    ),
    Operation(
        name="storage.generations",
        summary="Generations of the log",
        request=ListGenerations,
        result=GenerationPage,
        http=Http("GET", _GENERATIONS),
    ),
    Operation(
        name="storage.rotate",
        summary="Begin a new generation of the log",
        request=RotateLog,
        result=NewGeneration,
        right="admin",
        changes=True,
        http=Http("POST", _GENERATIONS, status=201),
        target="database",
    ),
    Operation(
        name="storage.drop",
        summary="Drop the oldest generation, or say what that would do",
        request=DropGeneration,
        result=Drop,
        right="admin",
        changes=True,
        http=Http("DELETE", f"{_GENERATIONS}/{{generation}}"),
        target="generation",
    ),
)
