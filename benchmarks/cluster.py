"""``python -m benchmarks.cluster [--nodes 3] [--rate 5000]``: what a cluster costs, on one machine.

Three Kafka brokers and the nodes run here, so latencies are those of a machine that does
everything; what carries over to others is CPU per message. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from perdure.bench.process import ProcessProbe
from perdure.errors import MqttError
from perdure.mqtt.client_protocol import ClientProtocol
from perdure.mqtt.packets import Properties
from perdure.net.client import Client
from perdure.net.client_link import Endpoint
from tests.support.cluster_processes import ClusterProcesses

TAKEOVERS: Final = 50


def _client(port: int) -> Client:
    protocol = ClientProtocol(
        client_id="wanderer",
        version=5,
        clean_start=False,
        properties=Properties(session_expiry_interval=3600),
    )
    return Client(protocol, Endpoint(host="127.0.0.1", port=port))


async def traffic(cluster: ClusterProcesses, rate: int, seconds: float) -> dict[str, Any]:
    """Messages through the first node to subscribers there: the others want none of them."""
    nodes = [node for node in cluster.nodes if node.is_wanted]
    probes = {node.name: ProcessProbe(node.process.pid) for node in nodes}
    brokers = [ProcessProbe(broker.pid) for broker in cluster.kafka.brokers]
    bench = [sys.executable, "-m", "perdure", "bench", "p2p", "--pairs", "50", "--window", "200"]
    bench += ["--port", str(nodes[0].process.port), "--duration", str(seconds), "--warmup", "2"]
    bench += ["--rate", str(rate)] if rate else []
    before = {name: probe.cpu_s() for name, probe in probes.items()}
    kafka_before = sum(probe.cpu_s() for probe in brokers)
    process = await asyncio.create_subprocess_exec(
        *bench,
        "--json",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    found = json.loads((await process.communicate())[0])
    flow, totals = found["phases"][0], found["totals"]
    sent = max(1, totals["sent"])
    cpu = {name: (probe.cpu_s() - before[name]) / sent * 1e6 for name, probe in probes.items()}
    return {
        "rate": round(flow["done_per_s"]),
        "puback_p50_ms": flow["ack"]["p50_ms"],
        "puback_p99_ms": flow["ack"]["p99_ms"],
        "delivery_p50_ms": flow["delivery"]["p50_ms"],
        "delivery_p99_ms": flow["delivery"]["p99_ms"],
        "lost": totals["lost"],
        "repeated": totals["repeated"],
        "cpu_us_per_message": {name: round(value, 2) for name, value in cpu.items()},
        "kafka_cpu_us_per_message": round(
            (sum(probe.cpu_s() for probe in brokers) - kafka_before) / sent * 1e6, 2
        ),
        "others_cpu_share": flow["others_cpu_share"],
    }


async def takeovers(cluster: ClusterProcesses) -> dict[str, float]:
    """CONNECT to CONNACK of a client that goes from node to node, its last connection open."""
    ports = [node.process.port for node in cluster.nodes if node.is_wanted]
    took_ms: list[float] = []
    before: Client | None = None
    for number in range(TAKEOVERS):
        client = _client(ports[number % len(ports)])
        begun_s = time.monotonic()
        await client.connect(timeout_s=30.0)
        took_ms.append((time.monotonic() - begun_s) * 1000)
        if before is not None:
            before.abort()
            await before.wait_closed()
        before = client
    assert before is not None
    await before.disconnect()
    return {
        "takeover_p50_ms": round(statistics.median(took_ms[1:]), 1),
        "takeover_max_ms": round(max(took_ms[1:]), 1),
    }


async def recovery(cluster: ClusterProcesses) -> dict[str, float]:
    """kill -9 of the node that has a client's session, until another node has given it back."""
    first, second = cluster.nodes[:2]
    client = _client(first.process.port)
    await client.connect(timeout_s=30.0)
    await cluster.kill_node(first)
    begun_s = time.monotonic()
    again = _client(second.process.port)
    while True:
        with contextlib.suppress(OSError, MqttError):
            await again.connect(timeout_s=30.0)
            break
    took_s = time.monotonic() - begun_s
    await again.disconnect()
    client.abort()
    return {"recovery_s": round(took_s, 3)}


async def measure(nodes: int, rate: int, seconds: float, settings: Sequence[str]) -> dict[str, Any]:
    """Start everything, and take the figures."""
    with tempfile.TemporaryDirectory(prefix="perdure-bench-cluster-") as directory:
        cluster = ClusterProcesses(Path(directory), random.Random(1), settings, is_direct=True)
        del cluster.nodes[nodes:]
        try:
            await cluster.open()
            await cluster.start()
            found: dict[str, Any] = {"nodes": nodes}
            # First, for Kafka's machines get quicker with what they do.
            found["full"] = await traffic(cluster, 0, seconds)
            found["steady"] = await traffic(cluster, rate, seconds)
            if nodes > 1:
                found |= await takeovers(cluster)
                found |= await recovery(cluster)
        finally:
            await cluster.close()
    return found


def main() -> int:
    """Print what was measured."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster")
    parser.add_argument("--nodes", type=int, choices=(1, 2, 3), default=3)
    parser.add_argument("--rate", type=int, default=5000, help="messages per second (5000)")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each phase (10)")
    parser.add_argument("--set", action="append", default=[], help="a setting of each node")
    chosen = parser.parse_args()
    found = asyncio.run(measure(chosen.nodes, chosen.rate, chosen.seconds, chosen.set))
    print(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
