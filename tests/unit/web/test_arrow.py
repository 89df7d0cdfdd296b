"""Reads: rows equal those of the directory, turns are kept, a client may leave."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.unit.pipeline.logs import START, append
from tests.unit.web.asgi import ask

pytest.importorskip("starlette")
pytest.importorskip("pyarrow")
from perdure.pipeline.ipc import RemoteProblem, read_stream
from perdure.pipeline.log_source import scan
from perdure.pipeline.protocol import LOG_PATH, RowQuery
from perdure.pipeline.schema import BY_NAME
from perdure.storage.rocksdb import RocksDatabase
from perdure.storage.rocksdb.bulk import LogFiles
from perdure.storage.rocksdb.bulk_slices import Slice
from perdure.web import arrow

READ = f"{LOG_PATH}/read"
COLUMNS = tuple(BY_NAME)


def everything(path: Path, **others: Any) -> RowQuery:
    files = LogFiles(path)
    slices = tuple(files.slices((), 0, 2**62, rows_max=1_000))
    files.close()
    return RowQuery(slices=slices, columns=COLUMNS, **others)


def rows(body: bytes) -> list[dict[str, Any]]:
    return [row for _, batch in read_stream(io.BytesIO(body)) for row in batch.to_pylist()]


def fill(database: RocksDatabase, count: int = 4_000) -> None:
    append(database, [f"d/{n % 7}/{n % 3}" for n in range(count)] + ["$SYS/x", "d"], at=START)


async def test_rows_are_those_of_the_directory(
    app: Any, database: RocksDatabase, tmp_path: Path
) -> None:
    fill(database)
    query = everything(tmp_path / "db")
    got = await ask(app, READ, method="POST", body=query)
    assert got.status == 200
    assert got.is_complete
    assert got.headers["content-type"] == "application/vnd.apache.arrow.stream"
    assert "content-length" not in got.headers
    files = LogFiles(tmp_path / "db")
    expected = [row for _, batch in scan(files, query) for row in batch.to_pylist()]
    files.close()
    assert len(expected) == 4_002
    assert rows(got.body) == expected


async def test_a_read_goes_on_at_any_position(
    app: Any, database: RocksDatabase, tmp_path: Path
) -> None:
    fill(database)
    whole = rows((await ask(app, READ, method="POST", body=everything(tmp_path / "db"))).body)
    for position in (0, 1, 999, 1_700, 4_001, 4_002, 9_999):
        query = everything(tmp_path / "db", position=position, compression="lz4")
        got = await ask(app, READ, method="POST", body=query)
        assert rows(got.body) == whole[position:]


async def test_what_cannot_be_read_is_refused_before_it_begins(
    app: Any, context: Any, database: RocksDatabase, tmp_path: Path
) -> None:
    fill(database, 10)
    gone = Slice(9, 0, 2**62, 1)
    for query, status, code in (
        (everything(tmp_path / "db", database_id="other"), 409, "other_database"),
        (RowQuery(slices=(gone,), columns=("topic",)), 410, "storage_unavailable"),
        (RowQuery(slices=(), columns=("colour",)), 400, "config_invalid"),
        (everything(tmp_path / "db", compression="rar"), 400, "bad_request"),
    ):
        got = await ask(app, READ, method="POST", body=query)
        assert (got.status, got.json["code"]) == (status, code)
    # No turn was lost.
    assert context.reads._value == 2


async def test_an_error_within_the_stream_is_its_end(
    app: Any, database: RocksDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from perdure.errors import StorageCorrupt
    from perdure.pipeline import log_source

    fill(database, 10)
    decode = log_source.decode_page
    calls = [0]

    def failing(*arguments: Any, **others: Any) -> Any:
        calls[0] += 1
        if calls[0] == 1:
            return decode(*arguments, **others)
        raise StorageCorrupt("torn")

    monkeypatch.setattr(log_source, "decode_page", failing)
    slices = everything(tmp_path / "db").slices
    query = RowQuery(slices=slices * 2, columns=("topic",))
    sent: list[bytes] = []
    with pytest.raises(StorageCorrupt, match="torn"):
        # The server cuts the connection then: to a reader that knows nothing of ours, an answer
        # that has an end would be all there is.
        await ask(app, READ, method="POST", body=query, sent=sent)
    with pytest.raises(RemoteProblem) as caught:
        rows(b"".join(sent))
    assert caught.value.problem.code == "storage_corrupt"


async def test_reads_wait_for_their_turn(
    app: Any,
    context: Any,
    database: RocksDatabase,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fill(database, 10)
    query = everything(tmp_path / "db")
    await context.reads.acquire()
    await context.reads.acquire()
    waiting = asyncio.create_task(ask(app, READ, method="POST", body=query))
    await asyncio.sleep(0)
    assert not waiting.done()
    context.reads.release()
    assert (await waiting).status == 200
    await context.reads.acquire()
    monkeypatch.setattr(arrow, "TURN_WAIT_S", 0.01)
    got = await ask(app, READ, method="POST", body=query)
    assert (got.status, got.json["code"]) == (503, "busy")
    assert got.headers["retry-after"] == "1"
    context.reads.release()
    context.reads.release()


async def test_a_client_that_leaves_is_let_go(
    app: Any, context: Any, database: RocksDatabase, tmp_path: Path
) -> None:
    fill(database, 40_000)
    got = await ask(
        app, READ, method="POST", body=everything(tmp_path / "db", view="v"), leave_after=1
    )
    assert not got.is_complete
    assert context.reads._value == 2
    assert [view.users for view in context.views._views.values()] == [0]


async def test_a_client_that_takes_nothing_is_cut_off(
    app: Any,
    context: Any,
    database: RocksDatabase,
    tmp_path: Path,
) -> None:
    fill(database, 10)
    context.settings = msgspec.structs.replace(context.settings, send_timeout_s=0.01)
    query = everything(tmp_path / "db")
    response = await arrow.stream_rows(context, query)
    stuck = asyncio.Event()

    async def receive() -> Any:
        await stuck.wait()

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            await stuck.wait()

    with pytest.raises(TimeoutError):
        await response({"type": "http"}, receive, send)
    assert context.reads._value == 2
