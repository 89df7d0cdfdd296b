"""``python -m benchmarks.cluster_join``: how long a node takes to join a cluster that has much.

A directory is filled as the broker would have done it, without one: sessions that are not
connected, each with a subscription, and messages that it is owed. Two nodes run on it, clients
publish through the first, and the third fetches a checkpoint of that one and starts. Sketch: what
is copied is what RocksDB has; both ends read and write each byte once, the new node verifies each
record once, so it grows with the bytes, and no process holds more than a chunk of it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from benchmarks.ending import end_in_order
from benchmarks.record import Check, check, now, write
from perdure.bench.process import ProcessProbe
from perdure.config.schema import RocksdbConfig
from perdure.model import Cursor, Message, SessionRecord, Subscription
from perdure.storage.batch import Batch
from perdure.storage.rocksdb.store import RocksDatabase
from tests.support.cluster_processes import ClusterNodeProcess, ClusterProcesses

SESSIONS: Final = 1_000_000
MESSAGES: Final = 10_000_000
RATE: Final = 1000
QUIET_S: Final = 12.0
"""Time for which clients publish before somebody joins, seconds."""
_BATCH: Final = 5000
_SITES: Final = 1000
_NEVER: Final = 0xFFFF_FFFF


def fill(data: Path, sessions: int, messages: int) -> float:
    """Make a single broker's directory, or go on with it; returns the seconds that took."""
    begun_s = time.monotonic()
    database = RocksDatabase.open(data, config=RocksdbConfig())
    at_us = max(database.last_offset, time.time_ns() // 1000 - 3_600_000_000)
    for first in range(database.marks.session_count, sessions, _BATCH):
        batch = Batch()
        for number in range(first, min(sessions, first + _BATCH)):
            name = f"device-{number:07}"
            record = SessionRecord(
                *(name, 1, at_us, _NEVER, False, at_us), method="anonymous", subscription_count=1
            )
            batch.put_session(record)
            topic_filter = f"site/{number % _SITES}/device/{number}/+"
            batch.put_subscription(name, Subscription(topic_filter, qos=1), epoch=1)
            batch.put_cursor(name, Cursor(database.last_offset, 0, sent=0), epoch=1)
        database.submit(batch, at_us)
    payload = b"x" * 64
    there = sum(each.message_count for each in database.generations())
    for first in range(there, messages, _BATCH):
        batch = Batch()
        for number in range(first, min(messages, first + _BATCH)):
            device = number % max(1, sessions)
            topic = f"site/{device % _SITES}/device/{device}/temperature"
            batch.append(Message(topic, payload, 1, published_at_us=at_us))
        at_us += 10 * _BATCH
        database.submit(batch, at_us)
    database.sync()
    database.close()
    return time.monotonic() - begun_s


async def publishing(node: ClusterNodeProcess, rate: int, seconds: float) -> dict[str, Any]:
    """What clients see of a node: latencies from PUBLISH to PUBACK."""
    command = [sys.executable, "-m", "perdure", "bench", "p2p", "--json", "--window", "20"]
    command += [
        "--host",
        "127.0.0.1",
        "--port",
        str(node.process.port),
        "--rate",
        str(rate),
        "--warmup",
        "2",
    ]
    process = await asyncio.create_subprocess_exec(
        *command, "--duration", str(seconds), stdout=asyncio.subprocess.PIPE, env=_environment()
    )
    found = json.loads((await process.communicate())[0])
    (phase,) = [each for each in found["phases"] if each["ack"] is not None]
    seen = {name: round(phase["ack"][name], 2) for name in ("p50_ms", "p99_ms", "max_ms")}
    return {**seen, "per_s": round(phase["done_per_s"]), "lost": found["totals"]["lost"]}


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


async def join(peer: ClusterNodeProcess, node: ClusterNodeProcess) -> dict[str, Any]:
    """Fetch a checkpoint of a peer, and start on it."""
    words = ["cluster", "join", "--from", f"http://127.0.0.1:{peer.http_port}", "--json"]
    words += ["--token-file", str(peer.data / "http.token"), "--data", str(node.data)]
    begun_s = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "perdure", *words),
        stdout=asyncio.subprocess.PIPE,
        env=_environment(),
    )
    memory = [0]
    watching = asyncio.create_task(_watch(process.pid, memory))
    shown, _ = await process.communicate()
    watching.cancel()
    fetched_s = time.monotonic() - begun_s
    assert process.returncode == 0
    begun_s = time.monotonic()
    await node.spawn()
    await cluster_listens(node)
    told = json.loads(shown)
    return {
        "fetched_s": round(fetched_s, 2),
        "fetching_mib": round(memory[0] / 2**20),
        "started_s": round(time.monotonic() - begun_s, 2),
        **{name: told[name] for name in ("size", "sessions", "messages")},
    }


async def _watch(pid: int, most: list[int]) -> None:
    probe = ProcessProbe(pid)
    while True:
        most[0] = max(most[0], probe.memory_bytes()[1])
        await asyncio.sleep(0.1)


async def cluster_listens(node: ClusterNodeProcess) -> None:
    """Wait until a node takes clients: it has read the log to its end."""
    while True:
        node.process.check()
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", node.process.port)
        except OSError:
            await asyncio.sleep(0.02)
            continue
        writer.close()
        return


async def measure(data: Path, rate: int) -> dict[str, Any]:
    """Start two nodes on a filled directory, and have the third one join."""
    with tempfile.TemporaryDirectory(prefix="perdure-bench-join-", dir=data.parent) as name:
        cluster = ClusterProcesses(
            Path(name), random.Random(1), ["limits.sessions_max=0"], is_direct=True, has_http=True
        )
        first, second, third = cluster.nodes
        try:
            for node in (first, second):
                shutil.copytree(data, node.data)
            await cluster.open()
            begun_s = time.monotonic()
            for node in (first, second):
                await node.spawn()
            for node in (first, second):
                await cluster_listens(node)
            found: dict[str, Any] = {"two_started_s": round(time.monotonic() - begun_s, 2)}
            found["before"] = await publishing(first, rate, QUIET_S)
            busy = asyncio.create_task(publishing(first, rate, 3 * QUIET_S))
            await asyncio.sleep(4.0)
            found["join"] = await join(first, third)
            found["is_publishing_meanwhile"] = not busy.done()
            found["meanwhile"] = await busy
            for node in cluster.nodes:
                found[f"{node.name}_mib"] = round(
                    ProcessProbe(node.process.pid).memory_bytes()[1] / 2**20
                )
        finally:
            await cluster.close()
    return found


def checks_of(found: dict[str, Any], sessions: int, messages: int) -> list[Check]:
    """What was measured, as checks."""
    joined = found["join"]
    what = f"{sessions:,} sessions, {messages:,} messages"
    return [
        check(f"{what}: fetched and verified", [joined["fetched_s"]], "s"),
        check(f"{what}: bytes", [joined["size"] / 1e6], "MB"),
        check(f"{what}: memory of the command", [joined["fetching_mib"]], "MiB"),
        check(f"{what}: started, caught up", [joined["started_s"]], "s"),
        check("PUBACK of the serving node before, p99", [found["before"]["p99_ms"]], "ms"),
        check("PUBACK of the serving node meanwhile, p99", [found["meanwhile"]["p99_ms"]], "ms"),
        check("PUBACK of the serving node meanwhile, max", [found["meanwhile"]["max_ms"]], "ms"),
    ]


def run(data: Path | None = None) -> bool:
    """Fill a directory, have a node join, and write the record."""
    started_at = now()
    with tempfile.TemporaryDirectory(prefix="perdure-bench-join-") as name:
        if data is None:
            data = Path(name) / "data"
            fill(data, SESSIONS, MESSAGES)
        found = asyncio.run(measure(data, RATE))
    return write(
        "cluster-join",
        started_at,
        data=Path.cwd(),
        settings={"sessions": SESSIONS, "messages": MESSAGES, "rate": RATE, "payload": 64},
        checks=checks_of(found, SESSIONS, MESSAGES),
        values=found,
    )


def main() -> int:
    """Fill a directory, or print what was measured."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster_join")
    parser.add_argument("data", type=Path, help="directory of a single broker, filled if missing")
    parser.add_argument("--sessions", type=int, default=SESSIONS)
    parser.add_argument("--messages", type=int, default=MESSAGES)
    parser.add_argument("--rate", type=int, default=RATE, help="messages per second meanwhile")
    parser.add_argument("--fill", action="store_true", help="only fill it, or go on")
    chosen = parser.parse_args()
    if chosen.fill or not chosen.data.exists():
        print(f"filled in {fill(chosen.data, chosen.sessions, chosen.messages):.1f} s")
    if not chosen.fill:
        print(json.dumps(asyncio.run(measure(chosen.data, chosen.rate)), indent=1))
    return 0


if __name__ == "__main__":
    end_in_order()
    sys.exit(main())
