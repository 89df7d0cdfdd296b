"""Wildcard replay out of a recorded fleet, in both layouts of the log, against a full scan.

10,000 devices publish four metrics, 25 times each: 1,000,000 messages, interleaved as a fleet
would. Then, on a store that was closed and opened again, so that nothing comes from the tail:

- ``devices/+/temperature``: one message in four, a wildcard before a constant level;
- a full scan: every message is read and its topic matched, what a log without an index must do;
- one device's backlog: its 100 messages.

Both stores are measured in turn, the same question one after the other, in CPU time of the thread
that reads. Sketch for the skip-scan
layout: the wildcard is a sequential read of its own streams, 250,000 keys and values; the scan
reads four times as many; a device is four seeks with 25 rows each.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Coroutine
from pathlib import Path

from benchmarks import record
from perdure.config.schema import RocksdbConfig
from perdure.model import Message
from perdure.storage.batch import Batch
from perdure.storage.rocksdb import RocksDatabase
from perdure.topic.matching import matches

METRICS = ("temperature", "humidity", "pressure", "battery")
WILDCARD = "devices/+/temperature"
LAYOUTS = ("skipscan", "bitmask")
OURS = "skipscan"
"""The default; the other is there to be compared with."""
START_US = 1_750_000_000_000_000
BATCH = 2000
EVERYTHING = 1 << 40


def fill(path: Path, layout: str, *, devices: int, rounds: int) -> float:
    """Record the fleet's messages; returns CPU seconds, those of compaction included."""
    config = RocksdbConfig(layout=layout)  # type: ignore[arg-type]
    database = RocksDatabase.open(path, config=config, now_us=START_US)
    begun = time.process_time()
    now_us, count = START_US, 0
    batch = Batch()
    for number in range(rounds):
        for device in range(devices):
            for metric in METRICS:
                now_us += 1000
                payload = b'{"value": %d, "unit": "x", "round": %d}' % (device, number)
                topic = f"devices/{device:05}/{metric}"
                batch.append(Message(topic, payload, 1, publisher=f"d{device}"))
                count += 1
                if count % BATCH == 0:
                    database.submit(batch, now_us)
                    batch = Batch()
    database.submit(batch, now_us)
    database.sync()
    seconds = time.process_time() - begun
    database.close()
    return seconds


async def read_all(database: RocksDatabase, topic_filter: str) -> int:
    """Read what matches; returns how many.

    In one page: the bitmask layout is ordered by topic and must find the beginning of each page
    anew, which is its weakness but would hide the cost of the key itself.
    """
    last = database.last_offset
    page = await database.read([topic_filter], after_offset=0, until_offset=last, limit=EVERYTHING)
    return len(page.messages)


async def scan_all(database: RocksDatabase, topic_filter: str) -> int:
    """Read every message and match its topic; returns how many match."""
    last = database.last_offset
    page = await database.read(["#"], after_offset=0, until_offset=last, limit=EVERYTHING)
    return sum(matches(topic_filter, message.topic) for message in page.messages)


def finish(question: Coroutine[None, None, int]) -> int:
    """Run a coroutine that never suspends: the embedded store's time, without an event loop's."""
    try:
        question.send(None)
    except StopIteration as done:
        count: int = done.value
        return count
    raise AssertionError("an embedded store does not suspend")


Question = Callable[[RocksDatabase, str], Coroutine[None, None, int]]


def timed(question: Question, database: RocksDatabase, topic_filter: str, expected: int) -> float:
    """CPU seconds of the reading thread: the data are in the page cache, so nothing else counts.

    Wall time would measure whatever else the machine does.
    """
    begun = time.thread_time()
    found = finish(question(database, topic_filter))
    seconds = time.thread_time() - begun
    assert found == expected, f"{found} messages instead of {expected}"
    return seconds


def run(*, devices: int = 10_000, rounds: int = 25, repeats: int = 3) -> bool:
    """Measure, and write the record."""
    started = record.now()
    total, each = devices * len(METRICS) * rounds, len(METRICS) * rounds
    values: dict[str, list[float]] = {}
    fills: dict[str, float] = {}
    sizes: dict[str, int] = {}
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as directory:
        stores = {}
        for layout in LAYOUTS:
            path = Path(directory) / layout
            fills[layout] = round(fill(path, layout, devices=devices, rounds=rounds), 2)
            print(f"recorded {total:,} messages, {layout}: {fills[layout]} s")
            stores[layout] = RocksDatabase.open(path)
            sizes[layout] = stores[layout].disk_bytes()
        for number in range(repeats):
            for layout, database in stores.items():
                if number and layout != OURS:
                    continue  # a scan of it takes most of a minute: once says enough
                wild = timed(read_all, database, WILDCARD, total // 4)
                full = timed(scan_all, database, WILDCARD, total // 4)
                values.setdefault(f"{layout} wildcard_s", []).append(wild)
                values.setdefault(f"{layout} full_scan_s", []).append(full)
                for index in range(20):
                    device = (number * 7919 + index * 104_729) % devices
                    one = timed(read_all, database, f"devices/{device:05}/#", each)
                    values.setdefault(f"{layout} device_ms", []).append(one * 1000)
                print(f"round {number + 1}, {layout}: wildcard {wild:.2f} s, scan {full:.2f} s")
        for database in stores.values():
            database.close()
        return record.write(
            "layouts",
            started,
            data=Path(directory),
            settings={"devices": devices, "metrics": 4, "each": rounds, "repeats": repeats},
            checks=checks(values, total),
            values={"fill_cpu_s": fills, "disk_bytes": sizes, **values},
        )


def checks(values: dict[str, list[float]], total: int) -> list[record.Check]:
    """The promises, and the other layout beside them."""
    found = []
    for layout in LAYOUTS:
        wild, full = values[f"{layout} wildcard_s"], values[f"{layout} full_scan_s"]
        ratios = [b / a for a, b in zip(wild, full, strict=True)]
        ours = layout == OURS
        found += [
            record.check(
                f"{layout}: {WILDCARD} against a full scan",
                ratios,
                "x",
                least=4 if ours else None,
            ),
            record.check(
                f"{layout}: {WILDCARD}", [total / 4 / seconds for seconds in wild], "messages/s"
            ),
            record.check(
                f"{layout}: one device's backlog (100 messages)",
                values[f"{layout} device_ms"],
                "ms",
                most=1 if ours else None,
            ),
        ]
    both = zip(values["bitmask wildcard_s"], values[f"{OURS} wildcard_s"], strict=False)
    found.append(
        record.check(f"{WILDCARD}: skipscan against bitmask", [a / b for a, b in both], "x")
    )
    return found
