"""Which connected session has which client id, and who may open one now."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, final

from perdure.broker.runtime.scheduler import Gate, Scheduler

if TYPE_CHECKING:
    from perdure.broker.delivery.live_session import LiveSession
    from perdure.errors import StorageError


@final
class Registry:
    """Connected sessions by client id.

    Args:
        scheduler: makes the gates of those who wait for a client id.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.live: dict[str, LiveSession] = {}
        self.leaving: dict[str, LiveSession] = {}
        """Sessions that were let go, until the log has what they left."""
        self._opening: dict[str, deque[Gate]] = {}

    async def acquire(self, client_id: str) -> None:
        """Wait until nobody else opens, takes over or discards this session."""
        waiting = self._opening.get(client_id)
        if waiting is None:
            self._opening[client_id] = deque()
            return
        gate = self._scheduler.gate()
        waiting.append(gate)
        await gate

    def release(self, client_id: str) -> None:
        """Let the next one have the client id."""
        waiting = self._opening[client_id]
        if waiting:
            waiting.popleft().open()
        else:
            del self._opening[client_id]

    def is_empty(self) -> bool:
        """Whether nobody is connected, comes or goes."""
        return not (self.live or self.leaving or self._opening)

    def is_busy(self, client_id: str) -> bool:
        """Whether the session is connected or being opened."""
        return client_id in self.live or client_id in self._opening


@final
class Leaving:
    """Waits for the log to have what a session has left; another node may have claimed it before.

    Args:
        registry: has it meanwhile.
        session: that was let go.
    """

    def __init__(self, registry: Registry, session: LiveSession) -> None:
        self._registry: Registry = registry
        self._session: LiveSession = session
        registry.leaving[session.client_id] = session

    def committed(self) -> None:
        """It is in the log, or was refused because of a claim that was told before."""
        leaving = self._registry.leaving
        if leaving.get(self._session.client_id) is self._session:
            del leaving[self._session.client_id]

    def failed(self, error: StorageError, *, in_doubt: bool) -> None:
        """Nobody knows."""
        self.committed()

    def broke(self, error: Exception) -> None:
        """Forgetting does not fail."""
        raise error
