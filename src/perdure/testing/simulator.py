"""Whole-broker simulations: a seed decides everything that happens to a broker and its clients.

A run has two halves. First the world is unkind: clients publish, hold back acknowledgements, go
away, come twice; the network splits, delays and cuts; the broker is killed between two callbacks
or in the middle of a write, with or without the machine's power; the disk refuses writes or
syncs; the log is rotated and its old generations dropped. Then the world is healed, everybody
takes what is owed, and the checkers compare what was promised with what was kept.

The same seed gives the same run. What a run did is in ``Report.story``.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, final

import msgspec

from perdure.config.schema import (
    Config,
    RetentionConfig,
    SessionConfig,
    SharedConfig,
    StorageConfig,
    SysConfig,
)
from perdure.errors import StorageFull, StorageUnavailable
from perdure.testing.checkers import broken_promises, unsettled, wrong_retained
from perdure.testing.client import PeerT, Seat
from perdure.testing.delivery import Ledger, Receipts, audit
from perdure.testing.network import Weather
from perdure.testing.peers import Publisher, Subscriber
from perdure.testing.storage import FaultyDatabase
from perdure.testing.world import World

TOPICS: Final = tuple(f"load/{row}/{column}" for row in range(4) for column in "abc")
STEPS: Final = 120
DRAIN_STEP_US: Final = 500_000
DRAIN_LIMIT_US: Final = 30_000_000
TICK_US: Final = 10_000

STORAGE_CODES: Final = frozenset({0x80, 0x88, 0x97, 3})
"""What the broker may say while its store fails; 3 is 3.1.1's word for it."""
TAKEN_OVER: Final = frozenset({0x8E})


@dataclass
class Plan:
    """What a run may contain; ``of`` draws one from a seed.

    Attributes:
        steps: events of the unkind half.
        crashes, storage_faults, generations: whether there are any.
        power_cuts: crashes may take what was not synced with them.
        suspends: reads of the store wait, as a server's would.
        clock_steps: somebody sets the wall clock.
        config: of the broker.
        durability: of the listener; empty = the broker's.
    """

    steps: int = STEPS
    crashes: bool = True
    power_cuts: bool = True
    storage_faults: bool = True
    generations: bool = True
    suspends: bool = False
    clock_steps: bool = False
    config: Config = field(default_factory=Config)
    durability: str = ""

    @classmethod
    def of(cls, chance: random.Random) -> Plan:
        """A plan with small windows and pages, so that every edge is met often."""
        config = Config(
            session=SessionConfig(
                inflight_max=chance.choice((2, 5, 20, 1000)),
                memory_pending_max=chance.choice((2, 10, 1000)),
                feed_chunk=chance.choice((2, 7, 256)),
                outbound_buffer_bytes=chance.choice((4096, 65_536)),
            ),
            storage=StorageConfig(
                commit_interval_us=chance.choice((0, 500, 2000)),
                commit_messages_max=chance.choice((1, 20, 1000)),
                commit_queue_max=chance.choice((20, 50_000)),
            ),
            retention=RetentionConfig(time_s=0, check_interval_s=3600),
            shared=SharedConfig(),
            sys=SysConfig(interval_s=0),
        )
        return cls(
            crashes=chance.random() < 0.8,
            storage_faults=chance.random() < 0.4,
            generations=chance.random() < 0.4,
            suspends=chance.random() < 0.25,
            clock_steps=chance.random() < 0.25,
            config=config,
        )


@final
class Report(msgspec.Struct):
    """What became of a run.

    Attributes:
        seed: repeats it.
        breaches: broken promises, in words.
        story: what happened, in order.
        published, delivered, redelivered, crashes: how much it was.
    """

    seed: int
    breaches: list[str] = []
    story: list[str] = []
    published: int = 0
    delivered: int = 0
    redelivered: int = 0
    crashes: int = 0


@final
class Simulation:
    """One run.

    Args:
        seed: of everything.
        plan: what it may contain; None = drawn from the seed.
        store: the first store, for planted faults.
    """

    def __init__(
        self, seed: int, *, plan: Plan | None = None, store: FaultyDatabase | None = None
    ) -> None:
        self.chance = random.Random(seed)  # noqa: S311 - a simulation needs a seed
        self.plan = plan or Plan.of(self.chance)
        self.report = Report(seed)
        self.world = World(
            self.chance.getrandbits(32),
            config=self.plan.config,
            store=store,
            durability=self.plan.durability,
            weather=Weather(pieces_max=self.chance.choice((1, 3))),
        )
        self.ledger = Ledger()
        self.publishers = [
            self._seat(
                Publisher(
                    f"pub-{number}",
                    protocol=protocol,
                    ledger=self.ledger,
                    clock=self.world.clock.now_us,
                    payload_size=self.chance.choice((32, 700)),
                )
            )
            for number, protocol in enumerate((4, 5, 5))
        ]
        self.group = Receipts("group", {"load/#": 2})
        self.world.suspends = self.plan.suspends
        self.world.power_cuts = self.plan.power_cuts
        self.subscribers = [self._seat(peer) for peer in self._make_subscribers()]
        self._is_healed = False

    def run(self) -> Report:
        """Run it."""
        world = self.world
        self._start()
        for seat in self._seats():
            seat.connect()
        assert world.run_until(lambda: all(seat.peer.is_subscribed for seat in self.subscribers)), (
            "the first SUBACK never came"
        )
        self._tick()
        actions = self._actions()
        weights = [weight for weight, _ in actions]
        for _ in range(self.plan.steps):
            _, action = self.chance.choices(actions, weights)[0]
            action()
            world.run_for(self.chance.choice((0, 50, 500, 3_000, 15_000)))
            if world.broker is None and self.chance.random() < 0.3:
                self._start()
        self._heal()
        self._drain()
        self._audit()
        return self.report

    # Events.

    def _actions(self) -> list[tuple[int, Callable[[], None]]]:
        actions: list[tuple[int, Callable[[], None]]] = [
            (40, self._publish),
            (8, self._subscriber_goes),
            (10, self._subscriber_comes),
            (3, self._cut_someone),
            (3, self._take_over),
            (4, self._stall),
            (4, self._hold),
            (4, self._subscribe_again),
        ]
        if self.plan.clock_steps:
            actions.append((2, self._step_clock))
        if self.plan.crashes:
            actions += [(3, self._kill), (2, self._die_in_write)]
        if self.plan.storage_faults:
            actions += [(2, self._break_disk), (4, self._repair_disk)]
        if self.plan.generations:
            actions += [(2, self._rotate), (2, self._drop)]
        return actions

    def _publish(self) -> None:
        seat = self.chance.choice(self.publishers)
        peer = seat.peer
        if not peer.is_connected or len(peer.under_way) > 40:
            return
        count = self.chance.choice((1, 2, 5, 20))
        # One QoS for each state: a QoS 1 message that is sent again after a QoS 2 message was
        # taken is the newer of the two, by MQTT's rules.
        state_qos = 1 + peer.protocol % 2
        data = [
            peer.publish(f"state/{peer.client_id}", qos=state_qos, retain=True)
            if self.chance.random() < 0.2
            else peer.publish(self.chance.choice(TOPICS), qos=self.chance.choice((1, 2)))
            for _ in range(count)
        ]
        self._tell(f"{peer.client_id} publishes {count}")
        seat.write(b"".join(data))

    def _subscriber_goes(self) -> None:
        seat = self.chance.choice(self.subscribers)
        if seat.peer.is_connected:
            way = self.chance.choice(("leaves", "hangs up", "vanishes"))
            self._tell(f"{seat.peer.client_id} {way}")
            if way == "vanishes":
                seat.is_wanted = False
                seat.vanish()
            else:
                seat.leave(goodbye=b"\xe0\x00" if way == "leaves" else b"")

    def _subscriber_comes(self) -> None:
        seat = self.chance.choice(self.subscribers)
        if not seat.peer.is_connected:
            seat.peer.window = self.chance.choice((0, 1, 3, 20))
            self._tell(f"{seat.peer.client_id} comes, window {seat.peer.window}")
            seat.connect()

    def _cut_someone(self) -> None:
        seat = self.chance.choice(self._seats())
        self._tell(f"{seat.peer.client_id} is cut")
        seat.cut()

    def _take_over(self) -> None:
        seat = self.chance.choice(self._seats())
        if seat.peer.is_connected:
            self._tell(f"{seat.peer.client_id} comes again")
            seat.connect()

    def _stall(self) -> None:
        seat = self.chance.choice(self.subscribers)
        if self.chance.random() < 0.5:
            seat.stop_taking()
        else:
            seat.take_again()

    def _hold(self) -> None:
        self.chance.choice(self.subscribers).peer.hold = self.chance.choice((0.0, 0.2, 0.8))

    def _subscribe_again(self) -> None:
        seat = self.chance.choice(self.subscribers)
        if seat.peer.is_connected:
            self._tell(f"{seat.peer.client_id} subscribes again")
            seat.write(seat.peer.subscribe())

    def _step_clock(self) -> None:
        change_us = self.chance.choice((-60_000_000, -5_000, 5_000, 60_000_000))
        self._tell(f"the clock is set by {change_us} us")
        self.world.clock.step_wall_us(change_us)

    def _kill(self) -> None:
        if self.world.broker is None:
            self._start()
            return
        power = self.plan.power_cuts and self.chance.random() < 0.5
        self._tell("power is cut" if power else "the broker is killed")
        self.report.crashes += 1
        self.world.kill(power=power, keep_some=self.chance.random() < 0.5)
        if self.chance.random() < 0.8:
            self._start()

    def _die_in_write(self) -> None:
        store = self.world.store
        store.die_in = self.chance.choice((0, 0, 1, 3, 10))
        store.die_after_write = self.chance.random() < 0.5
        self._tell(f"the broker will die in {store.die_in} writes")

    def _break_disk(self) -> None:
        store = self.world.store
        if self.chance.random() < 0.5:
            self._tell("writes fail")
            store.write_error = self.chance.choice(
                (StorageFull("full"), StorageUnavailable("broken"))
            )
        else:
            store.forgets = self.chance.random() < 0.5
            self._tell(f"syncs fail, forgetting {store.forgets}")
            store.sync_error = StorageUnavailable("broken")

    def _repair_disk(self) -> None:
        if self.world.store.is_failing:
            self._tell("the disk is repaired")
            self.world.store.heal()

    def _rotate(self) -> None:
        broker = self.world.broker
        store = self.world.store
        if broker is None or store.is_failing or not broker.services.committer.writable:
            return
        self._tell("a new generation")
        store.rotate(self.world.clock.now_us())

    def _drop(self) -> None:
        broker = self.world.broker
        store = self.world.store
        old = store.generations()[:-1]
        if broker is None or not old or store.is_failing or self._is_dropping:
            return
        if not broker.services.committer.writable:
            return
        self._tell(f"generation {old[0].generation} is dropped")
        scheduler = self.world.scheduler
        assert scheduler is not None
        self._is_dropping = True

        async def drop() -> None:
            try:
                await broker.services.retention.drop(old[0])
            except (StorageFull, StorageUnavailable) as error:
                self._tell(f"not dropped: {error.message}")
            finally:
                self._is_dropping = False

        scheduler.spawn(drop(), name="drop")

    _is_dropping = False

    # The end.

    def _heal(self) -> None:
        self._is_healed = True
        self._tell("everything is healed")
        self.world.store.heal()
        self.world.store.die_in = -1
        if self.world.broker is None:
            self._start()
        for seat in self.subscribers:
            seat.peer.hold = 0.0
            seat.take_again()
        for anyone in self._seats():
            if not anyone.peer.is_connected:
                anyone.connect()

    def _drain(self) -> None:
        world = self.world

        for _ in range(DRAIN_LIMIT_US // DRAIN_STEP_US):
            world.run_for(DRAIN_STEP_US)
            under_way = sum(len(seat.peer.under_way) for seat in self.publishers)
            if not under_way and not self._lost():
                break
        # What comes now has come before.
        world.run_for(DRAIN_STEP_US)
        self._come_late()

    def _come_late(self) -> None:
        """Someone asks for the retained messages, someone for all of the past."""
        state = Subscriber("late-state", [("state/+", 2)], protocol=5, chance=self.chance)
        past = Subscriber(
            "late-past", [("load/#", 2)], protocol=4, chance=self.chance, prefix="$replay/0/"
        )
        for peer in (state, past):
            self._seat(peer).connect()
        self.world.run_for(20 * DRAIN_STEP_US)
        self.report.breaches += wrong_retained(self.ledger, state.retained)
        if not self.plan.generations:
            self.report.breaches += broken_promises(self.ledger, [], [past])

    def _audit(self) -> None:
        report = self.report
        for seat in self.publishers:
            report.breaches += [f"still under way: {m}" for m in seat.peer.under_way.values()]
        report.breaches += broken_promises(
            self.ledger,
            [seat.peer for seat in self.publishers],
            self._subscriber_peers(),
            [self.group],
        )
        report.breaches += unsettled(self.world, [p.client_id for p in self._subscriber_peers()])
        report.crashes += self.world.deaths
        report.published = self.ledger.acknowledged_count
        report.delivered = sum(seat.peer.receipts.count for seat in self.subscribers)

    def _lost(self) -> int:
        return sum(audit(self.ledger, p.receipts).lost for p in self._subscriber_peers())

    def _subscriber_peers(self) -> list[Subscriber]:
        return [seat.peer for seat in self.subscribers]

    # Helpers.

    def _start(self) -> None:
        self._tell("a broker starts")
        for peer in self._subscriber_peers():
            peer.power_cuts = self.world.power_cut_count
        self.world.start()
        if self.world.broker is None:
            self._tell("and dies")

    def _tick(self) -> None:
        """Held acknowledgements go out now and then; a dead broker is started in the end."""
        for seat in self.subscribers:
            if seat.peer.is_connected and (self._is_healed or self.chance.random() < 0.3):
                seat.write(seat.peer.release_held())
        self.world.loop.call_later(TICK_US, self._tick)

    def _tell(self, text: str) -> None:
        at_ms = self.world.clock.monotonic_us() / 1000
        self.report.story.append(f"{at_ms:10.2f} ms  {text}")

    def _seat(self, peer: PeerT) -> Seat[PeerT]:
        peer.forgives = TAKEN_OVER
        if self.plan.storage_faults:
            peer.forgives |= STORAGE_CODES
        return Seat(peer, self.world.network, self.world.loop, self.chance)

    def _make_subscribers(self) -> list[Subscriber]:
        plans: list[tuple[str, int, list[tuple[str, int]]]] = [
            ("sub-all", 4, [("load/#", 2)]),
            ("sub-column", 5, [("load/+/a", 1)]),
            ("sub-exact", 5, [(topic, 2) for topic in TOPICS[::3]]),
            ("sub-state", 5, [("state/+", 2)]),
            ("sub-two", 5, [("load/+/b", 2), ("load/+/c", 1)]),
        ]
        members = [
            Subscriber(
                f"member-{number}",
                [("load/#", 2)],
                protocol=4 + number % 2,
                chance=self.chance,
                prefix="$share/g/",
                receipts=self.group,
            )
            for number in range(3)
        ]
        return members + [
            Subscriber(name, filters, protocol=protocol, chance=self.chance)
            for name, protocol, filters in plans
        ]

    def _seats(self) -> list[Seat[Publisher] | Seat[Subscriber]]:
        return [*self.publishers, *self.subscribers]
