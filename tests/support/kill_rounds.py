"""Rounds of kill -9 on a real broker process, with peers that watch every packet.

Publishers send at QoS 1 and 2, durable subscribers come and go, hold acknowledgements back and
send them out of order, and the broker is killed at random instants, its start included. After a
chapter of rounds everything is drained and audited; the sessions live on through all chapters.

The seed fixes every choice; the interleaving of real processes it cannot fix, so a seed repeats
a kind of run rather than a run.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from typing import Protocol

from tests.support.bounds import HANG_S
from tests.support.delivery import Ledger, Receipts, Verdict, audit
from tests.support.peer_connection import PeerConnection
from tests.support.peers import Publisher, Subscriber
from tests.support.process import ProcessError

TICK_S = 0.01
QUIET_S = 0.5
KILL_AFTER_S = 0.8
KILL_IN_START = 0.15
START_KILL_AFTER_S = 0.6
WINDOW_MAX = 60
MESSAGES_PER_ROUND_MAX = 3000
"""Bounds what a chapter keeps in memory."""

SITES, METRICS = 6, ("a", "b", "c", "d")
TOPICS = tuple(f"load/{site}/{metric}" for site in range(SITES) for metric in METRICS)


class Outcome:
    """What the run found so far.

    Attributes:
        failures: every breach, in words.
        published, delivered, redelivered: totals.
    """

    def __init__(self) -> None:
        self.failures: list[str] = []
        self.published = 0
        self.delivered = 0
        self.redelivered = 0

    def add(self, verdict: Verdict) -> None:
        """Take over one subscriber's audit."""
        self.delivered += verdict.received
        self.redelivered += verdict.redelivered
        if verdict.breaches:
            counts = ", ".join(
                f"{kind} {getattr(verdict, kind)}"
                for kind in ("lost", "repeated", "out_of_order", "foreign", "wrong_qos")
                if getattr(verdict, kind)
            )
            self.failures += [f"{verdict.name}: {counts}", *verdict.examples]


class Killable(Protocol):
    """What rounds are played on: a broker, or several that are one.

    Attributes:
        kill_count: how often it was killed.
    """

    kill_count: int

    async def start(self) -> float:
        """Start what does not run, and wait until all of it listens; returns seconds."""
        ...

    async def stop(self) -> int | None:
        """End it in order."""
        ...

    async def kill(self) -> None:
        """kill -9."""
        ...

    async def spawn(self) -> None:
        """Start it without waiting."""
        ...

    def check(self) -> None:
        """Raise ``ProcessError`` if it does not run."""
        ...

    def log_tail(self) -> str:
        """The last lines of its output."""
        ...

    def place(self) -> int | Callable[[], int]:
        """Where clients connect: a port, or what chooses one for each connection."""
        ...


class KillRounds:
    """A run of many rounds on one data directory.

    Args:
        broker: a process that is not running yet.
        seed: fixes all choices.
        say: told what happens.
        chapter_rounds: rounds between two audits.

    Attributes:
        forgives: reason codes that peers do not complain of.
        unordered: subscribers to whom no order is promised.
    """

    forgives: frozenset[int] = frozenset()
    unordered: frozenset[str] = frozenset()

    def __init__(
        self,
        broker: Killable,
        *,
        seed: str,
        say: Callable[[str], None],
        chapter_rounds: int = 10,
    ) -> None:
        self._broker = broker
        self._chance = random.Random(seed)
        self._say = say
        self._chapter_rounds = chapter_rounds
        self._outcome = Outcome()
        self._ledger = Ledger()
        self._quota = 0
        self._is_draining = False
        self._publishers: list[PeerConnection[Publisher]] = []
        self._subscribers: list[PeerConnection[Subscriber]] = []

    async def run(self, rounds: int) -> Outcome:
        """Run them; stops after the first chapter with a breach."""
        try:
            await self._broker.start()
            self._subscribers = [
                PeerConnection(peer, self._broker.place()) for peer in self._make_subscribers()
            ]
            await self._wait_for_subscriptions()
            await self._broker.stop()
            for first in range(0, rounds, self._chapter_rounds):
                count = min(self._chapter_rounds, rounds - first)
                await self._chapter(first // self._chapter_rounds, count)
                if self._outcome.failures:
                    break
        finally:
            await asyncio.gather(*(connection.close() for connection in self._connections()))
            await self._broker.stop()
        return self._outcome

    async def _chapter(self, number: int, rounds: int) -> None:
        """Some rounds with publishers of their own, then drain and audit."""
        self._ledger = Ledger()
        self._is_draining = False
        self._publishers = [
            self._connect_publisher(f"pub-{number}-{place}", protocol=protocol)
            for place, protocol in enumerate((4, 5, 4, 5))
        ]
        self._forget_messages()
        ticking = asyncio.create_task(self._tick())
        try:
            for place in range(rounds):
                await self._round(first=place == 0)
            await self._broker.start()
            await self._drain()
            await self._broker.stop()
        finally:
            ticking.cancel()
        self._audit()
        self._say(
            f"chapter {number + 1}: {self._broker.kill_count} kills, "
            f"{self._outcome.published:,} messages, {self._outcome.delivered:,} deliveries, "
            f"{self._outcome.redelivered:,} redelivered at QoS 1, "
            f"{len(self._outcome.failures)} failures"
        )
        await asyncio.gather(*(connection.close() for connection in self._publishers))
        self._publishers = []

    async def _round(self, *, first: bool) -> None:
        """One life of the broker, until kill -9.

        The first of a chapter ends under load: on a busy machine publishers may need longer to come
        back than a life lasts, and a chapter without messages would prove nothing.
        """
        chance = self._chance
        self._quota = MESSAGES_PER_ROUND_MAX
        self._choose_subscribers()
        if not first and chance.random() < KILL_IN_START:
            await self._broker.spawn()
            await asyncio.sleep(chance.uniform(0, START_KILL_AFTER_S))
        else:
            await self._broker.start()
            if first:
                await self._wait_for_load()
            await asyncio.sleep(chance.uniform(0, KILL_AFTER_S))
        await self._broker.kill()

    async def _wait_for_load(self) -> None:
        async with asyncio.timeout(HANG_S):
            while not self._ledger.acknowledged_count:
                self._broker.check()
                await asyncio.sleep(TICK_S)

    def _choose_subscribers(self) -> None:
        """Who is there in this round, and how quick."""
        chance = self._chance
        for connection in self._subscribers:
            connection.is_wanted = chance.random() < 0.6
            connection.peer.hold = chance.choice((0.0, 0.0, 0.1, 0.5))
            connection.peer.window = chance.choice((0, 5, 20, 200))
            if not connection.is_wanted:
                connection.cut()

    async def _tick(self) -> None:
        """Small events within a round: held acknowledgements go out, connections break."""
        chance = self._chance
        while True:
            await asyncio.sleep(TICK_S)
            for connection in self._publishers:
                self._fill(connection)
            for taker in self._subscribers:
                if taker.peer.is_connected and (self._is_draining or chance.random() < 0.2):
                    taker.write(taker.peer.release_held())
            if not self._is_draining and chance.random() < 0.02:
                chance.choice(self._connections()).cut()

    async def _drain(self) -> None:
        """Everyone finishes: nothing new is sent, everything owed is taken."""
        self._is_draining = True
        for connection in self._subscribers:
            connection.is_wanted = True
            connection.peer.hold = 0.0
        progress, moved_at = (-1, -1), time.monotonic()
        while time.monotonic() - moved_at < HANG_S:
            self._broker.check()
            await asyncio.sleep(10 * TICK_S)
            present = (self._under_way(), self._received())
            if present != progress:
                progress, moved_at = present, time.monotonic()
            elif not present[0] and time.monotonic() - moved_at > QUIET_S and self._is_complete():
                return
        self._outcome.failures.append(
            f"nothing has moved for {HANG_S:.0f} s; {self._under_way()} messages under way"
        )

    def _audit(self) -> None:
        self._outcome.published += self._ledger.acknowledged_count
        for connection in self._connections():
            self._outcome.failures += connection.peer.breaches[:5]
        for receipts in self._all_receipts():
            in_order = receipts.name not in self.unordered
            self._outcome.add(
                audit(self._ledger, receipts, strict_order=in_order, any_order=not in_order)
            )

    def _fill(self, connection: PeerConnection[Publisher]) -> None:
        """Send new messages while the window and the round's quota last."""
        peer = connection.peer
        if self._is_draining or not peer.is_connected:
            return
        fresh = []
        while self._quota > 0 and len(peer.under_way) < WINDOW_MAX:
            self._quota -= 1
            fresh.append(peer.publish(self._chance.choice(TOPICS), qos=self._chance.choice((1, 2))))
        connection.write(b"".join(fresh))

    def _connect_publisher(self, client_id: str, *, protocol: int) -> PeerConnection[Publisher]:
        peer = Publisher(client_id, protocol=protocol, ledger=self._ledger, clock=_now_us)
        peer.forgives = self.forgives
        connection = PeerConnection(
            peer, self._broker.place(), after=lambda: self._fill(connection)
        )
        return connection

    def _make_subscribers(self) -> list[Subscriber]:
        plans: list[tuple[str, int, list[tuple[str, int]]]] = [
            ("sub-all", 4, [("load/#", 2)]),
            ("sub-column", 5, [("load/+/a", 1)]),
            ("sub-exact", 5, [(topic, 2) for topic in TOPICS[::5]]),
            ("sub-row", 4, [("load/3/+", 1)]),
            ("sub-two", 5, [("load/+/b", 2), ("load/+/c", 1)]),
        ]
        peers = [
            Subscriber(name, filters, protocol=protocol, chance=self._chance)
            for name, protocol, filters in plans
        ]
        for peer in peers:
            peer.forgives = self.forgives
        return peers

    async def _wait_for_subscriptions(self) -> None:
        for _ in range(int(HANG_S / TICK_S)):
            if all(connection.peer.is_subscribed for connection in self._subscribers):
                return
            await asyncio.sleep(TICK_S)
        raise ProcessError(f"no SUBACK in {HANG_S:.0f} s:\n{self._broker.log_tail()}")

    def _connections(self) -> list[PeerConnection[Publisher] | PeerConnection[Subscriber]]:
        return [*self._publishers, *self._subscribers]

    def _forget_messages(self) -> None:
        """Start a new count."""
        for connection in self._subscribers:
            connection.peer.forget_messages()

    def _all_receipts(self) -> list[Receipts]:
        """What was received; what several have received together once."""
        found = [connection.peer.receipts for connection in self._subscribers]
        return list({id(each): each for each in found}.values())

    def _under_way(self) -> int:
        return sum(len(connection.peer.under_way) for connection in self._publishers)

    def _received(self) -> int:
        return sum(connection.peer.receipts.count for connection in self._subscribers)

    def _is_complete(self) -> bool:
        return not any(audit(self._ledger, each).lost for each in self._all_receipts())


def _now_us() -> int:
    return time.time_ns() // 1000
