"""``python -m benchmarks.applications [--seconds 15] [--rate N] [--outage N]``: fan-in with an
application behind it.

A Kafka of one broker, a broker with an application on everything, and ``perdure bench fanin``: once
with Kafka there, once while it is killed, and then how long it takes to catch up; the same log by
``pipeline route`` (``--master none`` by default) beside it. What is in the topics is counted, each
record by its place in the log and its publisher's counter. Says on stderr what it does; prints one
JSON object, and with ``--record`` writes the record of the page of benchmarks.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, final

import msgspec

from benchmarks import record
from benchmarks.ending import end_in_order
from benchmarks.topic_count import TopicCount, count_topic
from perdure.admin.records.applications import ListApplications
from perdure.bench.ports import free_port
from perdure.cli.admin_client import AdminClient
from tests.support.kafka import KafkaCluster
from tests.support.process import BrokerProcess, perdure_command

PROGRESS_S: Final = 5.0
POLL_S: Final = 0.25
TOPIC: Final = "perdure.app.all"
ROUTED: Final = "routed.all"


@final
class Stages:
    """Says on stderr what is being done, and how far it is, now and then."""

    def __init__(self) -> None:
        self._begun = self._told = time.monotonic()

    def begin(self, text: str) -> None:
        """Something else begins."""
        self._told = time.monotonic()
        self._print(text)

    def tell(self, done: int, of: int) -> None:
        """So much of it is done."""
        if time.monotonic() - self._told >= PROGRESS_S:
            self._told = time.monotonic()
            self._print(f"  {done:,} of {of:,}")

    def _print(self, text: str) -> None:
        print(f"{time.monotonic() - self._begun:7.1f} s  {text}", file=sys.stderr, flush=True)


async def _perdure(*args: str) -> bytes:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "perdure", *args), stdout=asyncio.subprocess.PIPE
    )
    told, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"perdure {args[0]} {args[1]} ended with {process.returncode}")
    return told


async def _fan_in(port: int, seconds: float, rate: float, *, seed: int) -> dict[str, Any]:
    bench = ("bench", "fanin", "--port", str(port), "--duration", str(seconds), "--json")
    # By its seed a message tells of which run it is: each counts from 0.
    told = await _perdure(*bench, "--rate", str(rate), "--seed", str(seed), "--no-progress")
    found: dict[str, Any] = json.loads(told)
    return found


async def _caught_up(data: Path, tell: Callable[[int, int], None]) -> int:
    """Wait until the forwarder has nothing before it; how many it has forwarded."""
    while True:
        client = AdminClient.connect(data)
        assert client is not None
        with client:
            row = client.call(ListApplications()).items[0]
        if row.state == "running" and not row.lag_messages:
            return row.forwarded
        tell(row.forwarded, row.forwarded + row.lag_messages)
        await asyncio.sleep(POLL_S)


async def _count(servers: str, topic: str, sent: int, stages: Stages) -> dict[str, Any]:
    stages.begin(f"counting {topic}")
    found: TopicCount = await asyncio.to_thread(count_topic, servers, topic, tell=stages.tell)
    return {**msgspec.to_builtins(found), "lost": sent - found.records}


async def measure(seconds: float, rate: float, outage: int, master: str | None) -> dict[str, Any]:
    """Everything, in turn.

    Args:
        seconds: of each stretch.
        rate: messages a second; 0 = as fast as it goes.
        outage: messages while Kafka is away, if there is a rate; 0 = those of one stretch.
        master: of Spark; ``none`` = without, None = the job is not measured.
    """
    stages = Stages()
    with tempfile.TemporaryDirectory() as home, KafkaCluster() as kafka:
        data, port = Path(home) / "data", free_port()
        config = Path(home) / "perdure.yaml"
        applications = {"bootstrap": kafka.servers, "partitions": 1, "declared": ["all=#"]}
        config.write_text(
            json.dumps({"storage": {"path": str(data)}, "applications": applications})
        )
        command = perdure_command(data, port, "--config", str(config))
        broker = BrokerProcess(command, port=port, log=Path(home) / "log")
        try:
            await broker.start()
            found = await _outage(kafka, port, data, stages, seconds, rate, outage)
        finally:
            await broker.stop()
        sent = found["sent"]
        found["topic"] = await _count(kafka.servers, TOPIC, sent, stages)
        if master is None:
            return found
        settings = json.loads(config.read_text())
        settings["applications"]["prefix"] = "routed."
        config.write_text(json.dumps(settings))
        stages.begin(f"route with --master {master}")
        begun = time.perf_counter()
        route = ("pipeline", "route", "--once", "--config", str(config), "--master", master)
        await _perdure(*route)
        taken = time.perf_counter() - begun
        found["route"] = await _count(kafka.servers, ROUTED, sent, stages)
        found["route"]["seconds"] = taken
    return found


async def _outage(
    kafka: KafkaCluster,
    port: int,
    data: Path,
    stages: Stages,
    seconds: float,
    rate: float,
    outage: int,
) -> dict[str, Any]:
    """Fan-in with Kafka, without it, how it catches up, and with it again."""
    found: dict[str, Any] = {}
    stages.begin("fan-in with Kafka")
    found["with Kafka"] = await _fan_in(port, seconds, rate, seed=1)
    before = await _caught_up(data, stages.tell)
    stages.begin("fan-in, Kafka killed")
    await asyncio.to_thread(kafka.brokers[0].kill)
    away_s = outage / rate if outage and rate else seconds
    found["without Kafka"] = await _fan_in(port, away_s, rate, seed=2)
    await asyncio.to_thread(kafka.brokers[0].start)
    stages.begin("Kafka is back: catching up")
    begun = time.perf_counter()
    after = await _caught_up(data, stages.tell)
    found["drain"] = {"messages": after - before, "seconds": time.perf_counter() - begun}
    stages.begin("fan-in with Kafka again")
    found["with Kafka again"] = await _fan_in(port, seconds, rate, seed=3)
    found["sent"] = await _caught_up(data, stages.tell)
    return found


def write_record(found: dict[str, Any], started_at: str, settings: dict[str, Any]) -> bool:
    """Write the record ``applications``; whether nothing is lost, twice or out of order."""
    names = ("with Kafka", "without Kafka", "with Kafka again")
    checks = [
        record.check(f"PUBACK, 99th percentile, {name}", [_p99_ms(found[name])], "ms")
        for name in names
    ]
    drain, route = found["drain"], found.get("route")
    checks += [
        record.check("messages while Kafka was away", [drain["messages"]], ""),
        record.check("caught up after", [drain["seconds"]], "s"),
        record.check("catching up", [drain["messages"] / drain["seconds"]], "/s"),
    ]
    if route is not None:
        text = "all of the log by `pipeline route`, its start included"
        checks.append(record.check(text, [route["records"] / route["seconds"]], "/s"))
    ways = {"topic": "by the forwarder", "route": "by `pipeline route`"}
    for name, way in ways.items():
        if name not in found:
            continue
        for what in ("lost", "twice", "out_of_order"):
            text = f"records {what.replace('_', ' ')}, {way}"
            checks.append(record.check(text, [abs(found[name][what])], "", most=0))
    return record.write(
        "applications", started_at, data=Path(tempfile.gettempdir()), settings=settings,
        checks=checks, values=found,
    )  # fmt: skip


def _p99_ms(found: dict[str, Any]) -> float:
    """Until PUBACK."""
    return float(found["phases"][0]["ack"]["p99_ms"])


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--rate", type=float, default=0.0)
    parser.add_argument("--outage", type=int, default=0, help="messages, with a rate")
    parser.add_argument("--master", default="none")
    parser.add_argument("--without-route", action="store_true", help="the forwarder alone")
    parser.add_argument("--record", action="store_true", help="write the record")
    parser.add_argument("--beside", default="", help="what else the machine did, for the record")
    given = parser.parse_args()
    started_at = record.now()
    master = None if given.without_route else given.master
    found = asyncio.run(measure(given.seconds, given.rate, given.outage, master))
    print(json.dumps(found))
    if given.record:
        settings = {
            name: value for name, value in vars(given).items() if name != "record" and value != ""
        }
        write_record(found, started_at, settings)


if __name__ == "__main__":
    end_in_order()
    main()
