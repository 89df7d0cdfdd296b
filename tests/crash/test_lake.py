"""Archives in an object store, with a REST catalog: real servers, outages, stops at every step."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.config.schema import TablesConfig
from perdure.errors import StorageUnavailable
from perdure.model import Message
from perdure.pipeline.options import ReadOptions
from perdure.storage.rocksdb import RocksDatabase
from tests.support.needs import missing
from tests.unit.pipeline.logs import SECOND, START, append, open_log

pytest.importorskip("pyarrow")
pytest.importorskip("pyiceberg")
pytest.importorskip("deltalake")
pytest.importorskip("moto", minversion="5.2.2")  # earlier ones mangle what pyarrow uploads
import pyarrow.parquet as pq

from perdure.pipeline.archive_state import load_state
from perdure.pipeline.jobs.archive import Wanted, execute_here
from perdure.pipeline.jobs.archive_runs import ArchivePlan, ArchiveRuns
from perdure.pipeline.jobs.maintain import maintain
from perdure.pipeline.lake.catalogs import catalog_of
from perdure.pipeline.lake.lake import Lake, lake_of
from perdure.pipeline.sinks.opening import open_sink
from perdure.pipeline.tables import parse_table
from tests.support.lake_servers import BUCKET, CREDENTIALS, RestCatalog, S3Server, why_no_catalog

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]

SPECS = (parse_table("devices=d/{device}/+"),)
DAY = 86_400 * SECOND
FAR = 4_000_000_000_000_000
"""After every file that a test makes."""


@pytest.fixture(scope="module")
def store() -> Iterator[S3Server]:
    server = S3Server()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def catalog(store: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestCatalog]:
    why = why_no_catalog()
    if why:
        missing(why)
    server = RestCatalog(tmp_path_factory.mktemp("rest"), store)
    yield server
    server.kill()


@pytest.fixture
def database(tmp_path: Path) -> Iterator[RocksDatabase]:
    opened = open_log(tmp_path / "db")
    yield opened
    opened.close()


def lake(kind: str, store: S3Server, home: Path, **others: Any) -> Lake:
    """A lake of a test's own."""
    given: dict[str, Any] = {"properties": store.properties, "namespace": f"n_{home.name[-24:]}"}
    if kind == "delta":
        given["format"] = "delta"
    elif kind.startswith("http"):
        given |= {"catalog_type": "rest", "catalog_uri": kind}
    else:
        given |= {"catalog_type": "sql", "catalog_uri": f"sqlite:///{home / 'catalog.db'}"}
    settings = TablesConfig(place=f"s3://{BUCKET}/{home.name}", **given, **others)
    return lake_of(settings)


def runs(home: Path, where: Lake, *, execute: Any = execute_here, **others: Any) -> ArchiveRuns:
    others = {"wait": lambda _: pytest.fail("nothing is away"), **others}
    options = ReadOptions(str(home / "db"), rows_per_partition=1_024)
    planned = ArchivePlan(options, where, Wanted(SPECS, learns=False))
    return ArchiveRuns(planned, execute=execute, **others)


def record(database: RocksDatabase, count: int, at: int, *, devices: int = 7) -> list[Message]:
    topics = [f"d/{n % devices}/t" if n % 3 else f"other/{n % 2}" for n in range(count)]
    payloads = [b'{"value": %d}' % n for n in range(count)]
    return append(database, topics, at=at, payloads=payloads)


def rows(where: Lake, table: str) -> list[dict[str, Any]]:
    """The rows of a table, read as someone else would."""
    if where.format == "delta":
        from deltalake import DeltaTable

        from perdure.pipeline.sinks.delta import storage_options

        options = storage_options(where.store)
        found = DeltaTable(f"{where.place}/{table}", storage_options=options).to_pyarrow_table()
    else:
        found = catalog_of(where).load_table((where.namespace, table)).scan().to_arrow()
    return sorted(found.to_pylist(), key=lambda row: row["offset"])


def check(where: Lake, written: list[Message]) -> None:
    """Every message is in its table, once."""
    for table, letter in (("devices", "d"), ("messages", "o")):
        wanted = [(each.offset, each.payload) for each in written if each.topic[0] == letter]
        assert [(row["offset"], row["payload"]) for row in rows(where, table)] == wanted


def test_a_catalog_that_is_away_for_ten_minutes(
    database: RocksDatabase, tmp_path: Path, store: S3Server, catalog: RestCatalog
) -> None:
    where = lake(catalog.url, store, tmp_path)
    waited: list[float] = []
    told: list[str] = []

    def wait(seconds: float) -> bool:
        # Messages come in meanwhile; the catalog is back when ten minutes have been waited for.
        waited.append(seconds)
        if len(waited) % 8 == 1:
            written.extend(record(database, 50, START + len(waited) * SECOND))
        if sum(waited) >= 600 and not catalog.is_reachable():
            catalog.start()
        return False

    def execute(*given: Any) -> Any:
        # The files are written; then there is nobody to commit them to.
        made = execute_here(*given)
        if not waited:
            catalog.kill()
        return made

    job = runs(tmp_path, where, execute=execute, wait=wait, on_away=lambda e: told.append(str(e)))
    written = record(database, 600, START)
    first = job.run_round()
    assert first is not None
    assert sum(waited) >= 600
    assert told
    while not first.is_last:
        first = job.run_round()
        assert first is not None
    check(where, written)
    assert not any(secret in text for text in told for secret in CREDENTIALS)


@pytest.mark.parametrize("kind", ["rest", "sql", "delta"])
def test_stopped_at_every_step(
    kind: str, database: RocksDatabase, tmp_path: Path, store: S3Server, catalog: RestCatalog
) -> None:
    where = lake(catalog.url if kind == "rest" else kind, store, tmp_path)
    written: list[Message] = []
    real = type(where.store).write
    for step in itertools.count(1):
        written += record(database, 30, START + step * SECOND)
        stopped = stop_at(step, runs(tmp_path, where), real)
        if not stopped:
            break
    assert step > 8
    check(where, written)


def stop_at(step: int, job: ArchiveRuns, real: Any) -> bool:
    """Whether a round was cut off: at the n-th call of the sink, or write of the state."""
    left = [step]

    class Stop(BaseException):
        pass

    def counted(call: Any) -> Any:
        def stepped(*given: Any, **named: Any) -> Any:
            left[0] -= 1
            if not left[0]:
                raise Stop
            done = call(*given, **named)
            left[0] -= 1
            if not left[0]:
                raise Stop
            return done

        return stepped

    archive = job._opened()
    sink: Any = job._sink
    for name in ("begin", "position", "commit", "data_directory"):
        call = getattr(sink, name)
        setattr(sink, name, counted(call))
    archive._save = counted(archive._save)  # type: ignore[method-assign]
    try:
        job.run_round()
    except Stop:
        return True
    finally:
        job.close()
    return False


def test_partitions_prune_and_may_change(
    database: RocksDatabase, tmp_path: Path, store: S3Server, catalog: RestCatalog
) -> None:
    divided = {"partition": ("day(published_at)", "bucket(4, device)"), "sort": ("device",)}
    where = lake(catalog.url, store, tmp_path, **divided)
    written: list[Message] = []
    for day in range(3):
        for part in range(2):
            at = START + day * DAY + part * SECOND
            written += record(database, 90, at, devices=20)
            runs(tmp_path, where).run_round()
    check(where, written)

    def planned(row_filter: str) -> int:
        table = catalog_of(where).load_table((where.namespace, "devices"))
        return len(list(table.scan(row_filter=row_filter).plan_files()))

    everything = planned("offset >= 0")
    assert everything == 3 * 2 * 4
    second_day = (
        "published_at >= '2023-11-15T22:00:00+00:00' and published_at < '2023-11-16T00:00:00+00:00'"
    )
    assert planned(second_day) == 2 * 4
    assert planned("device = '7'") == 3 * 2
    assert planned(f"{second_day} and device = '7'") == 2

    # Another spec: files keep theirs, new ones have it, and every row is still there.
    changed = msgspec.structs.replace(where, partition=where.partition[:1])
    written += record(database, 90, START + 3 * DAY, devices=20)
    runs(tmp_path, changed).run_round()
    check(changed, written)
    assert planned("offset >= 0") == everything + 1

    # Put together: each partition of the first spec, then each day; what is left over goes.
    state = load_state(changed.place, changed.store)
    assert state is not None
    left = f"s3://{BUCKET}/warehouse/{where.namespace}/devices/data/left.parquet"
    changed.store.write(left, b"x")
    sink = open_sink(changed, database.format.database_id)
    done = maintain(sink, state.tables[0], before_us=FAR)
    assert (done.files_before, done.files_after) == (everything + 1, 3 * 4 + 1)
    assert done.files_removed >= everything
    done = maintain(sink, state.tables[0], before_us=FAR)
    assert done.files_after == 4
    check(changed, written)
    assert planned(second_day) == planned(f"{second_day} and device = '7'") == 1
    paths = [entry.path for entry in changed.store.walk(f"s3://{BUCKET}/warehouse")]
    assert not any(path.endswith("left.parquet") for path in paths)
    sorted_files = 0
    for file in sink.files("devices"):
        with pq.ParquetFile(changed.store.opened(file.path)) as opened:
            names = opened.read(columns=["device"]).column("device").to_pylist()
        sorted_files += names == sorted(names)
    assert sorted_files == 3  # the last day's came in one, and stays as it was written


def test_what_is_wrong_is_told_without_secrets(
    database: RocksDatabase, tmp_path: Path, store: S3Server
) -> None:
    where = lake("sql", store, tmp_path)
    record(database, 5, START)
    properties = tuple(
        (name, "http://127.0.0.1:9" if name == "s3.endpoint" else value)
        for name, value in (*where.properties, ("s3.connect-timeout", "1"))
    )
    nowhere = msgspec.structs.replace(where, properties=properties)
    with pytest.raises(StorageUnavailable) as caught:
        runs(tmp_path, nowhere).run_round(patience_s=0)
    assert not any(secret in str(caught.value) for secret in CREDENTIALS)
    assert not any(secret in repr(nowhere) + repr(nowhere.store) for secret in CREDENTIALS)
