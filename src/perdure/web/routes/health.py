"""``/livez``, ``/readyz``, ``/status``, ``/version``, ``/error-codes``: answered to everybody."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from perdure.pipeline.protocol import API, API_VERSION, PRODUCT
from perdure.web.context import Context
from perdure.web.problems import ApiError, codes
from perdure.web.routing import WebRoute


def json_response(body: Mapping[str, Any] | msgspec.Struct) -> Response:
    """A body that must not be kept by anybody on the way."""
    return Response(
        msgspec.json.encode(body),
        headers={"Cache-Control": "no-store"},
        media_type="application/json",
    )


def routes(context: Context) -> list[WebRoute]:
    """The routes of this file."""

    async def livez(_request: Request) -> Response:
        if await context.health.stats() is None:
            raise ApiError("not_ready", "the broker does not answer")
        return json_response({"status": "ok"})

    async def readyz(_request: Request) -> Response:
        stats = await context.health.stats()
        if stats is None:
            raise ApiError("not_ready", "the broker does not answer")
        if stats.phase != "serving":
            raise ApiError("not_ready", "the broker does not take clients: it starts or stops")
        if stats.storage != "ok":
            raise ApiError("not_ready", "the storage does not take messages")
        return json_response({"status": "ok"})

    async def version(_request: Request) -> Response:
        return json_response(
            {"product": PRODUCT, "version": context.settings.version, "api": API_VERSION}
        )

    async def error_codes(_request: Request) -> Response:
        items = [
            {"code": code, "status": found.status, "meaning": found.meaning}
            for code, found in sorted(codes().items())
        ]
        return json_response({"items": items, "next_cursor": None})

    async def status(_request: Request) -> Response:
        stats = await context.health.stats()
        storage = "unknown" if stats is None else stats.storage
        ok = storage == "ok"
        return json_response({"status": "ok" if ok else "not_ready", "storage": storage})

    endpoints = {
        "error-codes": error_codes,
        "livez": livez,
        "readyz": readyz,
        "status": status,
        "version": version,
    }
    return [
        WebRoute(method="GET", path=f"{API}/{name}", endpoint=endpoint, right=None)
        for name, endpoint in endpoints.items()
    ]
