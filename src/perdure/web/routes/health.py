"""``/livez``, ``/readyz``, ``/version`` and ``/error-codes``: answered without a token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from perdure.pipeline.protocol import API, API_VERSION, PRODUCT
from perdure.web.context import Context
from perdure.web.problems import ApiError, codes


def json_response(body: Mapping[str, Any] | msgspec.Struct) -> Response:
    """A body that must not be kept by anybody on the way."""
    return Response(
        msgspec.json.encode(body),
        headers={"Cache-Control": "no-store"},
        media_type="application/json",
    )


def routes(context: Context) -> list[Route]:
    """The routes of this file."""

    async def livez(_request: Request) -> Response:
        if await context.health.stats() is None:
            raise ApiError("not_ready", "the broker does not answer")
        return json_response({"status": "ok"})

    async def readyz(_request: Request) -> Response:
        stats = await context.health.stats()
        if stats is None:
            raise ApiError("not_ready", "the broker does not answer")
        if stats.get("storage") != "ok":
            raise ApiError("not_ready", "the storage does not take messages")
        return json_response({"status": "ok"})

    async def version(_request: Request) -> Response:
        return json_response(
            {"product": PRODUCT, "version": context.settings.version, "api": API_VERSION}
        )

    async def error_codes(_request: Request) -> Response:
        items = [{"code": code, "status": status} for code, status in sorted(codes().items())]
        return json_response({"items": items, "next_cursor": None})

    return [
        Route(f"{API}/error-codes", error_codes),
        Route(f"{API}/livez", livez),
        Route(f"{API}/readyz", readyz),
        Route(f"{API}/version", version),
    ]
