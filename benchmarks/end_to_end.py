"""Many messages from publishers to the tables, with kills, counted three times.

    python benchmarks/end_to_end.py [--messages 10000000] [--spark]

Four publishers send numbered JSON at QoS 1 to a broker whose retention drops each generation once
it is 20 seconds old and the archive has it. Broker and archive are killed (-9) meanwhile, again and
again; publishers send anew what was not acknowledged. With ``--spark`` a streaming query that
reads the log, and the archive where it fell behind retention, writes a file for each micro-batch,
and its driver is killed too, with all its processes. When all is acknowledged and archived,
pyiceberg, DuckDB (``pipeline.sql``) and, with ``--spark``, Spark's source with the archive before
the log and the files of the stream must each give every number of every publisher on its topic, and
no more rows than were sent.
What is expected is counted from the numbers alone.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import json
import multiprocessing
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.ending import end_in_order
from perdure.pipeline.options import ReadOptions

PUBLISHERS: Final = 4
DEVICES: Final = 1_000
METRICS: Final = ("temperature", "humidity")
BATCH: Final = 500
BATCHES_UNDER_WAY: Final = 8
PUBACK_BYTES: Final = 4
RETENTION: Final = {
    "retention.time_s": "20",
    "retention.generation_time_s": "15",
    "retention.check_interval_s": "2",
    "retention.keep_for": '["archive"]',
}
STREAM: Final = Path(__file__).parents[1] / "tests" / "spark" / "programs" / "stream.py"
STREAM_ROWS_MAX: Final = 200_000
STREAM_END_S: Final = 600
"""How long a stream may take for what is left when all is published."""


def topic_of(publisher: int, number: int) -> str:
    """Where a message is published."""
    device = (number * 7_919 + publisher * 13) % DEVICES
    return f"plant/{device % 10}/{device}/{METRICS[number % len(METRICS)]}"


def packet(publisher: int, number: int, packet_id: int, *, again: bool) -> bytes:
    """A PUBLISH of MQTT 3.1.1 at QoS 1."""
    topic = topic_of(publisher, number).encode()
    payload = b'{"p":%d,"n":%d,"v":%d.5}' % (publisher, number, number % 50)
    rest = len(topic).to_bytes(2) + topic + packet_id.to_bytes(2) + payload
    assert len(rest) < 128  # one byte says how long it is
    return bytes([0x3A if again else 0x32, len(rest)]) + rest


def connected(port: int, publisher: int) -> socket.socket:
    """A connection, once there is a broker."""
    name = b"pub-%d" % publisher
    rest = b"\x00\x04MQTT\x04\x02\x00\x00" + len(name).to_bytes(2) + name
    while True:
        try:
            link = socket.create_connection(("127.0.0.1", port), timeout=60)
            link.sendall(bytes([0x10, len(rest)]) + rest)
            if link.recv(4, socket.MSG_WAITALL) == b"\x20\x02\x00\x00":
                return link
        except OSError:
            pass
        time.sleep(0.05)


def publish(port: int, publisher: int, count: int, done: Any) -> None:
    """Send numbers from 0, each until it is acknowledged; tells how many packets that took."""
    acknowledged = sent = total = 0
    reached = 0
    link = connected(port, publisher)
    while acknowledged < count:
        try:
            while sent < count and sent - acknowledged < BATCH * BATCHES_UNDER_WAY:
                numbers = range(sent, min(sent + BATCH, count))
                link.sendall(
                    b"".join(
                        packet(publisher, each, each % 60_000 + 1, again=each < reached)
                        for each in numbers
                    )
                )
                total += len(numbers)
                sent = numbers.stop
                reached = max(reached, sent)
            # Acknowledgements come in the order of the messages.
            got = link.recv(BATCH * PUBACK_BYTES, socket.MSG_WAITALL if sent < count else 0)
            if not got:
                raise ConnectionResetError
            while len(got) % PUBACK_BYTES:
                more = link.recv(PUBACK_BYTES - len(got) % PUBACK_BYTES)
                if not more:
                    raise ConnectionResetError
                got += more
            acknowledged += len(got) // PUBACK_BYTES
        except OSError:
            link.close()
            link = connected(port, publisher)
            sent = acknowledged
        done[2 * publisher] = acknowledged
    done[2 * publisher + 1] = total
    link.close()


def expected(count: int) -> Counter[str]:
    """Messages of each topic."""
    found: Counter[str] = Counter()
    cycle = DEVICES * len(METRICS)
    for publisher in range(PUBLISHERS):
        for number in range(min(cycle, count)):
            found[topic_of(publisher, number)] += (count - number + cycle - 1) // cycle
    return found


def perdure(*words: str) -> list[str]:
    """A command."""
    return [sys.executable, "-m", "perdure", *words]


class Killed:
    """A process, with those that it started, that is killed and begun anew."""

    def __init__(self, command: list[str], log: Path) -> None:
        self._command, self._log = command, log
        self.kills = 0
        self.begin()
        # It has a session of its own, where no Ctrl-C comes.
        atexit.register(self.end)

    def begin(self) -> None:
        """Start it."""
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                self._command, stdout=log, stderr=log, start_new_session=True
            )

    def kill(self) -> None:
        """As a power cut does."""
        self.end()
        self.kills += 1
        self.begin()

    def end(self) -> None:
        """The same, for good."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def counted(columns: str, source: str) -> str:
    """A query: rows, and distinct messages."""
    return f"select count(*) as n, count(distinct {columns}) as d from {source}"


def streamed(data: Path, lake: Path, home: Path) -> Killed:
    """A streaming query over log and archive."""
    (home / "sink").mkdir(parents=True)
    options = {
        "path": str(data),
        "catalog": str(lake),
        "maxOffsetsPerTrigger": str(STREAM_ROWS_MAX),
    }
    command = [sys.executable, str(STREAM), json.dumps(options), str(home)]
    return Killed(command, home / "driver.log")


def reached(home: Path) -> int:
    """The highest offset that a streaming query wrote."""
    import pyarrow.parquet as pq

    files = sorted((home / "sink").glob("[0-9]*.parquet"))
    highest = 0
    for file in files[-1:]:
        metadata = pq.read_metadata(file)
        for group in range(metadata.num_row_groups):
            statistics = metadata.row_group(group).column(0).statistics
            highest = max(highest, statistics.max)
    return highest


def wait_for_stream(stream: Killed, lake: Path, home: Path) -> None:
    """Wait until a streaming query has all that was archived, which by now is all there is.

    Raises:
        TimeoutError: it has not, after ``STREAM_END_S``.
    """
    from perdure.pipeline.archive_state import load_state

    # The log itself may be empty: retention drops what the archive has.
    state = load_state(lake)
    assert state is not None
    end = state.position.offset
    deadline = time.monotonic() + STREAM_END_S
    while reached(home) < end:
        if time.monotonic() > deadline:
            raise TimeoutError(f"the stream is at {reached(home)}, the archive at {end}")
        if stream.process.poll() is not None:
            stream.begin()
        time.sleep(0.5)


@contextlib.contextmanager
def timed(what: str, taken: dict[str, float]) -> Iterator[None]:
    """Note how long something took."""
    begun = time.monotonic()
    yield
    taken[what] = round(time.monotonic() - begun, 1)
    print(f"{taken[what]:8.1f} s  {what}", flush=True)


def run(home: Path, messages: int, *, spark: bool) -> dict[str, Any]:
    """The whole of it; what was found."""
    count = messages // PUBLISHERS
    data, lake = home / "data", home / "lake"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = [f"--set={name}={value}" for name, value in RETENTION.items()]
    table = "readings=plant/{site}/{device}/{metric}"
    from perdure.pipeline.archive_state import load_state

    broker = Killed(
        perdure("serve", f"--data={data}", f"--bind=127.0.0.1:{port}", *settings),
        home / "broker.log",
    )
    archive_words = ("pipeline", "archive", f"--data={data}", f"--to={lake}", f"--table={table}")
    chance = random.Random(18)
    taken: dict[str, float] = {}
    done = multiprocessing.Array("q", 2 * PUBLISHERS, lock=False)
    begun = time.monotonic()
    peers = [
        multiprocessing.Process(target=publish, args=(port, each, count, done))
        for each in range(PUBLISHERS)
    ]
    for peer in peers:
        peer.start()
    while not (data / "CURRENT").exists() or not sum(done[::2]):
        time.sleep(0.1)
    archive = Killed(perdure(*archive_words, "--every=1s"), home / "archive.log")
    stream: Killed | None = None
    next_kill, kills = time.monotonic() + 5, 0
    while any(peer.is_alive() for peer in peers):
        time.sleep(0.2)
        if time.monotonic() > next_kill:
            kills += 1
            victims = [archive, broker, archive, stream or archive]
            victims[kills % len(victims) - 1].kill()
            next_kill = time.monotonic() + chance.uniform(3, 9)
        for each in (archive, stream):
            if each is not None and each.process.poll() is not None:
                each.begin()
        if spark and stream is None and load_state(lake) is not None:
            stream = streamed(data, lake, home / "stream")
    taken["published"] = round(time.monotonic() - begun, 1)
    print(f"{taken['published']:8.1f} s  published, {sum(done[::2]):,} acknowledged", flush=True)
    archive.kill()
    archive.end()
    with timed("archived to the end", taken):
        subprocess.run(perdure(*archive_words, "--once"), check=True, capture_output=True)
    time.sleep(2 * int(RETENTION["retention.check_interval_s"]))
    if stream is not None:
        with timed("streamed to the end", taken):
            wait_for_stream(stream, lake, home / "stream")
        stream.end()
    found = {
        "sent": sum(done[1::2]),
        "acknowledged": sum(done[::2]),
        "kills of the broker": broker.kills,
        "kills of the archive": archive.kills,
        "kills of the driver": stream.kills if stream is not None else 0,
        "answers": answers(data, lake, count, taken, spark=spark),
        "seconds": taken,
    }
    broker.process.terminate()
    broker.process.wait()
    return found


def answers(
    data: Path, lake: Path, count: int, taken: dict[str, float], *, spark: bool
) -> dict[str, Any]:
    """What each reader counts: rows, distinct messages, and whether its topics are right."""
    import duckdb

    from perdure.pipeline.here import read_here
    from perdure.pipeline.lake.catalogs import local_catalog
    from perdure.pipeline.lake.lake import Lake
    from perdure.pipeline.sql import SqlSession

    wanted = expected(count)
    key = "p * 1000000000 + n"

    def right(topics: dict[str, int]) -> bool:
        return topics == dict(wanted)

    found: dict[str, Any] = {}
    with timed("pyiceberg", taken):
        readings = local_catalog(lake).load_table("perdure.readings")
        connection = duckdb.connect()
        connection.register("rows", readings.scan(selected_fields=("topic", "p", "n")).to_arrow())
        n, distinct = connection.execute(counted(key, "rows")).fetchall()[0]
        topics = connection.execute(
            f"select topic, count(distinct {key}) from rows group by topic"
        ).fetchall()
        found["pyiceberg"] = (n, distinct, right(dict(topics)))
    with timed("DuckDB on the tables", taken):
        session = SqlSession(ReadOptions(str(data), catalog=str(lake)), Lake(str(lake)))
        row = next(iter(session.query(counted(key, "readings"))[1]))
        topics = {
            each["topic"]: each["d"]
            for each in session.query(
                f"select topic, count(distinct {key}) as d from readings group by topic"
            )[1]
        }
        found["duckdb"] = (row["n"], row["d"], right(topics))
        session.close()
    with timed("the log alone", taken):
        kept = sum(batch.num_rows for batch in read_here(ReadOptions(str(data)), ["offset"]))
        found["left in the log"] = kept
    if spark:
        files = str(data.parent / "stream" / "sink" / "[0-9]*.parquet")
        p, n = (f"(decode(payload)::json->>'{each}')::bigint" for each in "pn")
        with timed("the files of the stream", taken):
            each_topic = duckdb.execute(
                f"select topic, count(*), count(distinct {p} * 1000000000 + {n}) "
                "from read_parquet(?) group by topic",
                [files],
            ).fetchall()
            found["stream"] = (
                sum(rows for _, rows, _ in each_topic),
                sum(distinct for _, _, distinct in each_topic),
                right({topic: distinct for topic, _, distinct in each_topic}),
            )
        from perdure.pipeline.session import build

        with timed("Spark, archive and log as one, with its start", taken):
            session = build(master="local[2]", memory="3g")
            log = session.read.format("perdure").option("catalog", str(lake)).load(str(data))
            log.createOrReplaceTempView("log")
            numbered = (
                "select topic, from_json(cast(payload as string), 'p bigint, n bigint') as j "
                "from log"
            )
            each = session.sql(
                "select topic, count(*) as n, count(distinct j.p * 1000000000 + j.n) as d "
                f"from ({numbered}) group by topic"
            ).collect()
            found["spark"] = (
                sum(row.n for row in each),
                sum(row.d for row in each),
                right({row.topic: row.d for row in each}),
            )
            session.stop()
    return found


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=10_000_000)
    parser.add_argument("--spark", action="store_true", help="count with Spark too")
    parser.add_argument("--keep", type=Path, help="directory for data and tables, which stay")
    arguments = parser.parse_args()
    home = arguments.keep or Path(tempfile.mkdtemp(prefix="perdure-bench-"))
    home.mkdir(parents=True, exist_ok=True)
    found = run(home, arguments.messages, spark=arguments.spark)
    print(json.dumps(found, indent=1))
    messages = arguments.messages // PUBLISHERS * PUBLISHERS
    readers = [each for each in found["answers"].values() if isinstance(each, tuple)]
    good = all(
        distinct == messages and is_right and messages <= rows <= found["sent"]
        for rows, distinct, is_right in readers
    )
    good &= len({rows for rows, _, _ in readers}) == 1
    print("every message is there, in every reader" if good else "WRONG")
    if arguments.keep is None:
        shutil.rmtree(home)
    sys.exit(not good)


if __name__ == "__main__":
    end_in_order()
    main()
