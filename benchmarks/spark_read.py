"""Spark reads the log, beside the same rows in Parquet; whole, one percent by filter, by time.

    python benchmarks/spark_read.py [--messages 1000000] [--kafka] [--json]
    python -m benchmarks spark-read

Records messages of 10,000 devices with 4 metrics each, as ``log_replay`` does. Times are from a
query's start to its end, with two cores, of six rounds after one that is not counted; a round has
all queries, so that what else the machine does disturbs each of them alike. What is read goes
nowhere (Spark's sink ``noop``). The script shows the best, the record has the medians. Beside
each stands the processor time of Spark's processes, Java and Python together: divided by two it is
the time on two cores that nobody else uses, whatever the machine did meanwhile. ``url_full`` reads
the same log through an HTTP process. The decoder alone is measured too, in processor time of one
core. ``stats`` is the command, once, from its start to its end, without Spark.

With ``--kafka`` the same messages are read from a real Kafka too, with Spark's source, which knows
no topics of MQTT: they are keys there, and it reads all of them (``kafka_source``).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks import kafka_source, log_replay, record
from benchmarks.ending import end_in_order
from perdure.pipeline.decode import Names, decode_page
from perdure.pipeline.log_source import PAGE_ROWS
from perdure.pipeline.schema import BY_NAME
from perdure.pipeline.session import build
from perdure.storage.rocksdb.bulk import LogFiles
from perdure.web.settings import WebSettings
from tests.support.kafka import why_not as why_no_kafka

REPEATS = 6
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
TOKEN = "a-token-for-benchmarks-that-is-long-enough"


def decoder_alone(path: Path) -> float:
    """Rows per second of processor time, all columns, without Spark."""
    files = LogFiles(path)
    begun, rows = time.process_time(), 0
    for part in files.slices((), 0, 2**62, rows_max=10**9):
        layout = files.layout(part.generation)
        names = Names(part.generation, layout.topic, layout.pattern)
        for page in files.pages((), part, rows_max=PAGE_ROWS):
            rows += decode_page(page, list(BY_NAME), names).num_rows
    taken = time.process_time() - begun
    files.close()
    return rows / taken


class Taken(NamedTuple):
    """What a query took: seconds from start to end, and of the processors."""

    wall_s: float
    cpu_s: float


def timed(queries: Mapping[str, Callable[[], Any]]) -> dict[str, list[Taken]]:
    """Some rounds of queries."""
    times: dict[str, list[Taken]] = {name: [] for name in queries}
    for number in range(1 + REPEATS):
        for name, query in queries.items():
            used, begun = processor_s(), time.perf_counter()
            query().write.format("noop").mode("overwrite").save()
            if number:
                taken = Taken(time.perf_counter() - begun, processor_s() - used)
                times[name].append(taken)
    return times


def counted(path: Path) -> list[Taken]:
    """``pipeline stats`` as a process, once."""
    command = [sys.executable, "-m", "perdure", "pipeline", "stats", "--data", str(path), "--json"]
    used, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    taken_s = time.perf_counter() - begun
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime
    return [Taken(taken_s, cpu_s)]


def best(times: Sequence[Taken]) -> Taken:
    """The least of each."""
    return Taken(*map(min, zip(*times, strict=True)))


def processor_s() -> float:
    """Processor time of all processes below this one, those that have ended too."""
    parents: dict[int, int] = {}
    used: dict[int, float] = {}
    for each in Path("/proc").iterdir():
        if each.name.isdecimal():
            try:
                fields = (each / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(each.name)] = int(fields[1])
            used[int(each.name)] = sum(map(int, fields[11:15])) / TICKS_PER_S
    below = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in below} - below:
        below |= more
    return sum(used[pid] for pid in below if pid != os.getpid())


@contextlib.contextmanager
def served(path: Path) -> Iterator[str]:
    """An HTTP process on a data directory; its address."""
    tokens = path.parent / "tokens"
    tokens.write_text(TOKEN)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        settings = WebSettings(
            data=str(path), token_file=str(tokens), sockets=(listening.fileno(),), version=""
        )
        with subprocess.Popen(
            [sys.executable, "-m", "perdure.web"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=settings.sockets,
        ) as process:
            assert process.stdin is not None
            process.stdin.write(msgspec.json.encode(settings) + b"\n")
            process.stdin.flush()
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
            process.kill()


def measure(
    spark: Any, path: Path, parquet: Path, count: int, url: str, kafka: str
) -> dict[str, list[Taken]]:
    """What all queries took."""
    log = str(path)

    def read(**options: str) -> Any:
        return spark.read.format("perdure").options(**options).load(log)

    first = log_replay.START_US + count * 500
    window = {"from": str(first), "until": str(first + count * 10)}
    devices = json.dumps([f"devices/{number * 97}/#" for number in range(100)])
    spark.conf.set("spark.sql.parquet.compression.codec", "zstd")
    read().repartition(2).write.mode("overwrite").parquet(str(parquet))
    queries: dict[str, Callable[[], Any]] = {
        "full": read,
        "topic_and_payload": (
            lambda: spark.read.format("perdure").schema("topic string, payload binary").load(log)
        ),
        "one_percent_by_filter": lambda: read(topic=devices),
        "one_device": lambda: read(topic="devices/42/#"),
        "one_percent_by_time": lambda: read(**window),
        "url_full": lambda: spark.read.format("perdure").options(url=url, token=TOKEN).load(),
        "parquet_full": lambda: spark.read.parquet(str(parquet)),
        "empty_query": lambda: read(topic="no/such/topic"),
    }
    if kafka:
        queries |= kafka_source.queries(spark, kafka, first, count)
    return timed(queries)


def measured(count: int, *, with_kafka: bool = False) -> tuple[float, dict[str, list[Taken]]]:
    """Rows a second of the decoder, and what all queries took."""
    import perdure

    os.environ["PYTHONPATH"] = str(Path(perdure.__file__).parents[1])
    with contextlib.ExitStack() as held:
        directory = held.enter_context(tempfile.TemporaryDirectory(prefix="perdure-bench-"))
        path = Path(directory, "db")
        log_replay.record(path, "skipscan", count)
        kafka = held.enter_context(kafka_source.filled(path)) if with_kafka else ""
        alone = decoder_alone(path)
        spark = build(
            master="local[2]",
            log_file=Path(directory, "spark.log"),
            settings=kafka_source.settings() if with_kafka else None,
        )
        url = held.enter_context(served(path))
        found = measure(spark, path, Path(directory, "parquet"), count, url, kafka)
        spark.stop()
        found["stats"] = counted(path)
    return alone, found


def run(*, count: int = 1_000_000) -> bool:
    """Measure, and write the record."""
    started = record.now()
    with_kafka = not why_no_kafka()
    alone, found = measured(count, with_kafka=with_kafka)
    return record.write(
        "spark-read",
        started,
        data=Path(tempfile.gettempdir()),
        settings={"messages": count, "cores": 2, "repeats": REPEATS, "kafka": with_kafka},
        checks=checks(alone, found, count),
        values={name: [taken._asdict() for taken in times] for name, times in found.items()},
    )


def checks(alone: float, found: dict[str, list[Taken]], count: int) -> list[record.Check]:
    """The promises, and other reads beside them."""

    def rates(name: str) -> list[float]:
        return [count / taken.wall_s for taken in found[name]]

    def against_full(name: str) -> list[float]:
        pairs = zip(found["full"], found[name], strict=True)
        return [full.wall_s / part.wall_s for full, part in pairs]

    def took_ms(name: str) -> list[float]:
        return [taken.wall_s * 1e3 for taken in found[name]]

    return [
        record.check("all columns, from a directory", rates("full"), "rows/s", least=1e6),
        record.check("all columns, over HTTP", rates("url_full"), "rows/s"),
        record.check("topic and payload", rates("topic_and_payload"), "rows/s"),
        record.check("the same rows from Parquet", rates("parquet_full"), "rows/s"),
        record.check(
            "one percent by a hundred filters against all",
            against_full("one_percent_by_filter"),
            "x",
            least=5,
        ),
        record.check(
            "one percent by time against all", against_full("one_percent_by_time"), "x", least=5
        ),
        record.check("one percent by a hundred filters", took_ms("one_percent_by_filter"), "ms"),
        record.check("one device", took_ms("one_device"), "ms"),
        record.check("a query that finds nothing", took_ms("empty_query"), "ms"),
        record.check("the decoder alone, of one core", [alone], "rows/s of processor time"),
        record.check("stats, with its start", [found["stats"][0].wall_s], "s", most=15),
        *(
            record.check(f"the same rows from Kafka: {name}", took_ms(name), "ms")
            for name in found
            if name.startswith("kafka")
        ),
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--kafka", action="store_true", help="beside Spark's Kafka source")
    arguments = parser.parse_args()
    count = arguments.messages
    alone, times = measured(count, with_kafka=arguments.kafka)
    found = {name: best(each) for name, each in times.items()}
    if arguments.json:
        told = {name: taken._asdict() for name, taken in found.items()}
        print(json.dumps({"decoder_rows_per_cpu_s": alone, **told}))
        return
    print(f"decoder alone, one core      {alone / 1e6:8.2f} M rows/s of processor time")
    print("                               time   processors    M rows/s  on two cores   times full")
    for name, taken in found.items():
        rates = f"{count / taken.wall_s / 1e6:9.2f} {2 * count / taken.cpu_s / 1e6:13.2f}"
        print(
            f"{name:26} {taken.wall_s:8.3f} s {taken.cpu_s:10.2f} s "
            f"{rates if 'full' in name else ' ' * 23} {found['full'].wall_s / taken.wall_s:11.1f}x"
        )


if __name__ == "__main__":
    end_in_order()
    main()
