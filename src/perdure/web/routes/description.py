"""``/openapi.json``: what this process serves, made of the same table as its routes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from perdure.admin.openapi import document
from perdure.admin.table import OPERATIONS
from perdure.pipeline.protocol import API, LOG_PATH
from perdure.web.context import Context
from perdure.web.problems import codes
from perdure.web.routing import WebRoute

_OBJECT: Final = {"type": "object", "additionalProperties": True}
_LOG: Final = LOG_PATH.removeprefix(API)
_PROBLEM: Final = {"$ref": "#/components/schemas/Problem"}


def path_item(
    method: str,
    name: str,
    summary: str,
    *,
    tag: str,
    right: str = "",
    content: str = "application/json",
    parameters: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """A path that is not an operation of the table.

    Args:
        method: in lower case.
        name: of the operation, for generated clients.
        summary: one line.
        tag: its group.
        right: the role that it needs; empty = everybody may.
        content: type of the answer.
        parameters: numbers in the query, by name, and what each says.
    """
    schema = _OBJECT if content == "application/json" else {"type": "string"}
    found: dict[str, Any] = {
        "operationId": name,
        "summary": summary,
        "tags": [tag],
        "responses": {
            "200": {"description": "Done.", "content": {content: {"schema": schema}}},
            "default": {
                "description": "Refused.",
                "content": {"application/json": {"schema": _PROBLEM}},
            },
        },
    }
    if parameters:
        found["parameters"] = [
            {
                "name": each,
                "in": "query",
                "required": False,
                "schema": {"type": "integer", "minimum": 0},
                "description": about,
            }
            for each, about in parameters.items()
        ]
    if right:
        found["x-right"] = right
    else:
        found["security"] = []
    return {method: found}


OTHERS: Final[dict[str, dict[str, Any]]] = {
    "/status": path_item("get", "status", "Whether the broker takes messages", tag="health"),
    "/livez": path_item("get", "livez", "200 while the broker answers", tag="health"),
    "/readyz": path_item("get", "readyz", "200 while it takes messages", tag="health"),
    "/version": path_item("get", "version", "Product and release", tag="health"),
    "/error-codes": path_item("get", "error_codes", "All codes of problems", tag="health"),
    "/metrics": path_item(
        "get", "metrics", "All counters", tag="stats", right="viewer", content="text/plain"
    ),
    "/setup": path_item("post", "setup", "The first user, with the link of the start", tag="login"),
    "/login": path_item("post", "login", "Log in: a cookie and its CSRF token", tag="login"),
    "/logout": path_item("post", "logout", "Log out", tag="login", right="viewer"),
    "/me": path_item("get", "me", "Who asks", tag="login", right="viewer"),
    "/live": path_item(
        "get",
        "live",
        "Numbers and events as they come (SSE)",
        tag="stats",
        right="viewer",
        content="text/event-stream",
    ),
    _LOG: path_item(
        "get",
        "storage_show",
        "Which database, how far it reaches, its generations",
        tag="storage",
        right="viewer",
    ),
    f"{_LOG}/streams": path_item(
        "get",
        "storage_streams",
        "Learned structures of topics in a generation",
        tag="storage",
        right="viewer",
        parameters={
            "generation": "its number; 0 = the newest",
            "limit": "streams of a page, 1 to 1000",
            "cursor": "`next_cursor` of the page before",
        },
    ),
    f"{_LOG}/schema": path_item(
        "get", "storage_schema", "Columns of a recorded message", tag="storage", right="viewer"
    ),
    f"{_LOG}/cursors": path_item(
        "get", "storage_cursors", "How far pipelines have read", tag="storage", right="viewer"
    ),
}
"""Paths of this room; ``make_document`` takes those of others."""


def make_document(version: str, others: Mapping[str, Any] = OTHERS) -> dict[str, Any]:
    """The document of a release."""
    return document(OPERATIONS.values(), version=version, codes=codes(), others=others)


def routes(context: Context) -> list[WebRoute]:
    """The routes of this file."""
    made = msgspec.json.format(msgspec.json.encode(make_document(context.settings.version)))

    async def openapi(_request: Request) -> Response:
        return Response(made, media_type="application/json")

    return [WebRoute(method="GET", path=f"{API}/openapi.json", endpoint=openapi, right=None)]
