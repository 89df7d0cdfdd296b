"""All retained messages that match a filter, however many, a page at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final, Protocol

from perdure.model import Message
from perdure.storage.results import RetainedPage

PAGE: Final = 256
"""Messages of one read."""


class Retains(Protocol):
    """The part of a ``Database`` that is needed."""

    async def read_retained(
        self, topic_filter: str, *, after_topic: str, limit: int, scan_max: int
    ) -> RetainedPage:
        """See ``Database``."""
        ...


async def all_retained(
    source: Retains, topic_filter: str, *, page: int = PAGE, scan_max: int = 0
) -> AsyncIterator[Message]:
    """Retained messages, in the order of the store's keys.

    Args:
        source: has them.
        topic_filter: of their topics.
        page, scan_max: most messages of one read, and keys that it looks at; 0 = as many.
    """
    after: str | None = ""
    while after is not None:
        found = await source.read_retained(
            topic_filter, after_topic=after, limit=page, scan_max=scan_max or page
        )
        for message in found.messages:
            yield message
        after = found.next_after
