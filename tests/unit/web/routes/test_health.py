"""What load balancers ask."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.admin.records.node import Stats
from tests.unit.server.administration.fake_service import stats
from tests.unit.web.asgi import ask

pytest.importorskip("starlette")
from perdure.pipeline.protocol import API


@pytest.mark.parametrize(
    ("found", "live", "ready"),
    [
        (None, 503, 503),
        (stats("failed"), 200, 503),
        (stats("ok", phase="starting"), 200, 503),
        (stats("ok", phase="stopping"), 200, 503),
        (stats("ok"), 200, 200),
    ],
)
async def test_health(app: Any, context: Any, found: Stats | None, live: int, ready: int) -> None:
    async def told() -> Stats | None:
        return found

    context.health.stats = told
    assert (await ask(app, f"{API}/livez", token=None)).status == live
    got = await ask(app, f"{API}/readyz", token=None)
    assert got.status == ready
    assert got.json.get("code", "ok") == ("ok" if ready == 200 else "not_ready")


async def test_error_codes(app: Any) -> None:
    got = await ask(app, f"{API}/error-codes", token=None)
    statuses = {item["code"]: item["status"] for item in got.json["items"]}
    assert (statuses["unauthorized"], statuses["storage_unavailable"]) == (401, 410)
    assert all(item["meaning"] for item in got.json["items"])


async def test_version(app: Any) -> None:
    got = await ask(app, f"{API}/version", token=None)
    assert got.json == {"product": "perdure", "version": "1.2.3", "api": 1}
