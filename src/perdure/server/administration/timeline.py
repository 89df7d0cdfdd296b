"""The operation that shows the log as a line of time."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, final

from perdure.admin.operation import Request
from perdure.admin.records.timeline import (
    SESSIONS_SAMPLED_MAX,
    GetTimeline,
    Reason,
    Timeline,
    TimelineCursor,
    TimelineGeneration,
)
from perdure.broker.services import Services
from perdure.config.schema import RetentionConfig
from perdure.config.units import format_time
from perdure.errors import StorageUnavailable
from perdure.server.administration.service import Call, Handler
from perdure.server.turns import Turns
from perdure.storage.contract import GenerationInfo
from perdure.storage.cursors import load_cursors

SAMPLE_KEPT_US: Final = 10_000_000
"""A sample of stored cursors holds for so long: pages that refresh themselves share it."""

CURSORS_SHOWN_MAX: Final = 200


@final
class TimelineOperations:
    """Answers what is asked of the line.

    Args:
        services: the parts of the broker.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._stored: dict[str, int] = {}
        self._sampled_us = -SAMPLE_KEPT_US

    def handlers(self) -> Mapping[type[Request[Any]], Handler]:
        """By request."""
        return {GetTimeline: self.timeline}

    async def timeline(self, _request: GetTimeline, _call: Call) -> Timeline:
        """The whole line."""
        services = self._services
        database, config = services.database, services.retention.config
        now_us = services.clock.wall_us()
        generations = database.generations()
        cursors = await self._cursors()
        counts = _count_by_generation(generations, [each.at_us for each in cursors])
        ends = retention_ends(generations, config, now_us)
        waits = self._pipelines_waited_for(config, generations)
        shown = [
            TimelineGeneration(
                generation=info.generation,
                since=format_time(info.created_at_us),
                since_us=info.created_at_us,
                until=format_time(until_us),
                until_us=until_us or None,
                messages=info.message_count,
                bytes=info.bytes,
                streams=info.stream_count,
                drops_at=format_time(drops_us),
                drops_at_us=drops_us or None,
                drops_for=why,
                waits_for=waits.get(info.generation),
                sessions=counts[number],
            )
            for number, (info, (until_us, drops_us, why)) in enumerate(
                zip(generations, ends, strict=True)
            )
        ]
        is_local = services.storage_config.traits.is_directory
        return Timeline(
            as_of=format_time(now_us),
            as_of_us=now_us,
            generations=shown,
            bytes=sum(each.bytes for each in generations),
            disk_bytes=database.disk_bytes() if is_local else None,
            keeps_s=config.time_s or None,
            keeps_bytes=config.bytes or None,
            rotates_s=config.generation_time_s,
            rotates_bytes=config.generation_bytes,
            checks_s=config.check_interval_s,
            cursors=cursors[:CURSORS_SHOWN_MAX],
            cursors_sampled=len(cursors),
            # Those that are in memory alone have no place in the store.
            sessions_total=max(await database.session_count(), len(cursors)),
        )

    async def _cursors(self) -> list[TimelineCursor]:
        """Where sessions stand: of those in memory and of the first stored ones."""
        services = self._services
        live = services.registry.live
        turns = Turns()
        connected: dict[str, int] = {}
        for client_id, session in list(itertools.islice(live.items(), SESSIONS_SAMPLED_MAX)):
            connected[client_id] = session.outbound.acked_offset
            await turns.step()
        stored = await self._stored_cursors()
        found = []
        for name, at in {**stored, **connected}.items():
            is_connected = name in connected
            if is_connected or name not in live:
                found.append(
                    TimelineCursor(
                        client_id=name, at=format_time(at), at_us=at, connected=is_connected
                    )
                )
                await turns.step()
        return sorted(found, key=lambda each: (each.at_us, each.client_id))

    async def _stored_cursors(self) -> dict[str, int]:
        services = self._services
        now_us = services.clock.monotonic_us()
        if now_us - self._sampled_us < SAMPLE_KEPT_US:
            return self._stored
        self._sampled_us = now_us
        found: dict[str, int] = {}
        turns = Turns()
        async for record in services.database.sessions():
            if len(found) >= SESSIONS_SAMPLED_MAX:
                break
            if record.client_id in services.registry.live:
                continue
            stored = await services.database.open_session(record.client_id)
            if stored is not None:
                found[record.client_id] = stored.cursor.offset
            await turns.step()
        self._stored = found
        return found

    def _pipelines_waited_for(
        self, config: RetentionConfig, generations: Sequence[GenerationInfo]
    ) -> dict[int, str]:
        """For each ended generation the pipeline that has most to read of it."""
        if not config.keep_for:
            return {}
        try:
            cursors, broken = load_cursors(Path(self._services.storage_config.path))
        except StorageUnavailable:
            cursors, broken = [], []
        reached: dict[str, int] = dict.fromkeys((*config.keep_for, *broken), 0)
        for cursor in cursors:
            reached[cursor.name] = cursor.offset
        behind = {}
        for info in generations:
            late = [
                (reached[name], name)
                for name in config.keep_for
                if info.until_offset and reached[name] < info.until_offset - 1
            ]
            if late:
                behind[info.generation] = min(late)[1]
        return behind


def retention_ends(
    generations: Sequence[GenerationInfo], config: RetentionConfig, now_us: int
) -> list[tuple[int, int, Reason | None]]:
    """For each generation: its end, when its age drops it, and what would drop it now.

    Args:
        generations: oldest first; the last one is the current one, and is never dropped.
        config: of retention.
        now_us: wall time.
    """
    total = sum(each.bytes for each in generations)
    found: list[tuple[int, int, Reason | None]] = []
    goes_on = True
    for info, successor in itertools.pairwise(generations):
        until_us = successor.created_at_us
        drops_us = until_us + config.time_s * 1_000_000 if config.time_s else 0
        why: Reason | None = None
        if goes_on and 0 < drops_us <= now_us:
            why = "age"
        elif goes_on and 0 < config.bytes < total:
            why = "size"
        goes_on = goes_on and why is not None
        if goes_on:
            total -= info.bytes
        found.append((until_us, drops_us, why))
    if generations:
        found.append((0, 0, None))
    return found


def _count_by_generation(
    generations: Sequence[GenerationInfo], offsets: Sequence[int]
) -> list[int]:
    """How many offsets lie in each generation; what is before the first is counted with it."""
    counts = [0] * len(generations)
    for offset in offsets:
        number = 0
        for later, info in enumerate(generations):
            if info.since_offset <= offset:
                number = later
        if counts:
            counts[number] += 1
    return counts
