"""A node that nobody is connected to forwards what other nodes take."""

from __future__ import annotations

from perdure.forwarders.session import DurableSession
from tests.unit.broker.harness import Client
from tests.wire.harness import Options
from tests.wire.virtual_cluster import VirtualCluster


def test_what_other_nodes_took_may_be_forwarded() -> None:
    """Though this node writes nothing itself, and so never syncs."""
    cluster = VirtualCluster(Options(), seed=1)
    cluster.start()
    first, second, _ = cluster.nodes
    services = second.broker.services
    session = DurableSession(services, services.publish_path, "f")
    publisher = Client(first, "p")
    publisher.connect()
    for _ in range(3):
        publisher.publish("t", qos=1)
        first.run_for(1_000_000)
        assert session.safe_offset() == services.database.last_offset
        assert services.database.last_offset == first.broker.services.database.last_offset
    cluster.close()
