"""What the log keeps for pipelines (``retention.keep_for``) and for forwarders.

A generation that is old enough to go stays until every pipeline that is named there has read it.
Only room is worth more: beyond ``retention.bytes``, or where the disk budget drops the oldest, it
goes, and that is said, counted, and found by the pipeline as a gap.

Invariant: a pipeline that is named and has not said anything yet has read nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from perdure.broker.retention.dropping import count_of_generation
from perdure.errors import StorageUnavailable
from perdure.storage.contract import GenerationInfo
from perdure.storage.cursors import load_cursors

if TYPE_CHECKING:
    from perdure.broker.core import BrokerCore
    from perdure.config.schema import RetentionConfig


_EVERYTHING: Final = ("#", "$SYS/#")


@final
class PipelineHolds:
    """Knows what pipelines have still to read.

    Args:
        core: what every part stands on.
    """

    def __init__(self, core: BrokerCore) -> None:
        self._core = core
        self._names: tuple[str, ...] = ()
        self._offsets: dict[str, int] = {}
        self._broken: frozenset[str] = frozenset()
        self._held = 0
        self.readers: Callable[[], Mapping[str, int]] = dict
        """How far those are who read the log in this process, by name."""

    def look(self, config: RetentionConfig) -> None:
        """Learn how far the pipelines are; before each look at age and size."""
        readers = self.readers()
        self._names = (*config.keep_for, *readers)
        self._offsets = dict(readers)
        if not config.keep_for:
            return
        # A restored backup has cursors of a later time than its log: they are no one's.
        last = self._core.database.last_offset
        try:
            cursors, broken = load_cursors(Path(self._core.storage_config.path))
        except StorageUnavailable:
            cursors, broken = [], list(config.keep_for)
        for cursor in cursors:
            offset = cursor.offset if cursor.offset <= last else 0
            known = self._offsets.get(cursor.name, offset)
            self._offsets[cursor.name] = min(known, offset)
        for name in broken:
            self._offsets[name] = 0
        found = frozenset(broken)
        for name in sorted(found - self._broken):
            self._core.log.warning("retention.cursor_unreadable", pipeline=name)
        self._broken = found

    def waits_for(self, info: GenerationInfo) -> str:
        """The pipeline that has most to read of what ended with a generation; empty = none has."""
        behind = [
            (offset, name)
            for name in self._names
            if (offset := self._offsets.get(name, 0)) < info.until_offset - 1
        ]
        return min(behind)[1] if behind else ""

    def held(self, generations: list[GenerationInfo]) -> None:
        """Say how many generations are kept that would have gone."""
        core = self._core
        core.metrics.retention_held_generations = len(generations)
        if generations and not self._held:
            name = self.waits_for(generations[0])
            core.log.warning(
                "retention.waits",
                pipeline=name,
                generation=generations[0].generation,
                read_through=self._offsets.get(name, 0),
            )
        elif self._held and not generations:
            core.log.info("retention.waits_no_more")
        self._held = len(generations)

    async def dropped(self, info: GenerationInfo, reason: str) -> None:
        """Say what a pipeline loses with a generation that is about to go, if anything.

        Args:
            info: the generation.
            reason: why it could not wait.
        """
        name = self.waits_for(info)
        if not name:
            return
        core = self._core
        read_through = self._offsets.get(name, 0)
        lost = info.message_count
        if read_through >= info.since_offset:
            lost = await count_of_generation(core, _EVERYTHING, read_through, info)
        if not lost:
            # It had all, and has not come by since the generation ended.
            return
        core.metrics.retention_unread_messages += lost
        core.log.error(
            "retention.could_not_wait",
            pipeline=name,
            generation=info.generation,
            messages=lost,
            read_through=read_through,
            reason=reason,
        )
