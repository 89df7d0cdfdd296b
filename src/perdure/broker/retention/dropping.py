"""What dropping a generation takes, whether what is owed from it is saved or lost.

Each session is visited once, with its client id held so that no other connection takes it, and
with its cursor written so that the store says what it is owed; and the generation goes only when
all that was put into private streams is synced.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from perdure.errors import StorageUnavailable

if TYPE_CHECKING:
    from perdure.broker.core import BrokerCore
    from perdure.broker.delivery.live_session import LiveSession
    from perdure.broker.delivery.registry import Registry


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
