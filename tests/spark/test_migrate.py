"""``perdure pipeline migrate`` on Spark, from a real PostgreSQL, killed in the middle."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from perdure.errors import ConfigError
from perdure.pipeline.jobs.migrate.endpoints import Endpoint
from perdure.pipeline.jobs.migrate.job import Migration, Options
from perdure.pipeline.jobs.migrate.ledger import Ledger
from perdure.storage.rocksdb import RocksDatabase
from tests.support.bounds import HANG_S
from tests.support.database_servers import PostgresServer

pytestmark = [
    pytest.mark.spark,
    pytest.mark.postgres,
    pytest.mark.filterwarnings("default"),
]
CLIENTS, EACH = 300, 40

TABLES = """
CREATE TABLE device_session_ctx (client_id varchar(255) PRIMARY KEY,
    last_updated_time bigint NOT NULL, last_serial_number bigint, last_packet_id integer);
CREATE TABLE device_publish_msg (client_id varchar(255) NOT NULL, serial_number bigint NOT NULL,
    topic varchar NOT NULL, time bigint NOT NULL, packet_id integer, packet_type varchar(255),
    qos integer NOT NULL, payload bytea NOT NULL, PRIMARY KEY (client_id, serial_number))
"""
FILL = f"""
INSERT INTO device_publish_msg SELECT 'client ' || c, s, 't/' || c, {{now_ms}},
    (65500 + s) % 65535 + 1, 'PUBLISH', 1 + s % 2, convert_to(c || '/' || s, 'UTF8')
FROM generate_series(1, {CLIENTS}) c, generate_series(0, {EACH - 1}) s;
INSERT INTO device_session_ctx SELECT client_id, 1, max(serial_number), max(packet_id)
FROM device_publish_msg GROUP BY client_id
"""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    async def fill(url: str) -> None:
        connection = await asyncpg.connect(url)
        await connection.execute(TABLES)
        await connection.execute(FILL.format(now_ms=int(time.time() * 1000)))
        await connection.close()

    with PostgresServer(settings={"shared_buffers": "16MB"}, durable=False) as running:
        asyncio.run(fill(running.url))
        yield running


def options(source: str, data: Path) -> Options:
    return Options(
        Endpoint("postgres", source),
        Endpoint("directory", str(data)),
        ttl_s=0,
        limit=65_535,
        entries_per_range=1_000,
    )


def test_ranges_run_in_spark(server: PostgresServer, spark: Any, tmp_path: Path) -> None:
    from perdure.pipeline.spark_tasks import SparkTasks

    told: list[int] = []
    migration = Migration(
        options(server.url, tmp_path / "data"),
        Ledger(tmp_path / "ledger"),
        execute=SparkTasks(spark),
        now_us=int(time.time() * 1e6),
        progress=lambda done, total, entries: told.append(entries),
    )
    summary = migration.run()
    migration.close()
    assert (summary.clients, summary.entries) == (CLIENTS, CLIENTS * EACH)
    assert summary.mismatches == []
    assert told[-1] == CLIENTS * EACH
    assert len(told) == summary.ranges > 10


def test_errors_of_tasks_come_back_as_ours(spark: Any, tmp_path: Path) -> None:
    from perdure.pipeline.jobs.migrate.contract import Range, Settings
    from perdure.pipeline.jobs.migrate.job import Task
    from perdure.pipeline.spark_tasks import SparkTasks

    settings = Settings(0, 0, 1, unique=False)
    task = Task(Endpoint("directory", "x"), Endpoint("directory", "y"), settings, str(tmp_path))
    with pytest.raises(ConfigError):
        list(SparkTasks(spark)(task, [Range(0, 1)]))


def test_killed_in_the_middle(server: PostgresServer, tmp_path: Path) -> None:
    program = f"""
import sys, time
from pathlib import Path
from perdure.pipeline.jobs.migrate.endpoints import Endpoint
from perdure.pipeline.jobs.migrate.job import Migration, Options
from perdure.pipeline.jobs.migrate.ledger import Ledger
from perdure.pipeline.session import build
from perdure.pipeline.spark_tasks import SparkTasks
spark = build(master="local[2]", memory="768m", app="killed")
def tell(done, total, entries):
    print(done, flush=True)
options = Options(Endpoint("postgres", {server.url!r}),
    Endpoint("directory", {str(tmp_path / "data")!r}), 0, 65_535, entries_per_range=1_000)
Migration(options, Ledger(Path({str(tmp_path / "ledger")!r})), execute=SparkTasks(spark),
    now_us=int(time.time() * 1e6), progress=tell).run()
"""
    root = Path(__file__).parents[2]
    path = str(root / "src")
    with subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=root,
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if int(line) == 4:
                break
        # With Java and all workers, in the middle of whatever they do.
        os.killpg(process.pid, signal.SIGKILL)
    data, ledger = tmp_path / "data", tmp_path / "ledger"
    done = len((ledger / "done.jsonl").read_bytes().splitlines())
    command = [
        *(sys.executable, "-m", "perdure", "pipeline", "migrate", "--json", "--local"),
        *("--from", server.url, "--to", str(data), "--ttl", "0", "--ledger", str(ledger)),
    ]
    ended = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert (found["clients"], found["entries"]) == (CLIENTS, CLIENTS * EACH)
    assert (found["verified"], found["mismatches"]) == (True, 0)
    assert 4 <= done <= found["ranges_of_earlier_runs"] < found["ranges"]
    database = RocksDatabase.open(data)
    assert list(database.check()) == []
    assert asyncio.run(database.session_count()) == CLIENTS
    database.close()
