"""An archive of what a simulated broker's log has dropped, which is away and slow when told to."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from perdure.broker.runtime.scheduler import Gate, Scheduler
from perdure.model import Message
from perdure.storage.contract import ReadResult
from perdure.topic.matching import matches


@final
class FakePast:
    """``broker.core.Past`` in memory.

    Args:
        scheduler: of the broker.

    Attributes:
        messages: what it has, by offset.
        through: how far it says that it has all.
        is_away: requests wait.
        page: most messages of one.
        delay_us: of an answer.
        asked: filters and ranges of requests.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.messages: list[Message] = []
        self.through = 0
        self.is_away = False
        self.is_full = False
        self.page = 4
        self.delay_us = 300
        self.asked: list[tuple[str, int, int]] = []
        self.on_read: Callable[[], None] = lambda: None
        """Called while an answer is under way."""

    @property
    def problem(self) -> str:
        """See ``Past``."""
        return "the store is away" if self.is_away else ""

    @property
    def waiting_s(self) -> float:
        """See ``Past``."""
        return 90.0 if self.is_away else 0.0

    def has(self, _topic_filter: str, until_offset: int, *, last_offset: int) -> bool:
        """See ``Past``."""
        assert until_offset <= last_offset
        return until_offset <= self.through

    async def read(
        self,
        client_id: str,
        topic_filter: str,
        *,
        after_offset: int,
        until_offset: int,
        is_wanted: Callable[[], bool],
    ) -> ReadResult | None:
        """See ``Past``."""
        assert client_id
        assert after_offset < until_offset
        self.asked.append((topic_filter, after_offset, until_offset))
        while True:
            gate: Gate = self.scheduler.gate()
            self.scheduler.call_later(self.delay_us, gate.open)
            await gate
            self.on_read()
            if not is_wanted():
                return None
            if not self.is_away:
                break
        found = [
            each
            for each in self.messages
            if after_offset < each.offset <= until_offset and matches(topic_filter, each.topic)
        ]
        if len(found) > self.page:
            found = found[: self.page]
            return ReadResult(found, found[-1].offset)
        return ReadResult(found, until_offset)
