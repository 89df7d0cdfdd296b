"""A forwarder in a cluster: kill -9 of the node that runs it, and it goes on at another one; what
the targets have in the end is the log, once and in order."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path

import pytest

from perdure.cli.exit_codes import ExitCode
from perdure.cli.main import run
from tests.contract.targets import read_topic
from tests.support.bounds import HANG_S
from tests.support.cluster_processes import ClusterNodeProcess, ClusterProcesses
from tests.support.disk_log import logged
from tests.support.process import BrokerProcess, free_port, perdure_command
from tests.support.steady_clients import Post, publish_all

COUNT = 1500
KILLS = 2
TYPES = ("kafka", "mqtt")

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


async def command(*words: str) -> None:
    """Run ``perdure forwarders``, again while the node's log takes nothing: it has just started."""
    async with asyncio.timeout(HANG_S):
        while (code := run(["forwarders", *words])) == ExitCode.TEMPORARY:
            await asyncio.sleep(0.1)
    assert code == 0


async def test_a_forwarder_outlives_its_node(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    port = free_port()
    target = BrokerProcess(
        perdure_command(tmp_path / "target", port), port=port, log=tmp_path / "target.log"
    )
    await target.start()
    cluster = ClusterProcesses(tmp_path, random.Random(1), [], is_direct=True)
    own = {
        "kafka": {"bootstrap": cluster.kafka.servers, "topic": "readings"},
        "mqtt": {"url": f"mqtt://127.0.0.1:{port}"},
    }
    await cluster.open()
    await cluster.start()
    try:
        first, second, third = cluster.nodes
        for kind in TYPES:
            given = {"type": kind, "filter": "t/#", "timeout_s": 5, "retry_max_s": 1, **own[kind]}
            pairs = [f"{name}={value}" for name, value in given.items()]
            await command("add", kind, *pairs, "--data", str(first.data))
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
        async with asyncio.timeout(HANG_S):
            while len(set(await kafka_values(cluster))) < COUNT:
                await asyncio.sleep(0.2)
            while await lag(first, "mqtt", capsys):
                await asyncio.sleep(0.2)
        found = {"kafka": await kafka_values(cluster)}
        await cluster.stop()
        logged = await logged_in(first.data)
        digests = await cluster.verify()
    finally:
        await cluster.close()
        await target.stop()
    found["mqtt"] = await logged_in(tmp_path / "target")
    assert len(set(logged)) == COUNT
    assert {kind: rows == logged for kind, rows in found.items()} == dict.fromkeys(TYPES, True)
    assert len(set(digests)) == 1


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
