"""A node that nobody is connected to lets what others say gather; nobody ever waits for that."""

from __future__ import annotations

from tests.support.shared_log import LogEnd
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
