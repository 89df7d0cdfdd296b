"""Tasks that wait until a session's client has taken what it was given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, final

from perdure.broker.runtime.scheduler import Gate, Scheduler

if TYPE_CHECKING:
    from perdure.broker.dispatch.router import Subscriber


@final
class WindowWaiters:
    """Who waits for which session to have room.

    Args:
        scheduler: makes the futures that are waited for.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._waiting: dict[Subscriber, list[Gate]] = {}

    async def wait(self, session: Subscriber) -> None:
        """Return when the session has room, or its connection is gone."""
        while session.is_open and not session.has_room():
            await self._wait_for_window(session)

    async def wait_live(self, session: Subscriber) -> None:
        """Return when the session has room and has caught up, or its connection is gone."""
        while session.is_open and (session.lagging or not session.has_room()):
            await self._wait_for_window(session)

    async def wait_any(self, sessions: Sequence[Subscriber]) -> None:
        """Return when one of the sessions has room or is gone, or at once if none is given."""
        if not sessions:
            return
        gate = self._scheduler.gate()
        for session in sessions:
            self._waiting.setdefault(session, []).append(gate)
            session.has_waiters = True
        await gate
        for session in sessions:
            gates = self._waiting.get(session)
            if gates is not None and gate in gates:
                gates.remove(gate)

    async def _wait_for_window(self, session: Subscriber) -> None:
        gate = self._scheduler.gate()
        self._waiting.setdefault(session, []).append(gate)
        session.has_waiters = True
        await gate

    def notify(self, session: Subscriber) -> None:
        """The session has room now, or is gone."""
        for gate in self._waiting.pop(session, ()):
            gate.open()
