"""Seeded: queues that another broker has left, any acknowledgements, kills at any moment.

The identifiers are drawn with gaps, wraps and repeats, some exchanges are past their PUBREC, some
entries have a lifetime. Whatever happens, each message comes under the identifier that it had, for
the first time in order, never again once it is done, and new ones are numbered after the last.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import pytest

from perdure.config.schema import Config, SessionConfig
from perdure.model import Subscription
from perdure.mqtt.packets import PUBACK, PUBCOMP, PUBREC, PUBREL, Ack, Publish
from perdure.pipeline.jobs.migrate.directory import DatabaseTarget, Sessions
from perdure.pipeline.jobs.migrate.task import put_pages
from perdure.pipeline.tbmq.identifiers import resolve
from perdure.pipeline.tbmq.pending import PendingEntry, PendingPage
from tests.support.sim_broker import SimBroker
from tests.unit.broker.harness import QUIET, Client, make_sim

STEPS = 40
SEEDS = 40
LEAPS = (1, 1, 1, 2, 5, 65_533, 65_535, 65_535 + 1)


class Run:
    """One client with a queue of another broker."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        config = Config(
            sys=QUIET,
            session=SessionConfig(
                inflight_max=self.chance.choice((1, 3, 100)),
                memory_pending_max=self.chance.choice((2, 100)),
                feed_chunk=self.chance.choice((1, 3, 256)),
            ),
        )
        self.sim = make_sim(config=config)
        self.entries = self._entries()
        self.last = self.chance.choice((0, 0, 1, 30, 65_535))
        self._take_over(self.sim)
        self.client = Client(self.sim, "c", acks=False)
        self.publisher = Client(self.sim, "p")
        self.seen: dict[bytes, int] = {}
        self.done: set[bytes] = set()
        self.open: list[Publish | Ack] = []
        self.published = 0
        self.connected = False
        self.looked = 0

    def _entries(self) -> list[PendingEntry]:
        packet_id = self.chance.choice((0, 1, 65_530))
        drawn: list[tuple[int, bool]] = []
        for _ in range(self.chance.randrange(1, 25)):
            packet_id = (packet_id + self.chance.choice(LEAPS) - 1) % 65_535 + 1
            drawn.append((packet_id, self.chance.random() < 0.25))
        resolved = resolve(
            [each[0] for each in drawn],
            [each[1] for each in drawn],
            last_packet_id=0,
            unique=False,
        )
        return [
            PendingEntry(
                place, identifier, released, "t", b"%d" % place, self.chance.choice((1, 2))
            )
            for place, (identifier, (_, released)) in enumerate(
                zip(resolved.identifiers, drawn, strict=True)
            )
            if identifier
        ]

    def _take_over(self, sim: SimBroker) -> None:
        subs = {"c": [Subscription("new", qos=1)]}
        target = DatabaseTarget(sim.store, Sessions(sim.clock.now_us(), subscriptions=subs))
        self.last = self.last or self.entries[-1].packet_id

        async def pages() -> AsyncIterator[PendingPage]:
            yield PendingPage("c", self.last, self.entries)

        result = asyncio.run(put_pages(0, pages(), target))
        assert result.mismatches == []
        sim.kill()
        sim.start()

    # What may happen.

    def connect(self) -> None:
        if self.connected:
            return
        self.open.clear()
        assert self.client.connect().session_present
        self.connected = True

    def acknowledge(self) -> None:
        if not self.connected or not self.open:
            return
        packet = self.open.pop(self.chance.randrange(len(self.open)))
        if isinstance(packet, Publish):
            kind = PUBACK if packet.qos == 1 else PUBREC
            self.client.send(Ack(kind, packet.packet_id))
        else:
            self.client.send(Ack(PUBCOMP, packet.packet_id))

    def wait(self) -> None:
        self.sim.run_for(self.chance.choice((0, 100, 5_000, 50_000)))

    def cut(self) -> None:
        if self.connected:
            self.client.cut()
            self.connected = False

    def kill(self) -> None:
        self.sim.kill()
        self.sim.start()
        self.connected = False

    def publish(self) -> None:
        self.publisher.connect(expiry_s=0, clean=True)
        self.publisher.deliver("new", b"new %d" % self.published)
        self.published += 1

    def step(self) -> None:
        happens = self.chance.choices(
            [self.connect, self.acknowledge, self.wait, self.cut, self.kill, self.publish],
            [3, 8, 5, 1, 1, 1],
        )
        happens[0]()
        self.look()

    # What is looked at.

    def look(self) -> None:
        """What has come since."""
        received, self.client.received = self.client.received, []
        for packet in received:
            if isinstance(packet, Publish):
                self.open.append(packet)
                known = self.seen.setdefault(packet.payload, packet.packet_id)
                assert known == packet.packet_id, "another identifier"
            elif isinstance(packet, Ack):
                assert packet.kind == PUBREL
                self.open.append(packet)

    def drain(self) -> None:
        """Take everything."""
        for _ in range(500):
            self.connect()
            self.sim.run_for(20_000)
            self.look()
            if not self.open:
                return
            while self.open:
                self.acknowledge()
        raise AssertionError("it never ends")


@pytest.mark.trap(1, 6, 7, 17)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_was_taken_over_comes_as_it_was(seed: int) -> None:
    run = Run(seed)
    for _ in range(STEPS):
        run.step()
    run.drain()
    expected = {e.payload: e.packet_id for e in run.entries if not e.released}
    old = {payload: number for payload, number in run.seen.items() if b"new" not in payload}
    assert old == expected
    assert list(old) == list(expected), "the first time they come in order"
    new = [number for payload, number in run.seen.items() if b"new" in payload]
    assert new == [(run.last + number) % 65_535 + 1 for number in range(run.published)]
    # Acknowledged, and on record: nothing comes again, also after a kill.
    run.sim.run_for(1_000_000)
    run.kill()
    run.connect()
    run.client.none_comes(Publish)
    run.client.none_comes(Ack)


@pytest.mark.parametrize("kill", [False, True])
def test_a_shared_queue_goes_to_whoever_subscribes(kill: bool) -> None:
    """In order, each message to one member, and what was published meanwhile after it."""
    sim = make_sim()
    entries = [PendingEntry(n, n, n == 3, "jobs/1", b"%d" % n, 1) for n in range(1, 8)]
    target = DatabaseTarget(sim.store, Sessions(sim.clock.now_us()))

    async def pages() -> AsyncIterator[PendingPage]:
        yield PendingPage("ss_workers_jobs/+", 7, entries)

    assert asyncio.run(put_pages(0, pages(), target)).mismatches == []
    sim.kill()
    sim.start()
    publisher, worker = Client(sim, "p"), Client(sim, "w", acks=not kill)
    publisher.connect(expiry_s=0, clean=True)
    publisher.deliver("jobs/2", b"new")
    worker.connect()
    worker.subscribe("$share/workers/jobs/+", qos=1)
    expected = [b"1", b"2", b"4", b"5", b"6", b"7", b"new"]
    assert worker.payloads() == expected
    if kill:
        sim.kill()
        sim.start()
        worker.acks = True
        worker.connect()
        assert worker.payloads() == expected
    sim.run_for(1_000_000)
    sim.kill()
    sim.start()
    worker.connect()
    worker.none_comes()
