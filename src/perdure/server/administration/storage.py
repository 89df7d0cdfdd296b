"""Operations on the log."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Final, final

from perdure.admin.operation import Request
from perdure.admin.problems import Refused
from perdure.admin.records.storage import (
    DATABASE,
    Database,
    DatabasePage,
    Drop,
    DropGeneration,
    Generation,
    GenerationPage,
    ListDatabases,
    ListGenerations,
    ListShards,
    NewGeneration,
    RotateLog,
    Shard,
    ShardPage,
)
from perdure.broker.services import Services
from perdure.config.schema import StorageConfig
from perdure.config.units import format_time
from perdure.errors import ConfigError
from perdure.server.administration.service import Call, Handler
from perdure.server.administration.sessions import check_writable
from perdure.server.turns import Turns
from perdure.storage.contract import GenerationInfo, TakesStructure
from perdure.topic.proposal import check_structure

BEHIND_SCAN_MAX: Final = 2_000
"""Sessions that are looked at before a generation is dropped."""


@final
class StorageOperations:
    """Answers what is asked of the log.

    Args:
        services: the parts of the broker.
    """

    def __init__(self, services: Services) -> None:
        self._services = services

    def handlers(self) -> Mapping[type[Request[Any]], Handler]:
        """By request."""
        return {
            ListDatabases: self.databases,
            ListGenerations: self.generations,
            ListShards: self.shards,
            RotateLog: self.rotate,
            DropGeneration: self.drop,
        }

    async def databases(self, _request: ListDatabases, _call: Call) -> DatabasePage:
        """The one that there is."""
        database, config = self._services.database, self._services.storage_config
        row = database_row(config, database.last_offset, database.generations())
        return DatabasePage(items=[row], estimated_total=1)

    async def shards(self, request: ListShards, _call: Call) -> ShardPage:
        """The one that there is, and what it holds."""
        check_database(request.database)
        services = self._services
        database = services.database
        infos = database.generations()
        state = (
            "failed"
            if not services.committer.writable
            else "refusing"
            if services.publish_path.disk_full
            else "ok"
        )
        is_local = services.storage_config.traits.is_directory
        shard = Shard(
            shard=0,
            database=DATABASE,
            state=state,
            reason=services.committer.failure_text or services.retention.disk_over,
            last_offset=database.last_offset or None,
            last_at=format_time(database.last_offset),
            generations=len(infos),
            streams=sum(each.stream_count for each in infos),
            message_count=sum(each.message_count for each in infos),
            bytes=sum(each.bytes for each in infos),
            disk_bytes=database.disk_bytes() if is_local else None,
        )
        return ShardPage(items=[shard], estimated_total=1)

    async def generations(self, request: ListGenerations, _call: Call) -> GenerationPage:
        """All of them."""
        check_database(request.database)
        infos = self._services.database.generations()
        time_us = self._services.retention.config.time_s * 1_000_000
        rows = []
        for info, following in itertools.zip_longest(infos, infos[1:]):
            ends_us = 0 if following is None or not time_us else following.created_at_us
            rows.append(generation_row(info, drops_at_us=ends_us + time_us if ends_us else 0))
        return GenerationPage(items=rows, estimated_total=len(rows))

    async def drop(self, request: DropGeneration, call: Call) -> Drop:
        """Drop the oldest, or say what that would do."""
        check_database(request.database)
        services = self._services
        infos = services.database.generations()
        info = next((one for one in infos if one.generation == request.generation), None)
        if info is None:
            raise Refused("not_found", f"there is no generation {request.generation}")
        if info is infos[-1]:
            raise Refused("conflict", "this generation is the current one", hint="rotate first")
        if info is not infos[0]:
            raise Refused("conflict", f"generation {infos[0].generation} is older: drop that first")
        held_by = services.retention.held_by(info)
        behind, exact = await self._behind(info.until_offset - 1)
        call.before = generation_row(info)
        carried = None
        if not request.dry_run:
            check_writable(services)
            if held_by and not request.force:
                raise Refused(
                    "conflict",
                    f"the pipeline {held_by} has not read all of it",
                    hint="force drops it nevertheless",
                )
            carried = await services.retention.drop_now(info)
        return Drop(
            generation=info.generation,
            dry_run=request.dry_run,
            message_count=info.message_count,
            bytes=info.bytes,
            sessions_behind=behind,
            sessions_behind_is_exact=exact,
            carried=carried,
            held_by=held_by or None,
        )

    async def _behind(self, offset: int) -> tuple[int, bool]:
        """Sessions that have not acknowledged everything up to an offset, and whether it is all."""
        database = self._services.database
        behind = looked = 0
        turns = Turns()
        async for record in database.sessions():
            if looked == BEHIND_SCAN_MAX:
                return behind, False
            looked += 1
            live = self._services.registry.live.get(record.client_id)
            if live is not None:
                behind += live.outbound.cursor().offset < offset
            elif record.subscription_count:
                stored = await database.open_session(record.client_id)
                behind += stored is not None and stored.cursor.offset < offset
            await turns.step()
        return behind, True

    async def rotate(self, request: RotateLog, call: Call) -> NewGeneration:
        """Begin a new generation."""
        check_database(request.database)
        services = self._services
        check_writable(services)
        database, wall_us = services.database, services.clock.wall_us()
        if request.structure is None:
            info = database.rotate(wall_us)
        elif isinstance(database, TakesStructure):
            check_structure(request.structure)
            info = database.rotate_to(request.structure, wall_us)
        else:
            raise ConfigError("the log of this broker learns no topic structures", path="storage")
        services.log.info("generation.added", generation=info.generation)
        call.after = made = NewGeneration(
            generation=info.generation,
            created_at=format_time(info.created_at_us),
            created_at_us=info.created_at_us,
        )
        return made


def check_database(name: str) -> None:
    """Make sure that there is a database of a name.

    Raises:
        Refused: there is none.
    """
    if name != DATABASE:
        raise Refused("not_found", f"there is no database {name!r:.100}", hint=f"it is {DATABASE}")


def database_row(
    config: StorageConfig, last_offset: int, infos: Sequence[GenerationInfo]
) -> Database:
    """The log as it is shown among databases.

    Args:
        config: where it is.
        last_offset: of its last message; 0 = there is none.
        infos: its generations.
    """
    return Database(
        database=DATABASE,
        backend=config.backend,
        durability=config.durability,
        shards=1,
        generations=len(infos),
        message_count=sum(each.message_count for each in infos),
        bytes=sum(each.bytes for each in infos),
        last_offset=last_offset or None,
        last_at=format_time(last_offset),
    )


def generation_row(info: GenerationInfo, *, drops_at_us: int = 0) -> Generation:
    """A generation as it is shown.

    Args:
        info: of the store.
        drops_at_us: when retention drops it by age, wall time; 0 = never.
    """
    return Generation(
        generation=info.generation,
        layout=info.layout,
        state="closed" if info.until_offset else "current",
        since_offset=info.since_offset,
        until_offset=info.until_offset or None,
        created_at=format_time(info.created_at_us),
        created_at_us=info.created_at_us,
        message_count=info.message_count,
        bytes=info.bytes,
        stream_count=info.stream_count,
        drops_at=format_time(drops_at_us),
        drops_at_us=drops_at_us or None,
    )
