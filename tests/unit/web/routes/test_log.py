"""Questions about the log over HTTP have the answers that its files give."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.unit.pipeline.logs import SECOND, START, append
from tests.unit.web.asgi import ask

pytest.importorskip("starlette")
from perdure.admin.rights import Principal
from perdure.identity.ledger import Actor
from perdure.pipeline.protocol import (
    CURSORS_PATH,
    LOG_PATH,
    RUNS_PATH,
    BoundQuery,
    Cursors,
    Description,
    SliceQuery,
    Slices,
)
from perdure.storage.cursors import PipelineCursor, load_cursors
from perdure.storage.pipeline_runs import PipelineRun, RunState, load_reports
from perdure.storage.rocksdb import RocksDatabase
from perdure.storage.rocksdb.bulk import LogFiles
from perdure.web.routes.log import BODY_BYTES_MAX

HOUR = 3_600 * SECOND


@pytest.fixture
def filled(database: RocksDatabase) -> RocksDatabase:
    append(database, [f"d/{n % 5}" for n in range(3_000)], at=START)
    database.rotate(START + HOUR)
    append(database, ["x", "$SYS/y"], at=START + 2 * HOUR)
    return database


async def test_an_empty_log(app: Any, database: RocksDatabase) -> None:
    got = msgspec.json.decode((await ask(app, LOG_PATH)).body, type=Description)
    assert got.database_id == database.format.database_id
    assert got.newest is None


async def test_description(app: Any, filled: RocksDatabase) -> None:
    got = msgspec.json.decode((await ask(app, LOG_PATH)).body, type=Description)
    assert got.newest is not None
    assert (got.newest.generation, got.newest.offset) == (2, START + 2 * HOUR + 1_000)
    assert [info.message_count for info in got.generations] == [3_000, 2]


async def test_streams(app: Any, filled: RocksDatabase) -> None:
    got = (await ask(app, f"{LOG_PATH}/streams", query="generation=1")).json
    assert "d/0" in [item["pattern"] for item in got["items"]]
    newest = (await ask(app, f"{LOG_PATH}/streams")).json
    assert {item["generation"] for item in newest["items"]} == {2}
    missing = await ask(app, f"{LOG_PATH}/streams", query="generation=77")
    assert (missing.status, missing.json["message"]) == (404, "there is no generation 77")


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("limit=0", "limit: integer, 1 to 1000"),
        ("limit=1001", "limit: integer, 1 to 1000"),
        ("limit=-1", "limit: expected a whole number, got '-1'"),
        ("limt=5", "unknown parameter 'limt'"),
        ("limit=5&limit=6", "limit is in the query twice"),
    ],
)
async def test_streams_take_what_other_lists_take(
    app: Any, filled: RocksDatabase, query: str, message: str
) -> None:
    got = await ask(app, f"{LOG_PATH}/streams", query=query)
    assert (got.status, got.json["message"]) == (400, message)


async def test_schema(app: Any, database: RocksDatabase) -> None:
    pytest.importorskip("pyarrow")
    got = (await ask(app, f"{LOG_PATH}/schema")).json
    assert got["items"][0] == {"name": "topic", "type": "string", "about": "topic name"}


async def test_slices_and_bound(app: Any, filled: RocksDatabase, tmp_path: Path) -> None:
    files = LogFiles(tmp_path / "db")
    for filters in ((), (("d/1",),), (("$SYS/#",), ("#", "$SYS/y"))):
        query = SliceQuery(filter_sets=filters, after_offset=0, until_offset=2**62, rows_max=1_024)
        got = await ask(app, f"{LOG_PATH}/slices", method="POST", body=query)
        found = msgspec.json.decode(got.body, type=Slices).slices
        assert list(found) == files.slices(filters, 0, 2**62, rows_max=1_024)
        bound = BoundQuery(filter_sets=filters, after_offset=0, until_offset=2**62, rows_max=10)
        told = await ask(app, f"{LOG_PATH}/bound", method="POST", body=bound)
        assert told.json["offset"] == files.bound(filters, 0, 2**62, 10)
    files.close()


async def test_tiny_slices_are_not_made(app: Any, filled: RocksDatabase) -> None:
    query = SliceQuery(after_offset=0, until_offset=2**62, rows_max=1)
    got = await ask(app, f"{LOG_PATH}/slices", method="POST", body=query)
    assert len(got.json["slices"]) <= 5


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 400, "bad_request"),
        (b"{}", 400, "bad_request"),
        (b"[1]", 400, "bad_request"),
        (b'{"x":' + b"[" * 9_999, 400, "bad_request"),
        (b'{"x":"\xff"}', 400, "bad_request"),
        (b'{"after_offset":0,"until_offset":1,"rows_max":1,"x":1}', 400, "bad_request"),
        (
            b'{"after_offset":0,"until_offset":1,"rows_max":1,"filter_sets":[["a/#/b"]]}',
            400,
            "bad_request",
        ),
        (b" " * (BODY_BYTES_MAX + 1), 413, "too_large"),
    ],
)
async def test_bad_queries(
    app: Any, filled: RocksDatabase, body: bytes, status: int, code: str
) -> None:
    got = await ask(app, f"{LOG_PATH}/slices", method="POST", body=body)
    assert (got.status, got.json["code"]) == (status, code)


async def test_a_plain_read(app: Any, filled: RocksDatabase) -> None:
    pytest.importorskip("pyarrow")
    from perdure.pipeline.ipc import read_stream

    async def read(query: str) -> list[dict[str, Any]]:
        got = await ask(app, f"{LOG_PATH}/read", query=query)
        assert got.status == 200, got.body
        return [r for _, batch in read_stream(io.BytesIO(got.body)) for r in batch.to_pylist()]

    assert len(await read("topic=d/%2B")) == 3_000
    assert [row["payload"] for row in await read("where=%7B%22$payload%22:2999%7D")] == [b"2999"]
    assert await read("topic=x&columns=topic,%20qos") == [{"topic": "x", "qos": 1}]
    late = f"from={START + HOUR}&columns=topic"
    assert sorted(row["topic"] for row in await read(late)) == ["$SYS/y", "x"]
    assert await read(f"from={START + 3 * HOUR}") == []
    assert len(await read(f"until={START}")) == 1


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("colour=red", "bad_request"),
        ("path=elsewhere", "bad_request"),
        ("topic=a/%23/b", "config_invalid"),
        ("columns=colour", "config_invalid"),
        ("from=yesterday", "config_invalid"),
        ("where=5", "config_invalid"),
    ],
)
async def test_a_plain_read_that_is_refused(
    app: Any, filled: RocksDatabase, query: str, code: str
) -> None:
    pytest.importorskip("pyarrow")
    got = await ask(app, f"{LOG_PATH}/read", query=query)
    assert (got.status, got.json["code"]) == (400, code)


async def test_a_directory_that_is_gone(app: Any, tmp_path: Path) -> None:
    got = await ask(app, LOG_PATH)
    assert (got.status, got.json["code"]) == (410, "storage_unavailable")


async def test_a_range_that_retention_has_reached_is_refused(
    app: Any, filled: RocksDatabase
) -> None:
    """A view may be forgotten between two questions of one reader."""
    before = msgspec.json.decode((await ask(app, LOG_PATH)).body, type=Description)
    filled.drop_generation(1)
    after, until = before.generations[0].since_offset, START + 3 * HOUR
    oldest = before.generations[0].generation
    for path, query in (
        ("slices", SliceQuery(after_offset=after, until_offset=until, rows_max=9, oldest=oldest)),
        ("bound", BoundQuery(after_offset=after, until_offset=until, rows_max=9, oldest=oldest)),
    ):
        got = await ask(app, f"{LOG_PATH}/{path}", method="POST", body=query)
        assert (got.status, got.json["code"]) == (410, "storage_unavailable")
        anything = msgspec.structs.replace(query, oldest=0)
        assert (await ask(app, f"{LOG_PATH}/{path}", method="POST", body=anything)).status == 200
    behind = msgspec.structs.replace(query, after_offset=START + HOUR)
    assert (await ask(app, f"{LOG_PATH}/bound", method="POST", body=behind)).status == 200


async def test_cursors(app: Any, filled: RocksDatabase, tmp_path: Path) -> None:
    async def keep(**changes: Any) -> tuple[int, str]:
        cursor = PipelineCursor("archive", "/a", filled.format.database_id, START, 1)
        body = msgspec.structs.replace(cursor, **changes)
        got = await ask(app, CURSORS_PATH, method="POST", body=body)
        return got.status, "" if got.status == 200 else got.json["code"]

    assert await keep() == (200, "")
    assert await keep(offset=START + 2 * HOUR + 1_000) == (200, "")
    assert await keep(offset=START + 3 * HOUR) == (400, "bad_request")
    assert await keep(database="other") == (409, "other_database")
    assert await keep(name="../x") == (400, "config_invalid")
    assert await keep(place="") == (400, "config_invalid")
    got = await ask(app, CURSORS_PATH, method="POST", body=b"{}")
    assert got.status == 400
    found, broken = load_cursors(tmp_path / "db")
    assert [(each.name, each.offset) for each in found] == [("archive", START + 2 * HOUR + 1_000)]
    assert broken == []
    listed = msgspec.json.decode((await ask(app, CURSORS_PATH)).body, type=Cursors)
    assert list(listed.items) == found


async def test_how_the_jobs_of_a_pipeline_are_going(
    app: Any, filled: RocksDatabase, tmp_path: Path
) -> None:
    run = PipelineRun("archive", "host:/a", RunState(holder="host:1", rows=7))
    got = await ask(app, RUNS_PATH, method="POST", body=run)
    assert got.status == 200
    assert load_reports(tmp_path / "db") == [run]
    for wrong in (
        msgspec.structs.replace(run, name="../x"),
        msgspec.structs.replace(run, state=RunState(holder="x" * 501)),
    ):
        assert (await ask(app, RUNS_PATH, method="POST", body=wrong)).status == 400


async def test_a_key_for_some_topics_reads_those_alone(
    app: Any, context: Any, filled: RocksDatabase
) -> None:
    pytest.importorskip("pyarrow")
    from perdure.pipeline.ipc import read_stream
    from perdure.pipeline.protocol import Bound, RowQuery

    append(filled, [f"d/{n % 9}" for n in range(90)] + ["$SYS/y"], at=START + 3 * HOUR)
    maker = Actor(Principal("root", "admin", source="socket"))
    _, secret = context.identity.keys.add("x", "viewer", maker, topic_filters=("d/1", "e/+"))

    async def narrow(path: str, **request: Any) -> Any:
        got = await ask(app, path, token=secret, **request)
        assert got.status == 200, got.body
        return got

    def topics(body: bytes) -> set[str]:
        found = [batch.column("topic") for _, batch in read_stream(io.BytesIO(body))]
        return {topic for column in found for topic in column.to_pylist()}

    everything = {"after_offset": 0, "until_offset": START + 4 * HOUR}
    slices = SliceQuery(rows_max=10_000, **everything)
    cut = (await narrow(f"{LOG_PATH}/slices", method="POST", body=slices)).body
    # Slices of somebody else's, who may have all, are as narrow.
    wide = (await ask(app, f"{LOG_PATH}/slices", method="POST", body=slices)).body
    for each in (cut, wide):
        chosen = msgspec.json.decode(each, type=Slices).slices
        for filter_sets in ((), (("#",),), (("$SYS/#", "d/+"),)):
            query = RowQuery(slices=chosen, columns=("topic",), filter_sets=filter_sets)
            read = await narrow(f"{LOG_PATH}/read", method="POST", body=query)
            assert topics(read.body) == {"d/1"}
    assert topics((await narrow(f"{LOG_PATH}/read", query="columns=topic")).body) == {"d/1"}
    other = await narrow(f"{LOG_PATH}/read", query="columns=topic&topic=d/2")
    assert topics(other.body) == set()
    bound = BoundQuery(rows_max=5, **everything)
    mine = (await narrow(f"{LOG_PATH}/bound", method="POST", body=bound)).body
    theirs = (await ask(app, f"{LOG_PATH}/bound", method="POST", body=bound)).body
    ends = [msgspec.json.decode(each, type=Bound).offset for each in (mine, theirs)]
    assert ends[0] > ends[1]
    streams = (await narrow(f"{LOG_PATH}/streams", query="generation=1")).json["items"]
    # What it has learned of those topics; d/0 has a structure of its own.
    assert {item["pattern"] for item in streams} == {"d/1", "d/+"}
    assert (await ask(app, CURSORS_PATH, token=secret)).status == 403
    assert (await ask(app, RUNS_PATH, method="POST", token=secret)).status == 403
