"""``python -m benchmarks.applications [--seconds 15] [--rate N] [--outage N]``: fan-in with an
application behind it.

A Kafka of one broker, a broker with an application on everything, and ``perdure bench fanin``: once
with Kafka there, once while it is killed, and then how long it takes to catch up; the same log by
``pipeline route`` (``--master none`` by default) beside it. What is in the topics is counted, each
record by its place in the log. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.contract.targets import read_topic
from tests.support.kafka import KafkaCluster
from tests.support.process import BrokerProcess, free_port, perdure_command


async def _perdure(*args: str) -> bytes:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "perdure", *args),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    told, _ = await process.communicate()
    return told


async def _fan_in(port: int, seconds: float, rate: float) -> dict[str, Any]:
    bench = ("bench", "fanin", "--port", str(port), "--duration", str(seconds), "--json")
    told = await _perdure(*bench, "--rate", str(rate), "--no-progress")
    found: dict[str, Any] = json.loads(told)
    return found


def _p99_ms(found: dict[str, Any]) -> float:
    """Until PUBACK."""
    return float(found["phases"][0]["ack"]["p99_ms"])


def _count(servers: str, topic: str) -> tuple[int, int]:
    """Records of a topic, and how many of them are there twice."""
    offsets = [int(headers["perdure.offset"]) for headers, _ in read_topic(servers, topic, 0)]
    return len(offsets), len(offsets) - len(set(offsets))


async def _caught_up(port: int, data: Path) -> int:
    """Wait until the forwarder has nothing before it; how many it has forwarded."""
    while True:
        told = await _perdure("applications", "list", "--data", str(data), "--json")
        rows = json.loads(told) if told else []
        if rows and rows[0]["state"] == "running" and not rows[0]["lag_messages"]:
            return int(rows[0]["forwarded"])
        await asyncio.sleep(0.1)


async def measure(seconds: float, rate: float, outage: int, master: str) -> dict[str, Any]:
    """Everything, in turn.

    Args:
        seconds: of each stretch.
        rate: messages a second; 0 = as fast as it goes.
        outage: messages while Kafka is away, if there is a rate; 0 = those of one stretch.
        master: of Spark; ``none`` = without.
    """
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as home, KafkaCluster() as kafka:
        data, port = Path(home) / "data", free_port()
        config = Path(home) / "perdure.yaml"
        applications = {"bootstrap": kafka.servers, "partitions": 1, "declared": ["all=#"]}
        config.write_text(
            json.dumps({"storage": {"path": str(data)}, "applications": applications})
        )
        command = perdure_command(data, port, "--config", str(config))
        broker = BrokerProcess(command, port=port, log=Path(home) / "log")
        await broker.start()
        found["with Kafka"] = await _fan_in(port, seconds, rate)
        before = await _caught_up(port, data)
        await asyncio.to_thread(kafka.brokers[0].kill)
        away_s = outage / rate if outage and rate else seconds
        found["without Kafka"] = await _fan_in(port, away_s, rate)
        await asyncio.to_thread(kafka.brokers[0].start)
        begun = time.perf_counter()
        after = await _caught_up(port, data)
        taken = time.perf_counter() - begun
        found["drain"] = {"messages": after - before, "seconds": taken}
        found["with Kafka again"] = await _fan_in(port, seconds, rate)
        after = await _caught_up(port, data)
        beside = [_p99_ms(found[name]) for name in ("with Kafka", "with Kafka again")]
        away_ms = _p99_ms(found["without Kafka"])
        found["p99 of PUBACK, ms"] = {"with Kafka": beside, "without Kafka": away_ms}
        await broker.stop()
        records, twice = await asyncio.to_thread(_count, kafka.servers, "perdure.app.all")
        found["topic"] = {"records": records, "twice": twice, "lost": after - records}
        settings = json.loads(config.read_text())
        settings["applications"]["prefix"] = "routed."
        config.write_text(json.dumps(settings))
        begun = time.perf_counter()
        route = ("pipeline", "route", "--once", "--config", str(config), "--master", master)
        await _perdure(*route)
        taken = time.perf_counter() - begun
        records, twice = await asyncio.to_thread(_count, kafka.servers, "routed.all")
        found["route"] = {"records": records, "twice": twice, "lost": after - records,
                          "seconds": taken}  # fmt: skip
    return found


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--rate", type=float, default=0.0)
    parser.add_argument("--outage", type=int, default=0, help="messages, with a rate")
    parser.add_argument("--master", default="none")
    given = parser.parse_args()
    print(json.dumps(asyncio.run(measure(given.seconds, given.rate, given.outage, given.master))))


if __name__ == "__main__":
    main()
