"""The demo's story: subscribe, go offline, publish through a kill -9, come back, replay, count."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from examples.demo import plan
from examples.demo.broker import make_broker
from examples.demo.clients import now_us
from examples.demo.cluster import ClusterBroker
from examples.demo.publishers import Publisher, make_publisher
from examples.demo.screen import Screen
from examples.demo.subscribers import (
    MosquittoSubscriber,
    PahoSubscriber,
    Subscriber,
    make_subscriber,
)
from tests.support.delivery import Ledger, Verdict, audit

TICK_S = 0.1
STALL_S = 10.0
"""A phase in which nothing moves for so long is over, and what is missing is missing."""
CLUSTER_STALL_S = 60.0
"""As above; Kafka's brokers need some seconds to agree who leads."""
QUIET_S = 1.0
"""After everything owed has come, listen for so long for what should not come."""
DOWN_S = 0.5


@dataclass(frozen=True)
class Options:
    """What the command line chose."""

    broker: str
    messages: int
    topics: int
    seed: str
    kills: bool


class Story:
    """One run.

    Args:
        options: from the command line.
        directory: for the broker.
        screen: where it is told.
    """

    def __init__(self, options: Options, directory: Path, screen: Screen) -> None:
        self._options = options
        self._screen = screen
        self._broker = make_broker(options.broker, directory, options.seed)
        is_cluster = isinstance(self._broker, ClusterBroker)
        self._kills = ClusterBroker.kills if is_cluster else ("",)
        self._stall_s = CLUSTER_STALL_S if is_cluster else STALL_S
        self._ledger = Ledger()
        self._topics = plan.all_topics(options.topics)
        self._publishers: list[Publisher] = []
        self._subscribers: list[Subscriber] = []
        self._middle_us = 0

    async def run(self) -> bool:
        """Tell it; True if every promise was kept."""
        try:
            took = await self._broker.start()
            self._screen.say(f"{self._options.broker} listens (started in {took:.2f} s)")
            await self._subscribe()
            await self._publish()
            await self._come_back()
            replay = await self._replay()
            return self._close(replay)
        finally:
            ends = [each.stop() for each in self._publishers]
            ends += [each.stop() for each in self._subscribers]
            await asyncio.gather(*ends, return_exceptions=True)
            await self._broker.stop()

    async def _subscribe(self) -> None:
        plans = plan.subscribers(
            self._topics, with_mosquitto=MosquittoSubscriber.program is not None
        )
        self._subscribers = [make_subscriber(entry, self._broker) for entry in plans]
        for subscriber in self._subscribers:
            await subscriber.subscribe()
            entry = subscriber.plan
            what = entry.filters[0] if len(entry.filters) == 1 else f"{len(entry.filters)} topics"
            then = "stays online" if entry.online else "goes offline"
            self._screen.say(f"  {entry.client} subscribes to {what} at QoS {entry.qos}, {then}")

    async def _publish(self) -> None:
        total = self._options.messages
        share, rest = divmod(total, len(plan.PUBLISHERS))
        for place, entry in enumerate(plan.PUBLISHERS):
            count = share + (place < rest)
            topics = plan.rounds(self._topics, count, f"{self._options.seed} {entry.name}")
            self._publishers.append(make_publisher(entry, topics, self._ledger, self._broker))
        self._screen.say(
            f"{len(self._publishers)} publishers send {total:,} messages at QoS 1 and 2 "
            f"over {len(self._topics):,} topics"
        )
        for publisher in self._publishers:
            await publisher.start()
        acknowledged = self._acknowledged
        parts = len(self._kills) + 1
        for part, what in enumerate(self._kills, 1):
            goal = total * part // parts
            await self._until(
                lambda goal=goal: acknowledged() >= goal,  # type: ignore[misc]
                acknowledged,
                "acknowledged",
                total,
            )
            self._middle_us = self._middle_us or now_us()
            await self._kill(f"with {acknowledged():,} messages acknowledged", what)
        await self._until(
            lambda: all(publisher.done for publisher in self._publishers),
            acknowledged,
            "acknowledged",
            total,
        )
        self._screen.show("acknowledged", acknowledged(), total)
        self._screen.say(f"publishers are done: {acknowledged():,} messages acknowledged")

    async def _come_back(self) -> None:
        owed = sum(audit(self._ledger, each.receipts).expected for each in self._subscribers)
        self._screen.say(f"the subscribers come back; together they are owed {owed:,} messages")
        for subscriber in self._subscribers:
            await subscriber.come_back()
        delivered = self._delivered
        if await self._until(lambda: delivered() >= owed // 2, delivered, "delivered", owed):
            await self._kill(f"with {delivered():,} messages delivered", self._kills[0])
            await self._until(self._all_delivered, delivered, "delivered", owed)
        await self._listen_on(delivered)
        self._screen.show("delivered", delivered(), owed)

    async def _replay(self) -> tuple[plan.Subscribing, Verdict]:
        entry = plan.Subscribing(
            "late client", "paho-mqtt", 5, 1, (plan.REPLAY_FILTER,), online=True
        )
        late = PahoSubscriber(entry, self._broker, since_us=self._middle_us)
        self._subscribers.append(late)
        owed = audit(self._ledger, late.receipts).expected
        self._screen.say(
            f"a late client asks for {plan.REPLAY_FILTER} since the middle: {owed:,} messages"
        )
        await late.subscribe()

        def received() -> int:
            return audit(self._ledger, late.receipts).received

        await self._until(lambda: received() >= owed, received, "replayed", owed, stall_s=5.0)
        await self._listen_on(received)
        self._screen.show("replayed", received(), owed)
        return entry, audit(self._ledger, late.receipts)

    def _close(self, replay: tuple[plan.Subscribing, Verdict]) -> bool:
        sessions = [
            (each.plan, audit(self._ledger, each.receipts)) for each in self._subscribers[:-1]
        ]
        self._screen.table([*sessions, replay])
        verdicts = [verdict for _, verdict in sessions]
        missing = self._options.messages - self._acknowledged()
        refused = [text for publisher in self._publishers for text in publisher.refused]
        promises = {
            "messages acknowledged and lost": sum(verdict.lost for verdict in verdicts),
            "QoS 2 messages received twice": sum(verdict.repeated for verdict in verdicts),
            "messages out of order": sum(verdict.out_of_order for verdict in verdicts),
            "messages that are foreign, or with a wrong QoS": sum(
                verdict.foreign + verdict.wrong_qos for verdict in verdicts
            ),
            "breaches in the replay": replay[1].breaches,
            "messages refused": len(refused),
        }
        self._screen.console.print(
            f"\n{self._acknowledged():,} messages acknowledged, "
            f"{sum(verdict.received for verdict in verdicts):,} received, "
            f"{self._broker.kill_count} times kill -9"
        )
        for text, breaches in promises.items():
            self._screen.promise(text, breaches)
        # A library that lost its connection in the act of publishing may not hear of the
        # acknowledgement. That is told; what counts is what was acknowledged.
        if missing:
            self._screen.console.print(f"  [dim]not known to be acknowledged: {missing:,}[/dim]")
        examples = [text for verdict in (*verdicts, replay[1]) for text in verdict.examples]
        for text in (*refused[:3], *examples[:8]):
            self._screen.console.print(f"    [red]{text}[/red]")
        finished = all(publisher.done for publisher in self._publishers)
        return finished and not any(promises.values())

    async def _kill(self, when: str, what: str) -> None:
        if not self._options.kills:
            return
        await self._broker.kill()
        of = f" of {what}" if what else ""
        self._screen.say(f"[bold red]kill -9[/bold red]{of} {when}")
        await asyncio.sleep(DOWN_S)
        took = await self._broker.start()
        self._screen.say(f"{self._options.broker} is back (started in {took:.2f} s)")

    async def _until(
        self,
        finished: Callable[[], bool],
        count: Callable[[], int],
        phase: str,
        total: int,
        *,
        stall_s: float = 0.0,
    ) -> bool:
        """Show progress until ``finished``; False if nothing moves any more before."""
        stall_s = stall_s or self._stall_s
        last, moved_at = count(), time.monotonic()
        self._screen.show(phase, last, total)
        while not finished():
            await asyncio.sleep(TICK_S)
            self._broker.check()
            self._screen.show(phase, count(), total)
            if count() != last:
                last, moved_at = count(), time.monotonic()
            elif time.monotonic() - moved_at > stall_s:
                self._screen.say(f"[red]nothing has moved for {stall_s:.0f} s[/red]")
                return False
        return True

    async def _listen_on(self, count: Callable[[], int]) -> None:
        """Wait until nothing comes any more."""
        last = -1
        while count() != last:
            last = count()
            await asyncio.sleep(QUIET_S)

    def _acknowledged(self) -> int:
        return self._ledger.acknowledged_count

    def _delivered(self) -> int:
        return sum(each.receipts.count for each in self._subscribers)

    def _all_delivered(self) -> bool:
        return all(
            # The count comes first, since the audit is dear.
            each.receipts.count >= 1 and not audit(self._ledger, each.receipts).lost
            for each in self._subscribers
        )
