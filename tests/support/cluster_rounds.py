"""Rounds of faults on a cluster, with the peers and the audit of ``kill_rounds``.

Clients wander: each connection goes to a node by chance. In each round something fails (a node or
several, Kafka or parts of it, the way between the two, a clock) and comes back; then messages must
be taken again. Besides loss, repeats and order, wills must come once and retained messages be what
was acknowledged last, on each node; after each chapter all nodes must hold the same.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Final

from tests.support.cluster_processes import DEAD_AFTER_S, ClusterNodeProcess, ClusterProcesses
from tests.support.delivery import Receipts, Stamp
from tests.support.kill_rounds import KillRounds, _now_us
from tests.support.mortal import Mortal, Returner
from tests.support.peer_connection import PeerConnection
from tests.support.peers import Publisher, Subscriber

REFUSALS: Final = frozenset({0x88, 0x03, 0x8E, 0x9C})
"""Server unavailable (3 in 3.1.1), taken over, use another server."""

FAULTS: Final = (
    "kill_node",
    "kill_two_nodes",
    "kill_all_nodes",
    "restart_nodes",
    "pause_node",
    "kill_kafka_broker",
    "kill_two_kafka_brokers",
    "kill_kafka",
    "pause_kafka_broker",
    "cut_node_off",
    "slow_way",
    "step_clock",
    "kill_everything",
)
STOPPED: Final = "one of 3 nodes stopped"
"""In ``recoveries_s``: each time that one was, before it was started again."""

RECOVERY_TIMEOUT_S: Final = 180.0
ANSWER_TIMEOUT_S: Final = 3.0
"""A client whose node does not answer CONNECT tries another one after this."""

MESSAGES_PER_ROUND_MAX: Final = 1500
MORTALS: Final = 4
RETURNERS: Final = 2
WILL_DELAY_S: Final = 2
GROUP: Final = "group"
GROUP_FILTERS: Final = (("load/+/d", 2), ("load/1/a", 1))
MEMBERS: Final = 3
AWAY_TICKS: Final = 10
"""After so many a client that is not wanted any more will not connect."""
TICK_S: Final = 0.01
KEEP_SHARE: Final = 0.1
"""Of the messages that are retained."""


class ClusterRounds(KillRounds):
    """A run of many rounds on one cluster.

    Args:
        cluster: open, with no node running.
        seed: fixes all choices.
        say: told what happens.
        faults: those that may come.
        chapter_rounds: rounds between two audits.

    Attributes:
        recoveries_s: by fault, the time from its end until messages were taken again, seconds.
        verified: times that the digests of all nodes were compared.
    """

    forgives = REFUSALS
    # Wills of different connections: nothing orders what becomes due on two nodes. Members of a
    # group have an order each, and none together.
    unordered = frozenset({"sub-wills", GROUP})

    def __init__(
        self,
        cluster: ClusterProcesses,
        *,
        seed: str,
        say: Callable[[str], None],
        faults: Sequence[str] = FAULTS,
        chapter_rounds: int = 4,
    ) -> None:
        super().__init__(cluster, seed=seed, say=say, chapter_rounds=chapter_rounds)
        self._cluster = cluster
        self._faults: list[str] = []
        self._all_faults = tuple(faults)
        self._mortals: list[PeerConnection[Mortal]] = []
        self._returners: list[PeerConnection[Returner]] = []
        self._away_ticks: dict[str, int] = {}
        self._kept: dict[str, Stamp] = {}
        self._since: dict[int, float] = {}
        self.recoveries_s: dict[str, list[float]] = {}
        self.verified = 0

    # -- a round -----------------------------------------------------------------------------

    async def _chapter(self, number: int, rounds: int) -> None:
        self._mortals, self._returners = [], []
        self._away_ticks = {}
        await super()._chapter(number, rounds)
        await asyncio.gather(*(mortal.close() for mortal in self._mortals))
        await asyncio.gather(*(returner.close() for returner in self._returners))
        await self._verify("stopped")

    async def _round(self, *, first: bool) -> None:
        chance, cluster = self._chance, self._cluster
        await cluster.start()
        self._choose_subscribers()
        if first:
            self._mortals = [self._mortal(number) for number in range(MORTALS)]
            self._returners = [self._returner(number) for number in range(RETURNERS)]
        self._quota = MESSAGES_PER_ROUND_MAX
        await self._must_take_messages("start")
        await asyncio.sleep(chance.uniform(0, 0.8))
        if not self._faults:
            # All of them before one comes again.
            self._faults = chance.sample(self._all_faults, len(self._all_faults))
        fault = self._faults.pop()
        self._quota = MESSAGES_PER_ROUND_MAX
        begun_s = time.monotonic()
        await getattr(self, f"_{fault}")()
        cluster.check()
        await self._must_take_messages(fault)
        self._say(f"{fault}: {time.monotonic() - begun_s:.1f} s")

    async def _must_take_messages(self, fault: str) -> None:
        """Wait for the acknowledgement of a message that is sent from now on."""
        begun_s = time.monotonic()
        wanted = self._ledger.acknowledged_count + self._under_way() + 1
        while time.monotonic() - begun_s < RECOVERY_TIMEOUT_S:
            self._cluster.check()
            if self._ledger.acknowledged_count >= wanted:
                self.recoveries_s.setdefault(fault, []).append(time.monotonic() - begun_s)
                return
            self._quota = max(self._quota, 20)
            await asyncio.sleep(TICK_S)
        self._outcome.failures.append(f"{fault}: no message taken in {RECOVERY_TIMEOUT_S:.0f} s")

    # -- faults ------------------------------------------------------------------------------

    def _some(self, count: int) -> list[ClusterNodeProcess]:
        return self._chance.sample(self._cluster.nodes, count)

    async def _kill_nodes(self, count: int) -> None:
        nodes = self._some(count)
        for node in nodes:
            await self._cluster.kill_node(node)
        if count < len(self._cluster.nodes):
            await self._must_take_messages(f"{count} of 3 nodes dead")
        # Before or after the others have expelled it.
        await asyncio.sleep(self._chance.choice((0.0, 0.5, DEAD_AFTER_S + 2)))
        await self._cluster.spawn()

    async def _kill_node(self) -> None:
        await self._kill_nodes(1)

    async def _kill_two_nodes(self) -> None:
        await self._kill_nodes(2)

    async def _kill_all_nodes(self) -> None:
        await self._kill_nodes(3)

    async def _restart_nodes(self) -> None:
        """One after the other, as an upgrade does: in load, and in service with two."""
        for node in self._some(3):
            self._quota = MESSAGES_PER_ROUND_MAX
            code = await node.stop()
            if code:
                self._outcome.failures.append(f"{node.name} ended with {code} after SIGTERM")
            await self._must_take_messages(STOPPED)
            self._quota = MESSAGES_PER_ROUND_MAX
            await node.spawn()
            await self._cluster.until_listening(node)

    async def _pause_node(self) -> None:
        (node,) = self._some(1)
        node.pause()
        await asyncio.sleep(self._chance.choice((0.5, DEAD_AFTER_S + 1.5, DEAD_AFTER_S + 3.0)))
        node.resume()

    async def _kill_kafka_brokers(self, count: int) -> None:
        for broker in self._chance.sample(self._cluster.kafka.brokers, count):
            broker.kill()
        await asyncio.sleep(self._chance.choice((0.0, 1.0, 5.0)))
        await self._cluster.start_kafka()

    async def _kill_kafka_broker(self) -> None:
        await self._kill_kafka_brokers(1)

    async def _kill_two_kafka_brokers(self) -> None:
        await self._kill_kafka_brokers(2)

    async def _kill_kafka(self) -> None:
        await self._kill_kafka_brokers(3)

    async def _pause_kafka_broker(self) -> None:
        broker = self._chance.choice(self._cluster.kafka.brokers)
        await asyncio.to_thread(broker.pause)
        await asyncio.sleep(self._chance.choice((0.5, 4.0)))
        broker.resume()

    async def _cut_node_off(self) -> None:
        (node,) = self._some(1)
        for way in node.ways:
            way.cut()
        await asyncio.sleep(self._chance.choice((0.5, 2.0, DEAD_AFTER_S + 2.5)))
        reset = self._chance.random() < 0.5
        for way in node.ways:
            way.mend(reset=reset)

    async def _slow_way(self) -> None:
        for node in self._some(self._chance.randint(1, 3)):
            for way in node.ways:
                way.delay_s = self._chance.choice((0.005, 0.05, 0.2))
        await asyncio.sleep(self._chance.uniform(1.0, 3.0))

    async def _step_clock(self) -> None:
        (node,) = self._some(1)
        node.step_clock(self._chance.choice((-86_400, -3600, -2, 0, 2, 3600, 86_400)))
        await asyncio.sleep(1.0)

    async def _kill_everything(self) -> None:
        await self._cluster.kill()
        for broker in self._cluster.kafka.brokers:
            broker.kill()
        if self._chance.random() < 0.5:
            # Nodes that start while Kafka is away wait for it.
            await self._cluster.spawn()
            await asyncio.sleep(1.0)
        await self._cluster.start_kafka()
        await self._cluster.spawn()

    # -- peers -------------------------------------------------------------------------------

    def _mortal(self, number: int) -> PeerConnection[Mortal]:
        peer = Mortal(
            f"mortal-{_now_us()}-{number}",
            protocol=4 + number % 2,
            ledger=self._ledger,
            clock=_now_us,
        )
        peer.forgives = self.forgives
        return PeerConnection(peer, self._broker.place())

    def _make_subscribers(self) -> list[Subscriber]:
        peers = super()._make_subscribers()
        for name, topic_filter in (("sub-wills", "wills/#"), ("sub-keep", "keep/#")):
            peer = Subscriber(name, [(topic_filter, 2)], protocol=5, chance=self._chance)
            peer.forgives = self.forgives
            peers.append(peer)
        together = Receipts(GROUP, dict(GROUP_FILTERS))
        for number in range(MEMBERS):
            member = Subscriber(
                f"member-{number}",
                GROUP_FILTERS,
                protocol=4 + number % 2,
                chance=self._chance,
                prefix=f"$share/{GROUP}/",
                receipts=together,
            )
            member.forgives = self.forgives
            peers.append(member)
        return peers

    def _forget_messages(self) -> None:
        super()._forget_messages()
        together = Receipts(GROUP, dict(GROUP_FILTERS))
        for connection in self._subscribers:
            if connection.peer.client_id.startswith("member-"):
                connection.peer.receipts = together

    def _returner(self, number: int) -> PeerConnection[Returner]:
        peer = Returner(
            f"returner-{_now_us()}-{number}",
            ledger=self._ledger,
            clock=_now_us,
            delay_s=WILL_DELAY_S,
        )
        peer.forgives = self.forgives
        return PeerConnection(peer, self._broker.place())

    def _is_complete(self) -> bool:
        return all(each.peer.is_gone for each in self._returners) and super()._is_complete()

    def _fill(self, connection: PeerConnection[Publisher]) -> None:
        peer = connection.peer
        if peer.is_connected and self._quota > 0 and self._chance.random() < KEEP_SHARE:
            if self._is_draining or len(peer.under_way) >= 50:
                return
            qos = self._chance.choice((1, 2))
            connection.write(peer.publish(f"keep/{peer.client_id}", qos=qos, retain=True))
        super()._fill(connection)

    async def _tick(self) -> None:
        """Besides small events: whom no node answers tries another one, and mortals die."""
        ticking = asyncio.ensure_future(super()._tick())
        try:
            while True:
                await asyncio.sleep(10 * TICK_S)
                now_s = time.monotonic()
                for connection in (*self._connections(), *self._mortals, *self._returners):
                    key = id(connection.link)
                    if connection.link is None or connection.peer.is_connected:
                        self._since.pop(key, None)
                    elif now_s - self._since.setdefault(key, now_s) > ANSWER_TIMEOUT_S:
                        connection.cut()
                for mortal in self._mortals:
                    if self._is_draining:
                        mortal.is_wanted = False
                    if self._is_draining or self._chance.random() < 0.03:
                        mortal.cut()
                for returner in self._returners:
                    self._tick_returner(returner)
        finally:
            ticking.cancel()

    def _tick_returner(self, returner: PeerConnection[Returner]) -> None:
        peer = returner.peer
        if self._is_draining:
            returner.is_wanted = False
            ticks = self._away_ticks.get(peer.client_id, 0) + 1 if returner.link is None else 0
            self._away_ticks[peer.client_id] = ticks
            returner.cut()
            if ticks == AWAY_TICKS:
                peer.stays_away()
        elif returner.is_wanted and self._chance.random() < 0.03:
            returner.cut()
            # Now and then for longer than the delay.
            returner.is_wanted = self._chance.random() < 0.8
        elif not returner.is_wanted and self._chance.random() < 0.03:
            returner.is_wanted = True

    # -- what must hold ----------------------------------------------------------------------

    async def _drain(self) -> None:
        await super()._drain()
        await self._check_retained()
        await self._verify("running")

    async def _check_retained(self) -> None:
        """Each node gives each retained message as it was acknowledged last."""
        for (publisher, topic), flow in self._ledger.flows.items():
            if topic.startswith("keep/"):
                numbers = [n for n, at_us in enumerate(flow.acknowledged_at_us, 1) if at_us]
                if numbers:
                    self._kept[topic] = Stamp(publisher, numbers[-1])
        for node in self._cluster.nodes:
            reader = Subscriber(
                f"reader-{node.name}-{_now_us()}", [("keep/#", 0)], protocol=5, chance=self._chance
            )
            connection = PeerConnection(reader, node.process.port)
            end_s = time.monotonic() + RECOVERY_TIMEOUT_S
            while self._missing(reader) and time.monotonic() < end_s:
                await asyncio.sleep(TICK_S)
            for topic in self._missing(reader)[:3]:
                self._outcome.failures.append(
                    f"{node.name} retains {reader.retained.get(topic)!r} of {topic}, "
                    f"acknowledged was {self._kept[topic]}"
                )
            await connection.close()

    def _missing(self, reader: Subscriber) -> list[str]:
        wrong = []
        for topic, wanted in self._kept.items():
            found = Stamp.decode(reader.retained.get(topic, b""))
            if found is None or (found.publisher, found.number) != (
                wanted.publisher,
                wanted.number,
            ):
                wrong.append(topic)
        return wrong

    async def _verify(self, what: str) -> None:
        found = await self._cluster.verify()
        self.verified += 1
        if len(found) != len(self._cluster.nodes) or len(set(found)) != 1:
            self._outcome.failures.append(f"digests of {what} nodes differ: {found}")
