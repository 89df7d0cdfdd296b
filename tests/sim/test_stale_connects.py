"""A client that has given up on a node and gone to another one keeps its session there."""

from __future__ import annotations

import pytest

from perdure.mqtt.packets import Disconnect, Publish
from tests.unit.broker.harness import Client
from tests.wire.harness import Options
from tests.wire.virtual_cluster import VirtualCluster


@pytest.mark.parametrize("tries", [1, 2, 3])
def test_who_has_hung_up_takes_nobody_s_session(tries: int) -> None:
    """Its CONNECTs wait at a node that the log does not come to; nothing is read from them
    meanwhile, also not that the client is gone."""
    cluster = VirtualCluster(Options(), seed=1)
    cluster.start()
    first, second, _ = cluster.nodes
    Client(first, "c").connect(expiry_s=600)
    first.run_for(100_000)
    end = first.store.replica.end  # type: ignore[attr-defined]
    end.is_cut = True
    for _ in range(tries):
        given_up = Client(first, "c")
        given_up.connect(wait=False, expiry_s=600)
        first.run_for(10_000)
        assert given_up.wire is not None
        given_up.wire.hang_up()
        first.run_for(10_000)
    last = Client(second, "c")
    assert last.connect(expiry_s=600).session_present
    end.is_cut = False
    first.store.log.sequence_all()  # type: ignore[attr-defined]
    first.run_for(2_000_000)
    assert not last.is_lost
    assert last.publish("t")
    cluster.check_health()
    cluster.close()


def test_who_has_said_all_and_hung_up_is_heard() -> None:
    """Nobody has to wait for CONNACK."""
    cluster = VirtualCluster(Options(), seed=1)
    cluster.start()
    first, second, _ = cluster.nodes
    watcher = Client(second, "watcher")
    watcher.connect()
    watcher.subscribe("t", qos=1)
    brief = Client(first, "c")
    brief.connect(wait=False, expiry_s=600)
    brief.send(Publish("t", b"said", qos=1, packet_id=1), Disconnect(0))
    assert brief.wire is not None
    brief.wire.hang_up()
    first.run_for(2_000_000)
    assert [each.payload for each in watcher.messages] == [b"said"]
    cluster.check_health()
    cluster.close()
