"""Bridges between Perdure and a real Mosquitto, and between two Perdures: both directions, loops,
outages of either side, and kill -9. Nothing is missing, QoS 2 is once, order holds."""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import NamedTuple, TypeAlias

import pytest

from perdure.bench.ports import free_port
from perdure.model import Message
from perdure.mqtt.packets import Publish
from tests.support.disk_log import logged
from tests.support.needs import missing
from tests.support.process import BrokerProcess, perdure_command
from tests.support.steady_clients import Collector, Post, publish_all
from tests.support.tape import Tape
from tests.support.tcp_proxy import TcpProxy
from tests.unit.net.helpers import issue

COUNT = 300
Stopping: TypeAlias = BrokerProcess | Collector | TcpProxy

pytestmark = [pytest.mark.slow]


def mosquitto(directory: Path, *, inflight: int = 10 * COUNT) -> BrokerProcess:
    """A Mosquitto that keeps its sessions when it is stopped.

    Args:
        directory: its own.
        inflight: unacknowledged messages to a client. If more wait, some overtake others.
    """
    program = shutil.which("mosquitto") or "/usr/sbin/mosquitto"
    if not Path(program).exists():
        missing("Mosquitto is not installed")
    directory.mkdir()
    port = free_port()
    config = directory / "mosquitto.conf"
    config.write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 0\n"
        f"max_inflight_messages {inflight}\npersistence true\npersistence_location {directory}/\n"
        "user root\n",
        encoding="utf-8",
    )
    return BrokerProcess([program, "-c", str(config)], port=port, log=directory / "log")


def perdure(directory: Path, port: int, peer_port: int, **settings: str) -> BrokerProcess:
    """A Perdure with one bridge."""
    chosen = {"type": "mqtt", "url": f"mqtt://127.0.0.1:{peer_port}", **settings}
    sets = [
        part
        for key, value in chosen.items()
        for part in ("--set", f"forwarders.peer.{key}={value}")
    ]
    return BrokerProcess(
        perdure_command(directory, port, *sets), port=port, log=directory.with_suffix(".log")
    )


def posts(topic: str) -> list[Post]:
    """Messages of QoS 1 and 2 on two topics each."""
    return [
        Post(f"{topic}/{i % 4}", b"%s-%d" % (topic.encode(), i), 1 + i % 2) for i in range(COUNT)
    ]


def check(messages: Iterable[Publish | Message], sent: list[Post], *, once: bool = True) -> None:
    """Nothing is missing or foreign, QoS 2 is once, and each topic is in order.

    Args:
        messages: what came.
        sent: what should have come.
        once: no message of QoS 2 comes twice.
    """
    wanted = {post.payload: post for post in sent}
    seen: Counter[bytes] = Counter()
    firsts: defaultdict[str, list[bytes]] = defaultdict(list)
    for message in messages:
        seen[message.payload] += 1
        if seen[message.payload] == 1:
            firsts[message.topic].append(message.payload)
    assert seen.keys() == wanted.keys()
    twice = [each for each, count in seen.items() if count > 1 and wanted[each].qos == 2]
    assert not (once and twice)
    for topic, payloads in firsts.items():
        assert payloads == [post.payload for post in sent if post.topic == topic]


class Secure(NamedTuple):
    """Where a Perdure listens beside TCP.

    Attributes:
        options: of its command.
        urls: of its TLS, WebSocket and secure WebSocket listeners.
        authority: what clients trust.
    """

    options: list[str]
    urls: list[str]
    authority: Path


def secure(directory: Path) -> Secure:
    """Listeners with a certificate of their own."""
    directory.mkdir()
    issue(directory, "server", "localhost")
    (directory / "server.key").chmod(0o600)
    files = {
        "certificate": directory / "server.pem",
        "private_key": directory / "server.key",
    }
    ports = {kind: free_port() for kind in ("tls", "ws", "wss")}
    sets = [f"listeners.{kind}.bind=127.0.0.1:{port}" for kind, port in ports.items()]
    sets += [
        f"listeners.{kind}.{name}={path}" for kind in ("tls", "wss") for name, path in files.items()
    ]
    schemes = {"tls": "mqtts", "ws": "ws", "wss": "wss"}
    urls = [f"{schemes[kind]}://localhost:{port}" for kind, port in ports.items()]
    return Secure(
        [part for each in sets for part in ("--set", each)], urls, directory / "server.pem"
    )


@pytest.fixture
async def stopping() -> AsyncIterator[list[Stopping]]:
    """What is to be stopped at the end."""
    started: list[Stopping] = []
    yield started
    for each in reversed(started):
        await each.stop()


@pytest.mark.parametrize("version", ["5", "3.1.1"])
async def test_mosquitto_both_ways_through_outages_and_kills(
    version: str, tmp_path: Path, stopping: list[Stopping]
) -> None:
    """Mosquitto publishes messages of QoS 2 again that it has released, when it was restarted: that
    we do not is seen on the wire."""
    peer = mosquitto(tmp_path / "peer")
    tape = Tape(5 if version == "5" else 4)
    way = TcpProxy(peer.port, on_data=tape.record)
    broker = perdure(
        tmp_path / "data",
        free_port(),
        way.port,
        direction="both",
        version=version,
        retry_max_s="1",
        window=str(10 * COUNT),
    )
    there, here = Collector(peer.port, "out/#"), Collector(broker.port, "in/#")
    stopping += [way, peer, broker, there, here]
    await way.start()
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

    async def disturb() -> None:
        await there.until(COUNT // 5)
        await broker.kill()
        await broker.start()
        await there.until(COUNT // 2)
        await peer.stop()
        await publish_all(broker.port, [Post("other", b"meanwhile", 1)], client_id="meanwhile")
        await peer.start()

    disturbing = asyncio.create_task(disturb())
    await asyncio.gather(
        publish_all(broker.port, outward, at_once=5), publish_all(peer.port, inward, at_once=5)
    )
    await disturbing
    await there.until(COUNT + 1)
    await here.until(COUNT + 1)
    assert tape.sent_after_release == []
    check(there.messages, ready[0] + outward, once=False)
    await broker.stop()
    log = await logged(tmp_path / "data", "in/#")
    assert tape.explains([message.payload for message in log])
    check(log, ready[1] + inward, once=False)


async def test_two_perdures_with_bridges_both_ways_have_no_loop(
    tmp_path: Path, stopping: list[Stopping]
) -> None:
    ports = free_port(), free_port()
    brokers = [
        perdure(tmp_path / f"data{i}", ports[i], ports[1 - i], direction="out", retry_max_s="1")
        for i in (0, 1)
    ]
    for broker in brokers:
        await broker.start()
    collectors = [Collector(port, "t/#") for port in ports]
    stopping += [*brokers, *collectors]
    for collector in collectors:
        await collector.start()
    first = [[Post(f"t/ready/{i}", b"ready%d" % i, 2)] for i in (0, 1)]
    for i in (0, 1):
        await publish_all(ports[i], first[i])
    for collector in collectors:
        await collector.until(2)
    sent = [
        [Post(f"t/{i}/{n % 3}", b"%d-%d" % (i, n), 1 + n % 2) for n in range(COUNT)] for i in (0, 1)
    ]

    async def disturb() -> None:
        await collectors[1].until(COUNT // 2)
        await brokers[0].kill()
        await brokers[0].start()

    disturbing = asyncio.create_task(disturb())
    await asyncio.gather(*(publish_all(ports[i], sent[i], at_once=5) for i in (0, 1)))
    await disturbing
    # What would go round comes before this, on the same bridges.
    last = [[Post(f"t/last/{i}", b"last%d" % i, 2)] for i in (0, 1)]
    for i in (0, 1):
        await publish_all(ports[i], last[i])
    everything = [*first[0], *first[1], *sent[0], *sent[1], *last[0], *last[1]]
    for collector in collectors:
        await collector.until(len(everything))
        check(collector.messages, everything)


async def test_tls_and_websockets_through_a_kill(tmp_path: Path, stopping: list[Stopping]) -> None:
    """One broker reaches the other by each transport, and trusts nobody else's authority."""
    listeners = secure(tmp_path / "tls")
    port = free_port()
    there = BrokerProcess(
        perdure_command(tmp_path / "there", port, *listeners.options),
        port=port,
        log=tmp_path / "there.log",
    )
    await there.start()
    sets = [
        f"forwarders.bridge-{number}.{name}={value}"
        for number, url in enumerate([*listeners.urls, listeners.urls[0]])
        for name, value in {
            "type": "mqtt",
            "url": url,
            "filter": f"[out/{number}]",
            "window": "7",
            "retry_max_s": "1",
            **({"ca_file": str(listeners.authority)} if number < 3 else {}),
        }.items()
    ]
    here_port = free_port()
    options = [part for each in sets for part in ("--set", each)]
    here = BrokerProcess(
        perdure_command(tmp_path / "here", here_port, *options),
        port=here_port,
        log=tmp_path / "here.log",
    )
    await here.start()
    collector = Collector(port, "out/#")
    stopping += [there, here, collector]
    await collector.start()
    sent = [Post(f"out/{i % 4}", b"%d" % i, 1 + i % 2) for i in range(COUNT)]
    wanted = [post for post in sent if post.topic != "out/3"]

    async def disturb() -> None:
        await collector.until(COUNT // 10)
        await there.kill()
        await there.start()

    disturbing = asyncio.create_task(disturb())
    await publish_all(here_port, sent)
    await disturbing
    await collector.until(len(wanted))
    check(collector.messages, wanted)
    assert "certificate verify failed" in (tmp_path / "here.log").read_text()
