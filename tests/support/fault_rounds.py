"""Rounds of a failing disk under a real broker, with the peers and the audit of ``kill_rounds``.

In each round the disk fails a few times, in one operation or several, for a moment or for seconds,
while publishers publish and subscribers come, go and lag. After each fault the broker must take
messages again by itself; at the end of the round it is killed. Nothing that was acknowledged may
be lost, and a refusal must be one of those that say so.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Final, final

from tests.support.bounds import HANG_S
from tests.support.disk import BROKEN, FULL, Disk
from tests.support.kill_rounds import KillRounds
from tests.support.process import BrokerProcess

FAULTS: Final[tuple[tuple[str, ...], ...]] = (
    ("write",),
    ("sync",),
    ("read",),
    ("write", "open"),
    ("sync", "open"),
    ("read", "open"),
    ("table",),
    ("write", "sync", "read", "table", "open"),
)

REFUSALS: Final = frozenset({0x80, 0x88, 0x97, 0x03})
"""Unspecified error, server unavailable, quota exceeded; 3 is 3.1.1's server unavailable."""

FAULTS_PER_ROUND_MAX: Final = 2
FAULT_MAX_S: Final = 1.2
MESSAGES_PER_FAULT_MAX: Final = 1500
MESSAGES_PER_TICK: Final = 20
TICK_S: Final = 0.01


@final
class FaultRounds(KillRounds):
    """A run of many rounds on one data directory.

    Args:
        broker: a process on the disk that is not running yet.
        disk: the disk.
        seed: fixes all choices.
        say: told what happens.
        faults: each a set of operations that fail together.
    """

    forgives = REFUSALS

    def __init__(
        self,
        broker: BrokerProcess,
        disk: Disk,
        *,
        seed: str,
        say: Callable[[str], None],
        faults: Sequence[tuple[str, ...]] = FAULTS,
    ) -> None:
        super().__init__(broker, seed=seed, say=say)
        self._disk = disk
        self._faults = tuple(faults)
        self.fault_count = 0

    async def _round(self, *, first: bool) -> None:
        chance = self._chance
        self._choose_subscribers()
        await self._broker.start()
        for _ in range(chance.randint(1, FAULTS_PER_ROUND_MAX)):
            self._quota = MESSAGES_PER_FAULT_MAX
            await asyncio.sleep(chance.uniform(0, 0.3))
            operations = chance.choice(self._faults)
            error = chance.choice((FULL, BROKEN))
            self._say(f"{' and '.join(operations)} fail: {error}")
            self.fault_count += 1
            self._disk.fail(**dict.fromkeys(operations, error))
            await asyncio.sleep(chance.uniform(0, FAULT_MAX_S))
            self._broker.check()
            self._disk.heal()
            if not await self._takes_messages():
                self._outcome.failures.append(
                    f"no message taken in {HANG_S:.0f} s after {operations} was healed"
                )
                break
        await self._broker.kill()

    async def _takes_messages(self) -> bool:
        """Wait for an acknowledgement of a message that is sent from now on."""
        wanted = self._ledger.acknowledged_count + self._under_way() + 1
        end = time.monotonic() + HANG_S
        while time.monotonic() < end:
            self._broker.check()
            if self._ledger.acknowledged_count >= wanted:
                return True
            # Refusals use the quota up too, and quickly.
            self._quota = max(self._quota, MESSAGES_PER_TICK)
            await asyncio.sleep(TICK_S)
        return False
