"""``limits.sessions_max`` holds for the cluster: a session counts on whichever node it was made."""

from __future__ import annotations

import pytest

from perdure.mqtt.packets import Connack, Disconnect
from perdure.mqtt.reason_codes import QUOTA_EXCEEDED
from tests.unit.broker.harness import Client
from tests.wire.harness import Options
from tests.wire.virtual_cluster import NODES, VirtualCluster

MOST = 6


@pytest.fixture(params=range(5))
def cluster(request: pytest.FixtureRequest) -> VirtualCluster:
    made = VirtualCluster(Options(settings={"limits.sessions_max": f"{MOST}"}), request.param)
    made.start()
    return made


def test_there_is_room_for_as_many_as_the_limit_says_on_all_nodes(cluster: VirtualCluster) -> None:
    clients = [Client(cluster.nodes[number % NODES], f"c{number}") for number in range(MOST)]
    for client in clients:
        client.connect()
    for node in cluster.nodes:
        assert answer(Client(node, "late")) == QUOTA_EXCEEDED
    # Who has one comes back to it, anywhere.
    assert answer(Client(cluster.nodes[1], "c0")) == 0
    clients[1].connect(clean=True, expiry_s=0)
    clients[1].send(Disconnect(0))
    cluster.elapse(0.1)
    found = [answer(Client(node, f"d{number}")) for number, node in enumerate(cluster.nodes)]
    assert found == [0, QUOTA_EXCEEDED, QUOTA_EXCEEDED]
    cluster.check_health()
    cluster.close()


def test_of_many_that_come_at_once_to_a_node_as_many_are_let_in(cluster: VirtualCluster) -> None:
    clients = [Client(cluster.nodes[0], f"c{number}") for number in range(3 * MOST)]
    for client in clients:
        client.connect(wait=False)
    cluster.elapse(1.0)
    reasons = [client.take(Connack).reason for client in clients]
    assert reasons.count(0) == MOST
    assert reasons.count(QUOTA_EXCEEDED) == 2 * MOST
    cluster.check_health()
    cluster.close()


def test_who_comes_from_another_node_is_not_less_than_nobody() -> None:
    """That node has counted it; this one does with its next look at all sessions."""
    cluster = VirtualCluster(Options(), seed=1)
    cluster.start()
    clients = [Client(cluster.nodes[0], f"c{number}") for number in range(MOST)]
    for client in clients:
        client.connect(expiry_s=600)
        client.subscribe("t", qos=1)
        client.disconnect()
    counted = [node.broker.services.metrics for node in cluster.nodes if node.broker is not None]
    assert len(counted) == NODES
    for node in (cluster.nodes[1], cluster.nodes[2], cluster.nodes[1]):
        for client in clients[1:]:
            assert Client(node, client.client_id).connect(expiry_s=600).session_present
        cluster.elapse(0.5)
        for metrics in counted:
            assert metrics.sessions_offline >= 0
            assert metrics.subscriptions_offline >= 0
    cluster.elapse(120.0)
    assert [metrics.sessions_offline for metrics in counted] == [1, 1, 1]
    here = [metrics.subscriptions for metrics in counted]
    assert here == [0, MOST - 1, 0]
    offline = [metrics.subscriptions_offline for metrics in counted]
    assert offline == [MOST - count for count in here], "of sessions that are not connected here"
    cluster.check_health()
    cluster.close()


def answer(client: Client) -> int:
    """The reason code of its CONNACK."""
    client.connect(wait=False)
    return client.take(Connack).reason
