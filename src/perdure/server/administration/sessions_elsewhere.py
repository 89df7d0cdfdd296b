"""Sessions that are connected to other nodes: what an administrator does to them through this."""

from __future__ import annotations

import asyncio
from typing import Final, final

from perdure.broker.services import Services
from perdure.errors import StorageUnavailable
from perdure.model import StoredSession

DISMISS_S: Final = 5.0
"""How long a node may take to let a client go that another one was asked to dismiss."""

LOOK_S: Final = 0.01
"""Time between two looks whether it has."""

TAKES_MAX: Final = 64
"""Claims that one request may lose to others of the client identifier."""


@final
class SessionsElsewhere:
    """Asks other nodes. Without any it does nothing.

    Args:
        services: the parts of the broker.
    """

    def __init__(self, services: Services) -> None:
        self._services = services

    async def dismiss(self, client_id: str, *, ends: bool) -> bool:
        """Take leave of a client that another node has, and wait until that has.

        Args:
            client_id: of the session.
            ends: it ends with that.

        Returns:
            Whether another node had it.

        Raises:
            StorageUnavailable: it does not let go.
        """
        services = self._services
        peers = services.peers
        if peers is None:
            return False
        stored = await services.claims.read(client_id)
        if stored is None or not stored.record.connected:
            return False
        record = stored.record
        if not peers.is_member(record.node, record.incarnation):
            return False
        services.committer.batch.dismiss(client_id, epoch=record.epoch, ends=ends)
        for _ in range(round(DISMISS_S / LOOK_S)):
            stored = await services.claims.read(client_id)
            if stored is None or stored.record.epoch != record.epoch:
                return True
            await asyncio.sleep(LOOK_S)
        raise StorageUnavailable(
            f"node {record.node} has {client_id!r} and does not let it go",
            hint="try again; `perdure cluster status` tells whether it lives",
        )

    async def take(self, client_id: str) -> StoredSession | None:
        """A stored session as it is, to end it or to change it: this node owns it then, and what
        others do with it is refused. None = there is none."""
        services = self._services
        if services.peers is None:
            return await services.database.open_session(client_id)
        claims = services.claims
        try:
            for _ in range(TAKES_MAX):
                stored = await claims.read(client_id)
                if stored is None:
                    return None
                taken = await claims.take(stored.record)
                if taken is not None:
                    return taken
        finally:
            claims.settle(client_id)
        raise claims.lost_too_often()
