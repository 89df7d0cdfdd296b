"""Three nodes of a cluster in this process on virtual time: each connection goes to one of them by
chance, and each node reads the log when chance has it.

The log is the toy of ``tests.support.shared_log``, the nodes are the product's from ``Replica`` up.
What is left out is Kafka, processes, and heartbeats: who dies is missed when it joins again.
"""

from __future__ import annotations

import random
from typing import Final, final

from perdure.broker.auth.authenticate import AnonymousPolicy
from perdure.config.load import load
from tests.support.clock import VirtualClock
from tests.support.network import NetworkProfile
from tests.support.ordered_log import LateDatabase, OrderedLog
from tests.support.scheduler import VirtualLoop
from tests.support.sim_broker import SimBroker
from tests.wire.harness import Broker, Options
from tests.wire.transport import Transport
from tests.wire.virtual_broker import BUFFER_BYTES, SECOND_US, SETTLE_US, VirtualTransport

NODES: Final = 3

READ_DELAYS_US: Final = (0, 0, 200, 1_000, 4_000)
"""How long a node takes to read a record that the log has."""


@final
class VirtualCluster(Broker):
    """Some nodes.

    Args:
        options: how each is configured; ``virtual_broker.is_possible`` must hold.
        seed: of everything that is chance.

    Attributes:
        nodes: the nodes.
    """

    def __init__(self, options: Options, seed: int) -> None:
        super().__init__()
        self._chance = random.Random(seed)
        sets = [f"{name}={value}" for name, value in options.settings.items()]
        config = load(environ={}, sets=sets).config
        loop = VirtualLoop(VirtualClock())
        log = OrderedLog(random.Random(seed + 1))
        self.nodes = [
            SimBroker(
                seed + number,
                config=config,
                store=LateDatabase(log=log, name=f"n{number}", has_peers=True, is_only=False),
                network_profile=NetworkProfile(buffer_bytes=BUFFER_BYTES),
                authenticator=AnonymousPolicy(config.auth.allow_anonymous),
                loop=loop,
            )
            for number in range(1, NODES + 1)
        ]
        log.read_later = lambda read: loop.call_later(self._chance.choice(READ_DELAYS_US), read)
        self._events_checked = [0] * NODES

    def start(self) -> None:
        """Starts all nodes."""
        for node in self.nodes:
            node.start()

    def stop(self) -> int:
        """Ends all nodes in order."""
        for node in self.nodes:
            node.stop()
        for peer in self._peers:
            peer.wait_end()
        return 0

    def kill9(self, *, start: bool = True) -> None:
        """All nodes die at once, as the one broker does; what they had written stays."""
        for node in self.nodes:
            node.kill()
        if start:
            self.start()

    def close(self) -> None:
        """Ends all nodes for good."""
        for node in self.nodes:
            if node.broker is not None:
                node.kill()

    def check_health(self) -> None:
        """Lets the nodes finish what they do, and fails if one logged an exception, or holds
        something else than the others."""
        self.nodes[0].run_for(SETTLE_US)
        for index, node in enumerate(self.nodes):
            events = node.events[self._events_checked[index] :]
            self._events_checked[index] = len(node.events)
            failures = [(event, values) for event, values in events if values.get("exc_info")]
            assert not failures, f"unhandled by n{index + 1}: {failures}"
        end_s = self.now_s() + SETTLE_US / SECOND_US
        while not self._have_all_read() and self.now_s() < end_s:
            self.nodes[0].run_for(max(READ_DELAYS_US))
        found = {node.store.replica.digest() for node in self.nodes}  # type: ignore[attr-defined]
        assert len(found) == 1, "the nodes do not hold the same"

    def _have_all_read(self) -> bool:
        """Whether each node has applied all that any has submitted."""
        shared = self.nodes[0].store.log.shared  # type: ignore[attr-defined]
        return not any(end.waiting or end.lag for end in shared.ends if not end.is_closed)

    def elapse(self, seconds: float) -> None:
        """Lets virtual time pass."""
        self.nodes[0].run_for(round(seconds * SECOND_US))

    def now_s(self) -> float:
        """Virtual time."""
        return self.nodes[0].clock.monotonic_us() / SECOND_US

    def now_us(self) -> int:
        """Virtual wall time."""
        return self.nodes[0].clock.now_us()

    def _transport(self) -> Transport:
        return VirtualTransport(self._chance.choice(self.nodes))
