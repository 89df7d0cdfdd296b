"""A forwarder in a cluster: kill -9 of the node that runs it, and it goes on at another one; what
the targets have in the end is the log, once and in order."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from perdure.bench.ports import free_port
from perdure.cli.exit_codes import ExitCode
from perdure.cli.main import run
from tests.contract.targets import read_topic
from tests.support.bounds import HANG_S
from tests.support.cluster_processes import ClusterNodeProcess, ClusterProcesses
from tests.support.disk_log import logged
from tests.support.process import BrokerProcess, perdure_command
from tests.support.seeds import chosen_seed
from tests.support.steady_clients import Post, publish_all

COUNT = 1500
KILLS = 2
CUTS = 4
TYPES = ("kafka", "mqtt")

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


async def command(*words: str) -> None:
    """Run ``perdure forwarders``, again while the node's log takes nothing: it has just started."""
    async with asyncio.timeout(HANG_S):
        # In a thread: ways of nodes to Kafka are served by this loop.
        while (code := await asyncio.to_thread(run, ["forwarders", *words])) == ExitCode.TEMPORARY:
            await asyncio.sleep(0.1)
    assert code == 0


@pytest.fixture
async def target(tmp_path: Path) -> AsyncIterator[BrokerProcess]:
    """An MQTT broker that messages are forwarded to; its directory is ``target``."""
    port = free_port()
    process = BrokerProcess(
        perdure_command(tmp_path / "target", port), port=port, log=tmp_path / "target.log"
    )
    await process.start()
    yield process
    await process.stop()


async def add_forwarders(cluster: ClusterProcesses, target: BrokerProcess) -> None:
    """One to Kafka and one to MQTT; neither goes there by a way that is cut."""
    own = {
        "kafka": {"bootstrap": cluster.kafka.servers, "topic": "readings"},
        "mqtt": {"url": f"mqtt://127.0.0.1:{target.port}"},
    }
    for kind in TYPES:
        given = {"type": kind, "filter": "t/#", "timeout_s": 5, "retry_max_s": 1, **own[kind]}
        pairs = [f"{name}={value}" for name, value in given.items()]
        await command("add", kind, *pairs, "--data", str(cluster.nodes[0].data))


async def check_targets(
    cluster: ClusterProcesses,
    target: BrokerProcess,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What the targets have is the log, once and in order, and all nodes hold the same."""
    async with asyncio.timeout(HANG_S):
        while len(set(await kafka_values(cluster))) < COUNT:
            await asyncio.sleep(0.2)
        while await lag(cluster.nodes[0], "mqtt", capsys):
            await asyncio.sleep(0.2)
    found = {"kafka": await kafka_values(cluster)}
    await cluster.stop()
    logged = await logged_in(cluster.nodes[0].data)
    digests = await cluster.verify()
    await target.stop()
    found["mqtt"] = await logged_in(tmp_path / "target")
    assert len(set(logged)) == COUNT
    assert {kind: rows == logged for kind, rows in found.items()} == dict.fromkeys(TYPES, True)
    assert len(set(digests)) == 1


async def test_a_forwarder_outlives_its_node(
    tmp_path: Path, target: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = ClusterProcesses(tmp_path, random.Random(1), [], is_direct=True)
    await cluster.open()
    await cluster.start()
    try:
        first, second, third = cluster.nodes
        await add_forwarders(cluster, target)
        # Through any node, also one that does not run it.
        for node, verb in ((second, "pause"), (third, "resume")):
            await command(verb, "mqtt", "--data", str(node.data))
        posts = [Post(f"t/{i % 7}", b"%d" % i, 2) for i in range(COUNT)]
        publishing = asyncio.create_task(publish_all(first.process.port, posts))
        for kind in TYPES[:KILLS]:
            await asyncio.sleep(1.0)  # under load: the instant is the subject
            victim = await runner(cluster, kind, capsys)
            await cluster.kill_node(victim)
            other = await runner(cluster, kind, capsys, but=victim)
            assert other is not victim
            await cluster.spawn()
            await cluster.until_listening(victim)
        await publishing
        await check_targets(cluster, target, tmp_path, capsys)
    finally:
        await cluster.close()


async def test_a_forwarder_whose_node_is_cut_off_writes_nothing_twice(
    tmp_path: Path, target: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its node has lost the log, and not the target: it still has what the next one repeats."""
    seed = chosen_seed()
    print(f"\nrepeat with: PERDURE_SEED={seed}")
    chance = random.Random(seed)
    cluster = ClusterProcesses(tmp_path, chance, [])
    await cluster.open()
    await cluster.start()
    try:
        await add_forwarders(cluster, target)
        posts = [Post(f"t/{i % 7}", b"%d" % i, 2) for i in range(COUNT)]
        rest = iter(range(0, COUNT, COUNT // (CUTS + 1)))
        for kind in chance.sample(TYPES * (CUTS // len(TYPES)), CUTS):
            at = next(rest)
            victim = await runner(cluster, kind, capsys)
            others = [node for node in cluster.nodes if node is not victim]
            publishing = asyncio.create_task(
                publish_all(
                    chance.choice(others).process.port, posts[at : at + COUNT // (CUTS + 1)]
                )
            )
            await asyncio.sleep(chance.uniform(0.0, 0.3))  # under load: the instant is the subject
            for way in victim.ways:
                way.cut()
            await publishing
            other = await runner(cluster, kind, capsys, but=victim)
            assert other is not victim
            for way in victim.ways:
                way.mend(reset=chance.random() < 0.5)
            await joined_again(victim, capsys)
        await publish_all(victim.process.port, posts[next(rest) :])
        await check_targets(cluster, target, tmp_path, capsys)
    finally:
        await cluster.close()


async def joined_again(node: ClusterNodeProcess, capsys: pytest.CaptureFixture[str]) -> None:
    """Wait until a node that was expelled is a member."""
    async with asyncio.timeout(HANG_S):
        while await asyncio.to_thread(run, ["status", "--data", str(node.data), "--json"]):
            await asyncio.sleep(0.1)
    capsys.readouterr()


async def shown(node: ClusterNodeProcess, kind: str, capsys: pytest.CaptureFixture[str]) -> dict:  # type: ignore[type-arg]
    capsys.readouterr()
    code = await asyncio.to_thread(
        run, ["forwarders", "show", kind, "--data", str(node.data), "--json"]
    )
    return json.loads(capsys.readouterr().out) if code == 0 else {}  # type: ignore[no-any-return]


async def lag(node: ClusterNodeProcess, kind: str, capsys: pytest.CaptureFixture[str]) -> int:
    found = await shown(node, kind, capsys)
    return int(found.get("lag_messages", 1))


async def runner(
    cluster: ClusterProcesses,
    kind: str,
    capsys: pytest.CaptureFixture[str],
    but: ClusterNodeProcess | None = None,
) -> ClusterNodeProcess:
    """The node that runs a forwarder, as the others say too."""
    async with asyncio.timeout(HANG_S):
        while True:
            for node in cluster.nodes:
                if not node.is_wanted or node is but:
                    continue
                found = await shown(node, kind, capsys)
                if found.get("state") == "running":
                    assert found["node"] == node.name
                    return node
            await asyncio.sleep(0.1)


async def kafka_values(cluster: ClusterProcesses) -> list[bytes]:
    rows = await asyncio.to_thread(read_topic, cluster.kafka.servers, "readings")
    return [value for _, value in rows]


async def logged_in(data: Path) -> list[bytes]:
    return [message.payload for message in await logged(data, "t/#")]
