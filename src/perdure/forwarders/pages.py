"""The log as one forwarder sees it: pages of what it is to forward.

A page is read while the one before is handed over, if there is a next one already: the log and the
target work at the same time. So there are two in memory, at most.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple, final

from perdure.forwarders.loop_share import LoopShare
from perdure.forwarders.selection import Selection

if TYPE_CHECKING:
    from perdure.config.schema import ForwarderConfig
    from perdure.forwarders.output import Context
    from perdure.model import Message

SLICE_MESSAGES: Final = 128
"""Messages read before a look at the clock: about 0.4 ms."""


@final
class Page(NamedTuple):
    """Messages to hand over.

    Attributes:
        messages: in log order.
        through_offset: the log was read up to here.
        is_full: it ended by its size, so there may be more.
    """

    messages: list[Message]
    through_offset: int
    is_full: bool


@final
class Pages:
    """Reads the log.

    Args:
        settings: of the forwarder.
        context: of the forwarder.
        selection: what of it is forwarded.
        numbered: the output numbers messages, so that expired ones are given to it too.
    """

    def __init__(
        self, settings: ForwarderConfig, context: Context, selection: Selection, *, numbered: bool
    ) -> None:
        self._settings = settings
        self._context = context
        self._selection = selection
        self._numbered = numbered
        self._loop_share = LoopShare(context.core)
        self._ahead: asyncio.Task[Page] | None = None

    async def next(self, after_offset: int) -> Page:
        """The page that follows an offset; the same one that was read ahead, if one was."""
        ahead, self._ahead = self._ahead, None
        return await self._read(after_offset) if ahead is None else await ahead

    def read_ahead(self, page: Page) -> None:
        """Begin with the page after one, if there may be one."""
        if page.is_full and self._context.session.safe_offset() > page.through_offset:
            self._ahead = asyncio.get_running_loop().create_task(
                self._read(page.through_offset), name="forwarder page"
            )

    @property
    def is_ahead(self) -> bool:
        """Whether a page is being read, or waits."""
        return self._ahead is not None

    async def close(self) -> None:
        """Forget what was read ahead."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.cancel()
            await asyncio.gather(ahead, return_exceptions=True)

    # Inside.

    async def _read(self, after: int) -> Page:
        settings, session = self._settings, self._context.session
        core = self._context.core
        until = session.safe_offset()
        found: list[Message] = []
        count = size = 0
        is_full = False
        while after < until and not is_full:
            result = await core.database.read(
                self._selection.filters,
                after_offset=after,
                until_offset=until,
                limit=min(SLICE_MESSAGES, settings.batch_messages - count),
                bytes_max=settings.batch_bytes - size,
            )
            after = result.through_offset
            count += len(result.messages)
            size += sum([len(message.payload) for message in result.messages])
            found += self._chosen(result.messages)
            is_full = count >= settings.batch_messages or size >= settings.batch_bytes
            await self._loop_share.yield_if_due()
        return Page(found, after, is_full)

    def _chosen(self, messages: list[Message]) -> list[Message]:
        qos0, takes = self._settings.qos0, self._selection.takes
        # What it has published itself (from the target, dead letters) does not go back.
        own = self._context.session.client_id
        chosen = [
            message
            for message in messages
            if (message.qos or qos0) and message.publisher != own and takes(message)
        ]
        if self._numbered:
            return chosen
        now_us = self._context.core.clock.now_us()
        fresh = [
            message
            for message in chosen
            if not message.expires_at_us or message.expires_at_us > now_us
        ]
        if len(fresh) < len(chosen):
            self._context.counts.dropped("expired", len(chosen) - len(fresh))
        return fresh
