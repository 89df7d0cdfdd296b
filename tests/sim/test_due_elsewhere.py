"""What is due of a session is done by the node that owns it, also if another one comes between a
node's claim and what it reads behind that."""

from __future__ import annotations

from typing import Any, Final

import pytest

from perdure.broker.runtime.scheduler import Gate
from perdure.broker.sessions.reaper import DUTY
from perdure.model import StoredSession, Will
from perdure.mqtt.packets import Connack, Publish
from tests.support.sim_broker import SimBroker
from tests.unit.broker.harness import Client
from tests.wire.harness import Options
from tests.wire.virtual_broker import SETTLE_US
from tests.wire.virtual_cluster import VirtualCluster

DUE_US: Final = 10_000_000


class HeldReads:
    """Reads of a client's session by a node: those behind its claim wait for ``go_on``."""

    def __init__(self, node: SimBroker, client_id: str) -> None:
        services = node.live.services
        self._gate: Gate = services.scheduler.gate()
        self._read = node.store.open_session
        self._client_id = client_id
        self._claims: Any = services.claims
        self.held = 0
        node.store.open_session = self._open  # type: ignore[method-assign]

    async def _open(self, client_id: str) -> StoredSession | None:
        if client_id == self._client_id and client_id in self._claims._opening:
            self.held += 1
            await self._gate
        return await self._read(client_id)

    def go_on(self) -> None:
        self._gate.open()


def duty_holder(cluster: VirtualCluster) -> tuple[SimBroker, SimBroker, SimBroker]:
    """The node that looks after deadlines, and the others."""
    nodes = sorted(cluster.nodes, key=lambda node: not node.live.services.peers.owns(DUTY))  # type: ignore[union-attr]
    return nodes[0], nodes[1], nodes[2]


def end(cluster: VirtualCluster) -> None:
    cluster.check_health()
    cluster.close()


def wills(watcher: Client) -> list[bytes]:
    return [each.payload for each in watcher.received if isinstance(each, Publish)]


def watch(node: SimBroker) -> Client:
    watcher = Client(node, "watcher")
    watcher.connect()
    watcher.subscribe("will", qos=2)
    return watcher


@pytest.mark.parametrize("delay_s", [0, 5])
def test_what_is_due_of_a_client_that_is_back_elsewhere_is_not_done(delay_s: int) -> None:
    """Its session neither ends nor says its will, whichever of both was due."""
    cluster = VirtualCluster(Options(), seed=1)
    cluster.start()
    holder, other, third = duty_holder(cluster)
    watcher = watch(third)
    will = Will("will", b"gone", qos=1, delay_s=delay_s) if delay_s else None
    client = Client(other, "c")
    client.connect(expiry_s=3600 if delay_s else 10, will=will)
    client.subscribe("t", qos=1)
    reads = HeldReads(holder, "c")
    client.cut()
    assert holder.run_until(lambda: reads.held > 0)
    back = Client(other, "c")
    back.connect(expiry_s=3600)
    reads.go_on()
    holder.run_for(DUE_US)
    assert not back.is_lost
    assert wills(watcher) == []
    assert Client(third, "c").connect(expiry_s=3600).session_present
    end(cluster)


def test_of_two_nodes_that_both_believe_a_will_theirs_one_says_it() -> None:
    """The second owner is read by both; only under its own name one may act."""
    cluster = VirtualCluster(Options(), seed=1)
    cluster.start()
    holder, other, third = duty_holder(cluster)
    watcher = watch(third)
    client = Client(third, "c")
    client.connect(expiry_s=3600, will=Will("will", b"gone", qos=1, delay_s=5))
    first, second = HeldReads(holder, "c"), HeldReads(other, "c")
    client.cut()
    assert holder.run_until(lambda: first.held > 0)
    peers: Any = other.live.services.peers
    peers.owns = lambda _duty: True
    reaper = other.live.services.reaper
    reaper.note(other.clock.now_us())
    assert other.run_until(lambda: second.held > 0)
    other.run_for(SETTLE_US)
    first.go_on()
    second.go_on()
    holder.run_for(DUE_US)
    assert wills(watcher) == [b"gone"]
    end(cluster)


def test_a_clean_start_that_another_connection_follows_elsewhere_does_not_end_its_session() -> None:
    """The later client keeps what it was given; the earlier one is told that it was taken over."""
    cluster = VirtualCluster(Options(), seed=1)
    cluster.start()
    first, second, third = cluster.nodes
    client = Client(third, "c")
    client.connect(expiry_s=3600)
    client.cut()
    reads = HeldReads(first, "c")
    early, late = Client(first, "c"), Client(second, "c")
    early.connect(clean=True, expiry_s=3600, wait=False)
    assert first.run_until(lambda: reads.held > 0)
    assert late.connect(expiry_s=3600).session_present
    reads.go_on()
    first.run_for(DUE_US)
    assert early.is_lost
    early.none_comes(Connack)
    assert not late.is_lost
    end(cluster)
