"""What load balancers ask."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.web.asgi import ask

pytest.importorskip("starlette")
from perdure.pipeline.protocol import API


@pytest.mark.parametrize(
    ("stats", "live", "ready"),
    [(None, 503, 503), ({"storage": "failed"}, 200, 503), ({"storage": "ok"}, 200, 200)],
)
async def test_health(
    app: Any, context: Any, stats: dict[str, str] | None, live: int, ready: int
) -> None:
    async def told() -> dict[str, str] | None:
        return stats

    context.health.stats = told
    assert (await ask(app, f"{API}/livez", token=None)).status == live
    got = await ask(app, f"{API}/readyz", token=None)
    assert got.status == ready
    assert got.json.get("code", "ok") == ("ok" if ready == 200 else "not_ready")


async def test_error_codes(app: Any) -> None:
    got = await ask(app, f"{API}/error-codes", token=None)
    assert {"code": "unauthorized", "status": 401} in got.json["items"]
    assert {"code": "storage_unavailable", "status": 410} in got.json["items"]


async def test_version(app: Any) -> None:
    got = await ask(app, f"{API}/version", token=None)
    assert got.json == {"product": "perdure", "version": "1.2.3", "api": 1}
