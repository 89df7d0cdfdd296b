"""The time of the log is that of machines whose clocks may be set: what is due of a node that is
gone is due then."""

from __future__ import annotations

from typing import Any, Final

from perdure.model import Will
from perdure.mqtt.packets import Publish
from perdure.storage.ordered.record import ANYHOW, Expel
from tests.support.sim_broker import SimBroker
from tests.unit.broker.harness import Client
from tests.wire.harness import Options
from tests.wire.virtual_broker import SETTLE_US
from tests.wire.virtual_cluster import VirtualCluster

AHEAD_US: Final = 3_600_000_000
DELAY_S: Final = 5


def replica(node: SimBroker) -> Any:
    return node.store.replica  # type: ignore[attr-defined]


def test_wills_of_a_node_that_is_gone_do_not_wait_for_a_clock_that_was_ahead() -> None:
    cluster = VirtualCluster(Options(), seed=1)
    cluster.start()
    first, second, third = cluster.nodes
    watcher = Client(first, "watcher")
    watcher.connect()
    watcher.subscribe("will/#", qos=1)
    for client_id, delay_s in (("now", 0), ("later", DELAY_S)):
        client = Client(third, client_id)
        will = Will(f"will/{client_id}", b"gone", qos=1, delay_s=delay_s)
        client.connect(expiry_s=3600, will=will)
    # One record of a machine that leads for a moment, and whose clock is an hour ahead.
    replica(first).members.advance(first.clock.now_us() + AHEAD_US)
    replica(second).members.advance(first.clock.now_us() + AHEAD_US)
    replica(third).end.is_cut = replica(third).end.is_closed = True
    replica(first).submit_acts(Expel("n3", replica(third).peers.incarnation, ANYHOW))
    replica(first).sequence_all()
    first.run_for(SETTLE_US)

    def wills() -> list[str]:
        return [each.topic for each in watcher.messages if isinstance(each, Publish)]

    assert wills() == ["will/now"]
    first.run_for(DELAY_S * 1_000_000 + SETTLE_US)
    assert wills() == ["will/now", "will/later"]
    cluster.close()


def test_a_message_has_the_rest_of_its_time_where_nothing_has_come_for_long() -> None:
    """A node whose clients only listen: the time of its last turn is no time to count from."""
    cluster = VirtualCluster(Options(), seed=1)
    cluster.start()
    first, second, _ = cluster.nodes
    reader = Client(second, "r")
    reader.connect()
    reader.subscribe("t", qos=1)
    first.run_for(30_000_000)
    publisher = Client(first, "p")
    publisher.connect()
    for qos in (0, 1, 2):
        publisher.deliver("t", b"%d" % qos, qos=qos, expiry_s=20)
        first.run_for(10_000_000)
    assert [message.expiry_s for message in reader.messages] == [20, 20, 20]
    cluster.close()
