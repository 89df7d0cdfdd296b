"""The operations of the table, each at its route: the request from path, query and body, the
result of the broker as it is.

The broker judges the request, the right and the audit; here are only the forms of HTTP.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from perdure.admin.described import result_fields, unfit
from perdure.admin.openapi import HEADERS, IN_QUERY
from perdure.admin.operation import Operation
from perdure.admin.table import OPERATIONS
from perdure.admin.wire import REQUEST_BYTES_MAX, decode_given
from perdure.pipeline.protocol import API
from perdure.web.bodies import read_query
from perdure.web.context import Context
from perdure.web.pace import ChangePace
from perdure.web.principals import principal_of
from perdure.web.problems import ApiError
from perdure.web.routing import WebRoute

BODY_BYTES_MAX: Final = REQUEST_BYTES_MAX - 64 * 1024
"""A request in the line on the admin socket has a principal beside it."""

FIELDS_MAX: Final = 64
"""Names in ``?fields=``."""


def routes(context: Context) -> list[WebRoute]:
    """A route for each operation that has one."""
    pace = ChangePace()
    return [
        WebRoute(
            method=operation.http.method,
            path=f"{API}{operation.http.path}",
            endpoint=_endpoint(context, operation, pace),
            right=operation.right,
            operation=operation.name,
            broker_decides=True,
        )
        for operation in OPERATIONS.values()
        if operation.http is not None
    ]


def _endpoint(
    context: Context, operation: Operation, pace: ChangePace
) -> Callable[[Request], Awaitable[Response]]:
    assert operation.http is not None
    in_query, status = operation.http.method in IN_QUERY, operation.http.status
    known = result_fields(operation)

    async def endpoint(request: Request) -> Response:
        principal = principal_of(request)
        if operation.changes:
            pace.take(principal.name)
        fields: dict[str, Any] = {} if in_query else await _body(request)
        query = read_query(request)
        wanted = _wanted(query.pop("fields", ""), known)
        if in_query:
            fields.update(query)
        elif query:
            raise ApiError("bad_request", f"no {next(iter(query))} in the query: it is in the body")
        fields.update(request.path_params)
        _take_headers(request, operation, fields)
        try:
            made = msgspec.convert(fields, operation.request, strict=not in_query)
        except msgspec.ValidationError as error:
            raise unfit(operation, error) from error
        result = await context.admin.ask(
            operation.name,
            msgspec.json.encode(made),
            principal,
            request.scope["state"]["request_id"],
        )
        return _response(request, operation, result, wanted, status)

    return endpoint


def _take_headers(request: Request, operation: Operation, fields: dict[str, Any]) -> None:
    """What is in a header over HTTP is a field of the request."""
    names = operation.request.__struct_fields__
    for field, header in HEADERS.items():
        value = request.headers.get(header)
        if value is not None and field in names:
            fields[field] = _revision(value) if field == "if_match" else value.strip('"')


class _Revised(msgspec.Struct):
    """A record that is changed by what was read of it."""

    revision: str


def _revision(value: str) -> str:
    """The revision in ``If-Match``: the header's is an ETag of ours, or the revision alone.

    Raises:
        ApiError: it is neither.
    """
    tag = value.strip()
    if tag.startswith("W/") or "," in tag:
        raise ApiError("bad_request", "If-Match takes one ETag, as it was sent")
    return tag.strip('"').rpartition("-")[2]


def _response(
    request: Request, operation: Operation, result: bytes, wanted: list[str], status: int
) -> Response:
    """The result as it is, or the fields of it that are wanted; 304 if the client has it.

    The ETag has the record's revision behind the digest of the answer: what was read may change
    while nobody edits it.
    """
    revision = ""
    if "revision" in operation.result.__struct_fields__:
        revision = f"-{msgspec.json.decode(result, type=_Revised).revision}"
    if wanted:
        result = _only(result, wanted)
    headers = {"Cache-Control": "no-store"}
    if request.method in ("GET", "HEAD"):
        tag = f'"{hashlib.blake2b(result, digest_size=12).hexdigest()}{revision}"'
        headers["ETag"] = tag
        if request.headers.get("if-none-match") == tag:
            return Response(b"", 304, headers=headers)
    return Response(result, status, headers=headers, media_type="application/json")


def _wanted(text: str, known: frozenset[str]) -> list[str]:
    """The names in ``?fields=``, of those that there are; none = all."""
    names = [name for name in text.split(",") if name]
    if len(names) > FIELDS_MAX:
        raise ApiError("bad_request", f"fields names {FIELDS_MAX} fields at most")
    for name in names:
        if known and name not in known:
            raise ApiError(
                "bad_request",
                f"no field {name[:100]!r}",
                hint=f"fields: {', '.join(sorted(known))}",
            )
    return names


def _only(result: bytes, names: list[str]) -> bytes:
    """The named fields of a record, or of each item of a list."""
    record = msgspec.json.decode(result)
    if isinstance(record, dict) and isinstance(record.get("items"), list):
        record["items"] = [_pick(item, names) for item in record["items"]]
        return msgspec.json.encode(record)
    return msgspec.json.encode(_pick(record, names))


def _pick(item: Any, names: list[str]) -> Any:
    return {name: item[name] for name in names if name in item} if isinstance(item, dict) else item


async def _body(request: Request) -> dict[str, Any]:
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > BODY_BYTES_MAX:
            raise ApiError("too_large", f"a body has at most {BODY_BYTES_MAX} bytes")
    if not body:
        return {}
    try:
        return decode_given(bytes(body), dict[str, Any])
    except ValueError as error:
        raise ApiError("bad_request", f"the body: {error}") from error
