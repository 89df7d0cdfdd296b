"""A log, and the application that serves it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from perdure.identity.service import Identity
from perdure.storage.rocksdb import RocksDatabase
from perdure.web.settings import WebSettings
from tests.unit.pipeline.logs import open_log
from tests.unit.web.asgi import TOKEN


@pytest.fixture
def database(tmp_path: Path) -> Iterator[RocksDatabase]:
    opened = open_log(tmp_path / "db")
    yield opened
    opened.close()


@pytest_asyncio.fixture
async def context(tmp_path: Path) -> AsyncIterator[Any]:
    pytest.importorskip("starlette")
    from perdure.web.context import Context

    (tmp_path / "tokens").write_text(f"# comment\n\n{TOKEN}\n")
    (tmp_path / "db").mkdir(exist_ok=True)
    settings = WebSettings(
        data=str(tmp_path / "db"),
        token_file=str(tmp_path / "tokens"),
        sockets=(),
        version="1.2.3",
        reads_max=2,
        page_bytes=64 * 1024,
    )
    told: list[dict[str, Any]] = []
    identity = await Identity.open(tmp_path / "db")
    made = Context(
        settings, identity, lambda event, **fields: told.append({"event": event, **fields})
    )
    made.told = told  # type: ignore[attr-defined]
    yield made
    made.close()
    await identity.close()


@pytest_asyncio.fixture
async def app(context: Any) -> Any:
    from perdure.web.app import make_app

    return make_app(context)
