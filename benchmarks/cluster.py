"""``python -m benchmarks.cluster [--nodes 0,1,2,3] [--rate 5000]``: what a cluster costs, here.

Starts three Kafka brokers and the nodes one after the other, and points ``perdure bench cluster``
at them; 0 nodes is the embedded broker. All of it runs on this machine, so latencies are those of a
machine that does everything; what carries over to others is CPU per message. Nodes are killed in
the end. Prints one JSON object; ``python -m benchmarks cluster`` writes a record.

Kafka runs with the options of Java that it is shipped with, and works for ``WARM_S`` before it is
measured: until Java has compiled what it runs, a record takes it three times as much CPU. Messages
at a rate come first, with one node, two and three; what goes as fast as it can comes last, with
three, two and one, for Java compiles anew for it, and the kernel writes back what it has left.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.ending import end_in_order
from benchmarks.record import Check, check, now, write
from perdure.bench.ports import free_port
from perdure.bench.process import ProcessProbe, machine_cpu_s
from perdure.errors import MqttError
from perdure.mqtt.client_protocol import ClientProtocol
from perdure.mqtt.packets import Properties
from perdure.net.client import Client
from perdure.net.client_link import Endpoint
from tests.support.cluster_processes import DEAD_AFTER_S, ClusterNodeProcess, ClusterProcesses
from tests.support.kafka import SHIPPED_JVM
from tests.support.process import BrokerProcess

RATE: Final = 5000
SECONDS: Final = 8.0
WARM_S: Final = 120.0
"""How long Kafka does what is measured before it is, seconds."""
ROUNDS: Final = 3
_GROUPS: Final = {
    "embedded": "embedded",
    "nodes_1": "1 node",
    "nodes_2": "2 nodes",
    "nodes_3": "3 nodes",
}
SEEN: Final = ("p50_ms", "p90_ms", "p99_ms", "max_ms")


def _client(port: int) -> Client:
    protocol = ClientProtocol(
        client_id="left-behind",
        version=5,
        clean_start=False,
        properties=Properties(session_expiry_interval=3600),
    )
    return Client(protocol, Endpoint(host="127.0.0.1", port=port))


async def bench(
    nodes: Sequence[BrokerProcess],
    rate: int,
    seconds: float,
    kafka: Sequence[ProcessProbe] = (),
    metrics: Sequence[int] = (),
) -> dict[str, Any]:
    """``perdure bench cluster`` on some nodes, as fast as it goes or at a rate.

    Args:
        nodes: where to.
        rate: messages per second; 0 = as fast as it goes.
        seconds: of each phase.
        kafka: whose CPU is counted too.
        metrics: ports at which the nodes tell theirs.
    """
    command = [sys.executable, "-m", "perdure", "bench", "cluster", "--json", "--window", "200"]
    command += ["--duration", str(seconds), "--warmup", "2", "--rate", str(rate)]
    for node in nodes:
        command += ["--url", f"127.0.0.1:{node.port}", "--pid", str(node.pid)]
    for port in metrics:
        command += ["--metrics", f"http://127.0.0.1:{port}/metrics"]
    begun_s, machine = time.monotonic(), machine_cpu_s()
    before = sum(probe.cpu_s() for probe in kafka)
    process = await asyncio.create_subprocess_exec(
        *command,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    found = json.loads((await process.communicate())[0])
    totals = found["totals"]
    told: dict[str, Any] = {
        "lost": totals["lost"],
        "repeated": totals["repeated"],
        "kafka_cpu_us": round(
            (sum(probe.cpu_s() for probe in kafka) - before) / max(1, totals["sent"]) * 1e6, 2
        ),
        "machine_cores_busy": round((machine_cpu_s() - machine) / (time.monotonic() - begun_s), 2),
    }
    for phase in found["phases"]:
        each: dict[str, Any] = {"per_s": round(phase["done_per_s"]), **phase["extra"]}
        for what in ("ack", "delivery"):
            if phase[what] is not None:
                each |= {f"{what}_{name}": round(phase[what][name], 2) for name in SEEN}
        told[phase["name"]] = each
    return told


async def recovery(dying: ClusterNodeProcess, other: ClusterNodeProcess) -> float:
    """kill -9 of the node that has a client's session, until another node has given it back."""
    client = _client(dying.process.port)
    await client.connect(timeout_s=30.0)
    await dying.kill()
    begun_s = time.monotonic()
    again = _client(other.process.port)
    while True:
        with contextlib.suppress(OSError, MqttError):
            await again.connect(timeout_s=30.0)
            break
    took_s = time.monotonic() - begun_s
    await again.disconnect()
    client.abort()
    return round(took_s, 3)


async def embedded(directory: Path, rate: int, seconds: float) -> dict[str, Any]:
    """One broker without a cluster."""
    port = free_port()
    command = [sys.executable, "-m", "perdure", "serve", "--data", str(directory / "alone")]
    process = BrokerProcess(
        [*command, "--bind", f"127.0.0.1:{port}"], port=port, log=directory / "alone.log"
    )
    await process.start()
    try:
        return {
            "full": await bench([process], 0, seconds),
            "steady": await bench([process], rate, seconds),
        }
    finally:
        await process.stop()


async def measure(
    counts: Sequence[int], rate: int, seconds: float, settings: Sequence[str], warm_s: float
) -> dict[str, Any]:
    """Start everything, warm Kafka up for some seconds, and take the figures."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="perdure-bench-cluster-") as name:
        directory = Path(name)
        if 0 in counts:
            found["embedded"] = await embedded(directory, rate, seconds)
        if not any(counts):
            return found
        cluster = ClusterProcesses(
            directory,
            random.Random(1),
            settings,
            is_direct=True,
            has_metrics=True,
            jvm=SHIPPED_JVM,
        )
        try:
            await cluster.open()
            probes = [ProcessProbe(broker.pid) for broker in cluster.kafka.brokers]

            async def taken(count: int, rate: int) -> dict[str, Any]:
                nodes = cluster.nodes[:count]
                metrics = [node.metrics_port for node in nodes]
                return await bench([n.process for n in nodes], rate, seconds, probes, metrics)

            for count in range(1, max(counts) + 1):
                node = cluster.nodes[count - 1]
                await node.spawn()
                await cluster.until_listening(node)
                if count == 1:
                    await bench([node.process], rate, warm_s)
                if count in counts:
                    found[f"nodes_{count}"] = {"steady": await taken(count, rate)}
            for count in range(max(counts), 0, -1):
                if count in counts:
                    found[f"nodes_{count}"]["full"] = await taken(count, 0)
                if count > 1:
                    took_s = await recovery(cluster.nodes[count - 1], cluster.nodes[0])
                    found.setdefault("recovery_s", took_s)
                    # The others let go of it before they are measured without it.
                    await asyncio.sleep(2 * DEAD_AFTER_S)
        finally:
            await cluster.close()
    return found


def checks_of(rounds: Sequence[dict[str, Any]]) -> list[Check]:
    """What some rounds of ``measure`` have found; a round may lack some of it."""

    def put(what: str, unit: str, path: str, most: float | None = None) -> None:
        values = [value for value in (_at(found, path) for found in rounds) if value is not None]
        if values:
            checks.append(check(what, values, unit, most=most))

    checks: list[Check] = []
    for group, name in _GROUPS.items():
        put(f"{name}, as fast as it goes", "messages/s", f"{group}.full.local.per_s")
        is_promised = group == "nodes_3"
        for share, bound in (("p50", 15.0), ("p90", None), ("p99", 50.0), ("max", None)):
            put(
                f"{name}, {RATE:,}/s: publish to PUBACK, {share}",
                "ms",
                f"{group}.steady.local.ack_{share}_ms",
                bound if is_promised else None,
            )
        put(f"{name}, {RATE:,}/s: publish to subscriber, p99", "ms",
            f"{group}.steady.local.delivery_p99_ms")  # fmt: skip
        for load, said in (("full", "as fast as it goes"), ("steady", f"{RATE:,}/s")):
            put(f"{name}, {said}: CPU of the node with the clients", "us/message",
                f"{group}.{load}.local.node1_cpu_us")  # fmt: skip
            put(f"{name}, {said}: CPU of a node that wants none", "us/message",
                f"{group}.{load}.local.node2_cpu_us", 3.0 if is_promised else None)  # fmt: skip
            put(f"{name}, {said}: of that beyond what it takes at rest", "us/message",
                f"{group}.{load}.local.node2_added_us", 3.0 if is_promised else None)  # fmt: skip
            put(f"{name}, {said}: CPU to apply a message that nobody there wants", "us/message",
                f"{group}.{load}.local.node2_apply_us", 3.0 if is_promised else None)  # fmt: skip
            put(f"{name}, {said}: CPU of Kafka, all three", "us/message",
                f"{group}.{load}.kafka_cpu_us")  # fmt: skip
    put("from node to node, 5,000/s: publish to subscriber, p50", "ms",
        "nodes_3.steady.across.delivery_p50_ms")  # fmt: skip
    put("from node to node, 5,000/s: publish to subscriber, p99", "ms",
        "nodes_3.steady.across.delivery_p99_ms")  # fmt: skip
    put("from node to node, as fast as it goes", "messages/s", "nodes_3.full.across.per_s")
    put("takeover between nodes, p50", "ms", "nodes_3.steady.takeover.ack_p50_ms", 50.0)
    put("takeover between nodes, max of 50", "ms", "nodes_3.steady.takeover.ack_max_ms")
    put("kill -9 of a node until its session is back", "s", "recovery_s", 10.0)
    return checks


def _at(found: Any, path: str) -> float | None:
    for name in path.split("."):
        if name not in found:
            return None
        found = found[name]
    return float(found)


def run() -> bool:
    """Take all rounds, and write the record."""
    started_at = now()
    rounds = [asyncio.run(measure((0, 1, 2, 3), RATE, SECONDS, (), WARM_S)) for _ in range(ROUNDS)]
    return write(
        "cluster",
        started_at,
        data=Path.cwd(),
        settings={
            "rate": RATE,
            "seconds": SECONDS,
            "warm_seconds": WARM_S,
            "rounds": ROUNDS,
            "pairs": 50,
        },
        checks=checks_of(rounds),
        values={"rounds": rounds},
    )


def main() -> int:
    """Print what was measured."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster")
    parser.add_argument("--nodes", default="0,1,2,3", help="how many; 0 = embedded (0,1,2,3)")
    parser.add_argument("--rate", type=int, default=RATE, help="messages per second (5000)")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each phase (8)")
    parser.add_argument("--warm", type=float, default=WARM_S, help="of warming Kafka up (120)")
    parser.add_argument("--set", action="append", default=[], help="a setting of each node")
    chosen = parser.parse_args()
    counts = [int(part) for part in chosen.nodes.split(",")]
    if not set(counts) <= {0, 1, 2, 3}:
        parser.error("--nodes: 0 to 3 of them")
    found = asyncio.run(measure(counts, chosen.rate, chosen.seconds, chosen.set, chosen.warm))
    print(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    end_in_order()
    sys.exit(main())
