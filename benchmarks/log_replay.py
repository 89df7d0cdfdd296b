"""Replay from the log: learned streams beside the bitmask layout, and beside a full scan.

    python benchmarks/log_replay.py [--messages 1000000] [--layout skipscan|bitmask] [--json]

Records messages of 10,000 devices with 4 metrics each, closes and opens the database, then reads.
The full scan reads every message and tries a filter on its topic, once. Other times are the best
of three from a warm cache; each answer is compared with the full scan's.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path
from typing import Any, Literal

from perdure.config.schema import RocksdbConfig
from perdure.model import Message
from perdure.storage.batch import Batch
from perdure.storage.rocksdb import RocksDatabase
from perdure.topic.matching import compile_filter

START_US = 1_700_000_000_000_000
DEVICES = 10_000
METRICS = ("temperature", "humidity", "pressure", "battery")
FILTERS = ("devices/+/temperature", "devices/42/#", "devices/42/temperature", "devices/+/+", "#")
LONG_MS = 2_000
Layout = Literal["skipscan", "bitmask"]


def config(layout: Layout) -> RocksdbConfig:
    """No tail: what is measured is the tables."""
    return RocksdbConfig(layout=layout, tail_messages=0)


def record(path: Path, layout: Layout, count: int) -> dict[str, float]:
    """Fill a database; one message per millisecond, 500 to a commit."""
    database = RocksDatabase.open(path, config=config(layout), now_us=START_US)
    topics = [f"devices/{device}/{metric}" for device in range(DEVICES) for metric in METRICS]
    payload = b"x" * 64
    staged = written = 0.0
    for first in range(0, count, 500):
        messages = [
            Message(topics[number * 7_919 % len(topics)], payload, 1, publisher="device")
            for number in range(first, min(first + 500, count))
        ]
        begun = time.perf_counter()
        batch = Batch()
        batch.extend(messages)
        between = time.perf_counter()
        database.submit(batch, START_US + first * 1_000)
        staged += between - begun
        written += time.perf_counter() - between
    database.sync()
    size = sum(info.bytes for info in database.generations())
    database.close()
    return {
        "append_us": staged / count * 1e6,
        "write_us": written / count * 1e6,
        "bytes_per_message": size / count,
    }


async def read(database: RocksDatabase, topic_filter: str, limit: int) -> list[int]:
    """Offsets of what a read gives."""
    result = await database.read(
        [topic_filter], after_offset=0, until_offset=database.last_offset, limit=limit
    )
    return [message.offset for message in result.messages]


def full_scan(database: RocksDatabase) -> tuple[float, dict[str, list[int]]]:
    """Time of a scan that tries one filter, and what each filter matches."""
    begun = time.perf_counter()
    result = asyncio.run(
        database.read(["#"], after_offset=0, until_offset=database.last_offset, limit=10**9)
    )
    matches = compile_filter(FILTERS[0]).matches
    expected = {FILTERS[0]: [each.offset for each in result.messages if matches(each.topic)]}
    took_ms = (time.perf_counter() - begun) * 1e3
    for topic_filter in FILTERS[1:]:
        matches = compile_filter(topic_filter).matches
        expected[topic_filter] = [each.offset for each in result.messages if matches(each.topic)]
    return took_ms, expected


def best_ms(*calls: Any) -> tuple[float, Any]:
    """The shortest time and the answer of three runs, or of one if that takes long."""
    best, answer = float("inf"), None
    for call in calls * 3:
        if LONG_MS < best < float("inf"):
            break
        begun = time.perf_counter()
        answer = asyncio.run(call())
        best = min(best, (time.perf_counter() - begun) * 1e3)
    return best, answer


def measure(layout: Layout, count: int) -> dict[str, Any]:
    """All numbers of one layout."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "data"
        found: dict[str, Any] = {"layout": layout, **record(path, layout, count)}
        begun = time.perf_counter()
        database = RocksDatabase.open(path, config=config(layout))
        found["open_ms"] = (time.perf_counter() - begun) * 1e3
        found["full_scan_ms"], expected = full_scan(database)
        for topic_filter in FILTERS:
            all_ms, offsets = best_ms(lambda each=topic_filter: read(database, each, 10**9))
            page_ms, page = best_ms(lambda each=topic_filter: read(database, each, 100))
            assert offsets == expected[topic_filter]
            assert page == expected[topic_filter][:100]
            found[topic_filter] = {
                "messages": len(offsets),
                "ms": all_ms,
                "page_of_100_ms": page_ms,
            }
        database.close()
        return found


def show(found: dict[str, Any]) -> None:
    """Print one layout's numbers as a table."""
    print(
        f"\n{found['layout']}: append {found['append_us']:.2f} us, "
        f"write {found['write_us']:.2f} us, {found['bytes_per_message']:.0f} bytes per message, "
        f"open {found['open_ms']:.0f} ms, full scan {found['full_scan_ms']:.0f} ms"
    )
    print(f"{'filter':<26}{'messages':>10}{'all, ms':>12}{'page of 100, ms':>18}")
    for topic_filter in FILTERS:
        row = found[topic_filter]
        print(
            f"{topic_filter:<26}{row['messages']:>10,}{row['ms']:>12.2f}"
            f"{row['page_of_100_ms']:>18.2f}"
        )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--layout", choices=["skipscan", "bitmask"])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    layouts: tuple[Layout, ...] = ("skipscan", "bitmask")
    for layout in layouts:
        if options.layout in (None, layout):
            found = measure(layout, options.messages)
            print(json.dumps(found)) if options.json else show(found)


if __name__ == "__main__":
    main()
