"""A node that nobody is connected to lets what others say gather; nobody ever waits for that."""

from __future__ import annotations

from perdure.model.reserved import NODES_PREFIX
from tests.support.shared_log import LogEnd
from tests.support.sim_broker import SimBroker
from tests.unit.broker.harness import Client
from tests.wire.harness import Options
from tests.wire.virtual_cluster import VirtualCluster


def test_a_node_rests_while_nobody_is_there() -> None:
    cluster = VirtualCluster(Options(), seed=1)
    cluster.start()
    first, second, _ = cluster.nodes
    end: LogEnd = second.store.replica.end  # type: ignore[attr-defined]
    publisher = Client(first, "p")
    publisher.connect()

    def write() -> None:
        publisher.publish("t")
        first.run_for(100_000)

    write()
    assert end.rests
    guest = Client(second, "c")
    guest.connect(expiry_s=600)
    write()
    assert not end.rests, "it may be asked for its session"
    assert guest.wire is not None
    guest.wire.hang_up()
    second.run_for(1_000_000)
    write()
    assert end.rests
    Client(second, "d").connect()
    assert not end.rests, "its own batch is waited for"
    cluster.close()


def at_rest(cluster: VirtualCluster) -> tuple[SimBroker, LogEnd]:
    """A node at rest."""
    cluster.start()
    first, second, _ = cluster.nodes
    publisher = Client(first, "p")
    publisher.connect()
    publisher.publish("t")
    first.run_for(100_000)
    end: LogEnd = second.store.replica.end  # type: ignore[attr-defined]
    assert end.rests
    return second, end


def test_what_nobody_waits_for_does_not_wake_a_node() -> None:
    """As its figures for the other nodes, each ten seconds."""
    cluster = VirtualCluster(Options(), seed=1)
    node, end = at_rest(cluster)
    taken = len(end.log.entries)
    node.live.services.notices.tell(NODES_PREFIX, "n2", b"{}")
    node.run_for(100_000)
    assert len(end.log.entries) == taken + 1
    assert end.rests
    cluster.close()


def test_who_waits_behind_what_nobody_waits_for_wakes_the_node() -> None:
    cluster = VirtualCluster(Options(), seed=1)
    node, end = at_rest(cluster)
    services = node.live.services
    end.is_closed = True  # it lies in the log for a while
    services.notices.tell(NODES_PREFIX, "n2", b"{}")
    node.run_for(100_000)
    assert services.committer.has_submitted
    assert end.rests
    Client(node, "c").connect(wait=False)
    node.run_for(100_000)
    assert not end.rests
    cluster.close()
