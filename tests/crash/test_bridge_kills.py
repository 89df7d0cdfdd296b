"""Bridges between two Perdures, and from a Mosquitto, through kills at random instants.

Nothing is missing, QoS 2 is once, each topic is in order, and nothing goes round. Mosquitto's own
order is not that of its publishers, and it publishes again what it has released
(docs/howto/forwarders.md): from there the log is what came over the wire, as it came.
"""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest

from perdure.bench.ports import free_port
from tests.interop.test_bridges import COUNT, check, mosquitto, perdure, posts
from tests.support.disk_log import logged
from tests.support.process import BrokerProcess, perdure_command
from tests.support.steady_clients import RETRY_S, Collector, Post, publish_all
from tests.support.tape import Tape
from tests.support.tcp_proxy import TcpProxy

SEED = int(os.environ.get("PERDURE_BRIDGE_SEED", "20261123"))
DISTURBANCES = 5

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


async def disturb(chance: random.Random, brokers: list[BrokerProcess]) -> None:
    """Kill brokers at random instants, and start them again after others."""
    victims = [*range(len(brokers)), *chance.choices(range(len(brokers)), k=DISTURBANCES)]
    chance.shuffle(victims)
    for number in victims[:DISTURBANCES]:
        await asyncio.sleep(chance.uniform(0.05, 0.4))  # the instant is the subject
        await brokers[number].kill()
        await asyncio.sleep(chance.uniform(0, 0.3))
        await brokers[number].start()


async def test_one_bridge_both_ways(tmp_path: Path) -> None:
    chance = random.Random(f"{SEED} one bridge")
    port = free_port()
    peer = BrokerProcess(
        perdure_command(tmp_path / "peer", port), port=port, log=tmp_path / "peer.log"
    )
    broker = perdure(
        tmp_path / "data", free_port(), peer.port, direction="both", retry_max_s="1", window="11"
    )
    there, here = Collector(peer.port, "out/#"), Collector(broker.port, "in/#")
    try:
        await peer.start()
        await broker.start()
        await there.start()
        await here.start()
        ready = [Post("out/ready", b"ready", 2)], [Post("in/ready", b"ready", 2)]
        await publish_all(broker.port, ready[0])
        await there.until(1)  # the bridge stands, so the peer has our subscription
        await publish_all(peer.port, ready[1])
        await here.until(1)
        outward, inward = posts("out"), posts("in")
        disturbing = asyncio.create_task(disturb(chance, [broker, peer]))
        await asyncio.gather(
            publish_all(broker.port, outward, at_once=3), publish_all(peer.port, inward, at_once=3)
        )
        await disturbing
        await there.until(COUNT + 1)
        await here.until(COUNT + 1)
        # What would come twice, or go round, comes before this.
        last = [Post("out/last", b"last", 2)], [Post("in/last", b"last", 2)]
        await publish_all(broker.port, last[0])
        await publish_all(peer.port, last[1])
        await there.until(COUNT + 2)
        await here.until(COUNT + 2)
        check(there.messages, ready[0] + outward + last[0])
        check(here.messages, ready[1] + inward + last[1])
    finally:
        await there.stop()
        await here.stop()
        await broker.stop()
        await peer.stop()


async def test_bridges_of_two_to_each_other(tmp_path: Path) -> None:
    """The same topics both ways: what one has from the other never comes back to it."""
    chance = random.Random(f"{SEED} each other")
    ports = free_port(), free_port()
    brokers = [
        perdure(tmp_path / f"data{i}", ports[i], ports[1 - i], direction="out", retry_max_s="1")
        for i in (0, 1)
    ]
    collectors = [Collector(port, "t/#") for port in ports]
    try:
        for broker in brokers:
            await broker.start()
        for collector in collectors:
            await collector.start()
        sent = [
            [Post(f"t/{i}/{n % 3}", b"%d-%d" % (i, n), 1 + n % 2) for n in range(COUNT)]
            for i in (0, 1)
        ]
        disturbing = asyncio.create_task(disturb(chance, brokers))
        await asyncio.gather(*(publish_all(ports[i], sent[i], at_once=3) for i in (0, 1)))
        await disturbing
        last = [[Post(f"t/last/{i}", b"last%d" % i, 2)] for i in (0, 1)]
        for i in (0, 1):
            await publish_all(ports[i], last[i])
        everything = [*sent[0], *sent[1], *last[0], *last[1]]
        for collector in collectors:
            await collector.until(len(everything))
            check(collector.messages, everything)
    finally:
        for each in collectors:
            await each.stop()
        for broker in brokers:
            await broker.stop()


@pytest.mark.parametrize(("version", "protocol"), [("5", 5), ("3.1.1", 4)])
async def test_from_mosquitto_as_it_came_over_the_wire(
    version: str, protocol: int, tmp_path: Path
) -> None:
    """Mosquitto is restarted, we are killed; it has more for us than it may send at once."""
    chance = random.Random(f"{SEED} mosquitto {version}")
    peer = mosquitto(tmp_path / "peer", inflight=11)
    tape = Tape(protocol)
    way = TcpProxy(peer.port, on_data=tape.record)
    settings = {"direction": "in", "version": version, "window": "11", "retry_max_s": "1"}
    broker = perdure(tmp_path / "data", free_port(), way.port, **settings)
    here = Collector(broker.port, "in/#")

    async def restart_both() -> None:
        for number in chance.sample([0, 1] * 2, k=4):
            await asyncio.sleep(chance.uniform(0.05, 0.4))  # the instant is the subject
            await (broker.kill() if number else peer.stop())
            await asyncio.sleep(chance.uniform(0, 0.3))
            await (broker if number else peer).start()

    try:
        await way.start()
        await peer.start()
        await broker.start()
        await here.start()
        while not tape.is_subscribed:
            await asyncio.sleep(RETRY_S)
        sent = posts("in")
        restarting = asyncio.create_task(restart_both())
        await publish_all(peer.port, sent)
        await restarting
        await here.until(COUNT)
    finally:
        await here.stop()
        await broker.stop()
        await peer.stop()
        await way.stop()
    log = [message.payload for message in await logged(tmp_path / "data", "in/#")]
    assert tape.explains(log)
    assert set(log) == {post.payload for post in sent}
