"""Connections of one client that nodes take late and in any order, as after an outage of the log.

The client has given up on each and come elsewhere. A will comes once if its connection was opened,
and never twice.
"""

from __future__ import annotations

import random

import pytest

from perdure.model import Will
from perdure.mqtt.packets import Connack, Publish
from tests.support.ordered_log import OrderedLog
from tests.unit.broker.harness import Client
from tests.wire.harness import Options
from tests.wire.virtual_cluster import VirtualCluster

CONNECTIONS = 25
PAUSES_US = (0, 100, 300, 1_000, 3_000, 10_000, 100_000, 600_000)
READS_US = (0, 200, 1_000, 4_000)
SLOW_READS_US = (0, 10_000, 60_000, 250_000)


# Those of the second half are seeds with which a node that was behind took an identifier again.
@pytest.mark.parametrize("seed", [*range(20), 139, 179, 566, 700, 757])
def test_wills_of_connections_that_cross_come_once(seed: int) -> None:
    chance = random.Random(seed)
    cluster = VirtualCluster(Options(), seed=seed)
    cluster.start()
    nodes = cluster.nodes
    log: OrderedLog = nodes[0].store.log  # type: ignore[attr-defined]
    loop = nodes[0].loop
    slow_us = 0
    log.read_later = lambda read: loop.call_later(chance.choice((*READS_US, slow_us)), read)
    watcher = Client(nodes[2], "watcher")
    watcher.connect()
    watcher.subscribe("will", qos=2)
    clients: list[Client] = []
    for number in range(CONNECTIONS):
        node = chance.choice(nodes)
        if clients and chance.random() < 0.6:
            for client in clients[-chance.randint(1, 3) :]:
                if not client.is_lost:
                    client.cut()
        if chance.random() < 0.15:
            end = chance.choice(nodes).store.replica.end  # type: ignore[attr-defined]
            end.is_cut = not end.is_cut
            log.sequence_all()
        if chance.random() < 0.2:
            slow_us = chance.choice(SLOW_READS_US)
        client = Client(node, "c")
        will = Will("will", b"%d" % number, 1, False)
        client.connect(clean=True, expiry_s=0, will=will, wait=False)
        clients.append(client)
        node.run_for(chance.choice(PAUSES_US))
    for node in nodes:
        node.store.replica.end.is_cut = False  # type: ignore[attr-defined]
    log.sequence_all()
    nodes[0].run_for(3_000_000)
    for client in clients:
        if not client.is_lost:
            client.cut()
    nodes[0].run_for(5_000_000)
    came = [int(each.payload) for each in watcher.received if isinstance(each, Publish)]
    opened = {
        number
        for number, client in enumerate(clients)
        if any(isinstance(each, Connack) and not each.reason for each in client.received)
    }
    assert len(came) == len(set(came)), "a will came twice"
    assert opened <= set(came)
    cluster.check_health()
    cluster.close()
