"""How many connections a process holds, and which of them makes room for a new one.

Whoever opens connections and says nothing must not keep a health check out. So a new connection is
always let in: where ``http.connections_max`` are held, one that waits for its peer goes, the one
that waits longest first. What is being answered is not touched; where all are, a few more are let
in that may ask for health alone.

Invariant: a connection is in exactly one stage from ``enter`` to ``leave``.
"""

from __future__ import annotations

from typing import Final, Protocol, final

WAITING: Final = 0
"""No request is there, or half a head."""
BODY: Final = 1
"""The head is there, and not all of the body."""
STALLED: Final = 2
"""An answer is there that the peer does not take."""
ANSWERING: Final = 3

STAGES: Final = 4

RESERVE: Final = 32
"""Connections beyond the limit while every other one is being answered; for health alone."""


class Held(Protocol):
    """A connection, as the gate sees it."""

    is_reserve: bool
    """It may ask for health alone."""

    def evict(self) -> None:
        """Close at once: its place is needed."""
        ...

    def check(self, now_s: float) -> None:
        """Close if a deadline has passed."""
        ...


@final
class Gate:
    """The connections of one process.

    Args:
        connections_max: held at once.
    """

    def __init__(self, connections_max: int) -> None:
        self._connections_max = connections_max
        self._stage_of: dict[Held, int] = {}
        # Each in the order in which they came into the stage.
        self._stages: list[dict[Held, None]] = [{} for _ in range(STAGES)]

    def __len__(self) -> int:
        return len(self._stage_of)

    def enter(self, held: Held) -> bool:
        """Let a connection in; False = it must be closed."""
        if len(self._stage_of) >= self._connections_max and not self._make_room():
            if len(self._stage_of) >= self._connections_max + RESERVE:
                return False
            held.is_reserve = True
        self._stage_of[held] = WAITING
        self._stages[WAITING][held] = None
        return True

    def put(self, held: Held, stage: int) -> None:
        """A connection has come to a stage; to come to the same one again is to come anew."""
        before = self._stage_of.get(held)
        if before is None:
            return
        del self._stages[before][held]
        self._stage_of[held] = stage
        self._stages[stage][held] = None

    def leave(self, held: Held) -> None:
        """A connection is gone; a second call does nothing."""
        stage = self._stage_of.pop(held, None)
        if stage is not None:
            del self._stages[stage][held]

    def sweep(self, now_s: float) -> None:
        """Let each connection look at its deadlines."""
        for held in list(self._stage_of):
            held.check(now_s)

    def _make_room(self) -> bool:
        for stage in (WAITING, BODY, STALLED):
            for held in self._stages[stage]:
                self.leave(held)
                held.evict()
                return True
        return False
