"""What dropping a generation takes, whether what is owed from it is saved or lost.

Each session is visited once, with its client id held so that no other connection takes it, and
with its cursor written so that the store says what it is owed; and the generation goes only when
all that was put into private streams is synced.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

from perdure.errors import StorageUnavailable
from perdure.session.pending import PendingMessages
from perdure.session.pending_pages import CHUNK, count_recorded, read_pages
from perdure.session.subscriptions import SessionSubscriptions

if TYPE_CHECKING:
    from perdure.broker.core import BrokerCore
    from perdure.broker.delivery.live_session import LiveSession
    from perdure.broker.delivery.registry import Registry
    from perdure.broker.shared.group import SharedGroup
    from perdure.model import StoredSession
    from perdure.storage.contract import GenerationInfo

CARRY_PAGE: Final = 256
"""Messages carried over in one commit."""

COUNTED_MAX: Final = 4_096
"""Messages that are counted between two turns of the loop: some milliseconds."""


async def visit_session(
    core: BrokerCore,
    registry: Registry,
    client_id: str,
    work: Callable[[LiveSession | None], Awaitable[int]],
) -> int:
    """Do something about what a durable session is owed.

    Args:
        core: what every part stands on.
        registry: who is connected.
        client_id: whose session it is.
        work: is given the session if it is connected.

    Returns:
        What ``work`` returns; 0 for a session that lives in memory alone.
    """
    await registry.acquire(client_id)
    try:
        live = registry.live.get(client_id)
        if live is not None:
            if not live.durable:
                return 0
            core.cursors.put_now(live)
            await core.pipeline.committed()
        return await work(live)
    finally:
        registry.release(client_id)


async def make_durable(core: BrokerCore, failures: int) -> None:
    """Sync what was put into private streams; nothing may be dropped unless all was written.

    Args:
        core: what every part stands on.
        failures: the committer's, before the first of it was written.

    Raises:
        StorageError: it was not.
    """
    await core.pipeline.committed()
    if core.committer.failure_count == failures:
        await core.committer.sync_now()
    if core.committer.failure_count != failures:
        raise StorageUnavailable("the store failed while messages were carried over")


async def owed_pages(
    core: BrokerCore, stored: StoredSession, info: GenerationInfo
) -> AsyncIterator[PendingMessages]:
    """All that a session is owed up to the end of a generation, also from its private stream; a
    page is to be read before the next one.

    Args:
        core: what every part stands on.
        stored: the session.
        info: the generation.
    """
    subscriptions = SessionSubscriptions(stored.record.client_id, stored.subscriptions)
    pending = PendingMessages(subscriptions, stored.cursor.serial)
    pages = read_pages(
        core.database,
        subscriptions,
        durable=True,
        after=stored.cursor.offset,
        until=info.until_offset - 1,
    )
    async for page in pages:
        yield pending.page(page.messages, page.entries)


async def is_owed(core: BrokerCore, stored: StoredSession, info: GenerationInfo) -> bool:
    """Whether a session still needs a generation: for messages that are not in its private stream.

    Args:
        core: what every part stands on.
        stored: the session.
        info: the generation.
    """
    async for page in owed_pages(core, stored, info):
        if any(each.entry is None for each in page):
            return True
        await core.yield_to_loop()
    return False


async def count_of_generation(
    core: BrokerCore, filters: Sequence[str], after: int, info: GenerationInfo
) -> int:
    """How many messages of a generation match, behind an offset: there may be millions to look at,
    and clients are served meanwhile.

    Args:
        core: what every part stands on.
        filters: topic filters.
        after: exclusive lower bound.
        info: the generation.
    """
    return await count_recorded(
        core.database,
        filters,
        after=after,
        until=info.until_offset - 1,
        limit=info.message_count,
        page=COUNTED_MAX,
        pause=core.yield_to_loop,
    )


async def owed_to_group(core: BrokerCore, group: SharedGroup, info: GenerationInfo) -> int:
    """How many messages of a generation a group has still to give out.

    Args:
        core: what every part stands on.
        group: the group.
        info: the generation.
    """
    position, until = group.position, info.until_offset - 1
    if not group.where:
        return await count_of_generation(core, [group.filter], position, info)
    count = 0
    while position < until:
        page = await core.database.read(
            [group.filter], after_offset=position, until_offset=until, limit=CHUNK
        )
        count += sum(1 for message in page.messages if group.wants(message))
        position = page.through_offset
        await core.yield_to_loop()
    return count
