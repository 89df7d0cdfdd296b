"""A replay goes on at another node, which may have no archive."""

from __future__ import annotations

from typing import Final

import pytest

from perdure.broker.retention.session_carry import DUTY
from perdure.mqtt.packets import Properties
from tests.sim.test_cluster_retention import drop_all, payloads
from tests.support.past import FakePast
from tests.unit.broker.harness import Client
from tests.wire.harness import Options
from tests.wire.virtual_broker import SETTLE_US
from tests.wire.virtual_cluster import VirtualCluster

ARCHIVED: Final = [b"old %d" % number for number in range(6)]
RECORDED: Final = [b"new %d" % number for number in range(6)]
ALL: Final = Properties(user_properties=(("replay-from", "0"),))


def filled() -> VirtualCluster:
    """A cluster whose nodes have dropped some messages, which the archive of the first has."""
    settings = {"session.feed_chunk": "3", "session.memory_pending_max": "2"}
    cluster = VirtualCluster(Options(settings=settings), seed=1)
    cluster.start()
    first = cluster.nodes[0]
    publisher = Client(first, "p")
    publisher.connect()
    for payload in ARCHIVED:
        publisher.deliver("t", payload)
    first.run_for(SETTLE_US)
    assert first.scheduler is not None
    past = FakePast(first.scheduler)
    past.messages = list(first.store.inner._live.log)
    past.page = 2
    for node in cluster.nodes:
        assert drop_all(node)
    first.live.services.past = past
    for payload in RECORDED:
        publisher.deliver("t", payload)
    first.run_for(SETTLE_US)
    return cluster


@pytest.mark.parametrize("given", [0, 2])
def test_what_only_another_node_s_archive_has_is_said_to_be_missing(given: int) -> None:
    cluster = filled()
    first, second, _ = cluster.nodes
    past = first.live.services.past
    assert isinstance(past, FakePast)
    past.is_away = not given
    reader = Client(first, "r", acks=False)
    reader.connect(expiry_s=3600, receive_maximum=1)
    reader.subscribe("t", qos=1, properties=ALL)
    first.run_for(SETTLE_US)
    assert payloads(reader) == ARCHIVED[: given and 1]
    back = Client(second, "r")
    back.connect(expiry_s=3600)
    first.run_for(SETTLE_US)
    assert payloads(back)[-len(RECORDED) :] == RECORDED
    (said,) = second.logged("replay.cut_short")
    assert said["client_id"] == "r"
    assert second.live.services.metrics.replays_cut_short == 1
    # It is said once, wherever it goes on.
    again = Client(cluster.nodes[2], "r")
    again.connect(expiry_s=3600)
    first.run_for(SETTLE_US)
    assert not cluster.nodes[2].logged("replay.cut_short")
    cluster.check_health()
    cluster.close()


def test_a_node_without_archive_that_carries_over_says_what_is_missing() -> None:
    """The client is away: one node gives its replay what the log has before that goes."""
    cluster = filled()
    first = cluster.nodes[0]
    past = first.live.services.past
    assert isinstance(past, FakePast)
    past.is_away = True
    reader = Client(first, "r")
    reader.connect(expiry_s=3600)
    reader.subscribe("t", qos=1, properties=ALL)
    reader.cut()
    first.run_for(SETTLE_US)
    one_of_all = next(node for node in cluster.nodes if node.live.services.peers.owns(DUTY))  # type: ignore[union-attr]
    one_of_all.live.services.past = None
    assert drop_all(one_of_all)
    assert len(one_of_all.logged("replay.cut_short")) == 1
    back = Client(cluster.nodes[2], "r")
    back.connect(expiry_s=3600)
    first.run_for(SETTLE_US)
    assert payloads(back) == RECORDED
    cluster.check_health()
    cluster.close()


def test_who_asks_where_there_is_no_archive_gets_what_the_log_has() -> None:
    """Nothing is missing of that."""
    cluster = filled()
    _, second, third = cluster.nodes
    reader = Client(second, "r", acks=False)
    reader.connect(expiry_s=3600, receive_maximum=1)
    reader.subscribe("t", qos=1, properties=ALL)
    second.run_for(SETTLE_US)
    back = Client(third, "r")
    back.connect(expiry_s=3600)
    second.run_for(SETTLE_US)
    assert payloads(back) == RECORDED
    assert not any(node.logged("replay.cut_short") for node in cluster.nodes)
    cluster.check_health()
    cluster.close()
