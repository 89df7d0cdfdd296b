"""Who and what takes part in a simulation: a broker, its clients, and the trace of the run."""

from __future__ import annotations

import random
from typing import Final, final

import msgspec

from tests.support.delivery import Ledger, Receipts
from tests.support.network import NetworkProfile
from tests.support.peers import Publisher, Subscriber
from tests.support.plan import Plan
from tests.support.sim_broker import SimBroker
from tests.support.sim_connection import PeerT, SimPeerConnection
from tests.support.storage import FaultyDatabase

TOPICS: Final = tuple(f"load/{row}/{column}" for row in range(4) for column in "abc")

STORAGE_CODES: Final = frozenset({0x80, 0x88, 0x97, 3})
"""What the broker may say while its store fails; 3 is 3.1.1's word for it."""
TAKEN_OVER: Final = frozenset({0x8E})


@final
class Report(msgspec.Struct):
    """What became of a run.

    Attributes:
        seed: repeats it.
        breaches: broken promises, in words.
        trace: what happened, in order.
        published, delivered, redelivered, crashes: how much it was.
    """

    seed: int
    breaches: list[str] = []
    trace: list[str] = []
    published: int = 0
    delivered: int = 0
    redelivered: int = 0
    crashes: int = 0


@final
class Scenario:
    """The simulated broker of one run and all of its clients.

    Args:
        seed: of everything.
        plan: what the run may contain; None = drawn from the seed.
        store: the first store, for planted faults.

    Attributes:
        chance: decides everything; each draw is a part of the run.
        ledger: what publishers sent and were promised.
        publishers, subscribers: the clients.
        group: what the members of the shared group received together.
    """

    def __init__(self, seed: int, *, plan: Plan | None, store: FaultyDatabase | None) -> None:
        self.chance = random.Random(seed)
        self.plan = plan or Plan.of(self.chance)
        self.report = Report(seed)
        self.sim = SimBroker(
            self.chance.getrandbits(32),
            config=self.plan.config,
            store=store,
            durability=self.plan.durability,
            network_profile=NetworkProfile(pieces_max=self.chance.choice((1, 3))),
        )
        self.ledger = Ledger()
        self.publishers = [
            self.connection_of(
                Publisher(
                    f"pub-{number}",
                    protocol=protocol,
                    ledger=self.ledger,
                    clock=self.sim.clock.now_us,
                    payload_size=self.chance.choice((32, 700)),
                )
            )
            for number, protocol in enumerate((4, 5, 5))
        ]
        self.group = Receipts("group", {"load/#": 2})
        self.sim.suspends = self.plan.suspends
        self.sim.rests = self.plan.rests
        self.sim.limits = self.plan.limits
        self.sim.power_cuts = self.plan.power_cuts
        self.subscribers = [self.connection_of(peer) for peer in self._make_subscribers()]

    def start(self) -> None:
        """Start a broker on what the last one left."""
        self.trace("a broker starts")
        for peer in self.subscriber_peers():
            peer.power_cuts = self.sim.power_cut_count
        self.sim.start()
        if self.sim.broker is None:
            self.trace("and dies")

    def trace(self, text: str) -> None:
        """Write down what happens now."""
        at_ms = self.sim.clock.monotonic_us() / 1000
        self.report.trace.append(f"{at_ms:10.2f} ms  {text}")

    def connection_of(self, peer: PeerT) -> SimPeerConnection[PeerT]:
        """The connection of a peer, who forgives what the plan makes the broker do."""
        peer.forgives = TAKEN_OVER
        if self.plan.storage_faults:
            peer.forgives |= STORAGE_CODES
        return SimPeerConnection(peer, self.sim.network, self.sim.loop, self.chance)

    def subscriber_peers(self) -> list[Subscriber]:
        """The subscribers, members of the group among them."""
        return [connection.peer for connection in self.subscribers]

    def _make_subscribers(self) -> list[Subscriber]:
        plans: list[tuple[str, int, list[tuple[str, int]]]] = [
            ("sub-all", 4, [("load/#", 2)]),
            ("sub-column", 5, [("load/+/a", 1)]),
            ("sub-exact", 5, [(topic, 2) for topic in TOPICS[::3]]),
            ("sub-state", 5, [("state/+", 2)]),
            ("sub-burst", 5, [("burst/+", 2)]),
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

    def connections(self) -> list[SimPeerConnection[Publisher] | SimPeerConnection[Subscriber]]:
        """Everybody."""
        return [*self.publishers, *self.subscribers]
