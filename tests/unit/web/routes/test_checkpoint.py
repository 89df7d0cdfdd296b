"""``/cluster/checkpoint``: for administrators, one at a time, and nothing is left of it."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path
from typing import Any

import pytest

from perdure.backup.fetching import PATH
from perdure.backup.stream import take_stream
from perdure.config.schema import RocksdbConfig
from perdure.storage.rocksdb import RocksDatabase
from tests.contract.values import append_all, message
from tests.unit.web.asgi import ask

pytest.importorskip("starlette")


async def test_what_is_sent_is_a_data_directory(
    app: Any, database: RocksDatabase, tmp_path: Path
) -> None:
    append_all(database, *(message(f"t/{number}", b"x" * 5_000) for number in range(500)))
    answer = await ask(app, PATH)
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/x-tar"
    assert answer.is_complete
    manifest = take_stream(io.BytesIO(answer.body), tmp_path / "to", config=RocksdbConfig())
    assert manifest.position == database.last_offset
    assert not (tmp_path / "db" / "checkpoints").exists()


async def test_who_may_not(app: Any, database: RocksDatabase) -> None:
    assert (await ask(app, PATH, token=None)).status == 401
    assert (await ask(app, PATH, token="y" * 40)).status == 401
    assert (await ask(app, PATH, method="POST")).status == 405


async def test_one_at_a_time_and_a_client_that_goes_away(
    app: Any, database: RocksDatabase, tmp_path: Path
) -> None:
    append_all(database, *(message(f"t/{number}", b"x" * 5_000) for number in range(500)))
    both = await asyncio.gather(ask(app, PATH), ask(app, PATH))
    assert sorted(answer.status for answer in both) == [200, 503]
    left = await ask(app, PATH, leave_after=1)
    assert not left.is_complete
    assert not (tmp_path / "db" / "checkpoints").exists()
    assert (await ask(app, PATH)).status == 200


async def test_a_directory_without_a_database(app: Any, tmp_path: Path) -> None:
    answer = await ask(app, PATH)
    assert answer.status == 410
    assert "no database" in answer.json["message"]
    # The turn was given back.
    assert (await ask(app, PATH)).status == 410
