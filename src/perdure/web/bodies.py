"""Small bodies of requests, and their queries."""

from __future__ import annotations

from typing import Final, TypeVar
from urllib.parse import parse_qsl

from starlette.requests import Request

from perdure.admin.wire import decode_given
from perdure.web.problems import ApiError

FORM_BYTES_MAX: Final = 64 * 1024
FIELDS_MAX: Final = 600

T = TypeVar("T")


async def read_bounded(request: Request, bytes_max: int = FORM_BYTES_MAX) -> bytes:
    """The body.

    Raises:
        ApiError: it is longer than ``bytes_max``.
    """
    parts = bytearray()
    async for part in request.stream():
        parts += part
        if len(parts) > bytes_max:
            raise ApiError("too_large", f"a body has at most {bytes_max} bytes here")
    return bytes(parts)


def read_query(request: Request) -> dict[str, str]:
    """The query.

    Raises:
        ApiError: a name comes twice: nobody can say which is meant.
    """
    found: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name in found:
            raise ApiError("bad_request", f"{name[:100]} is in the query twice")
        found[name] = value
    return found


async def read_form(request: Request) -> list[tuple[str, str]]:
    """The fields of a form, as they came.

    Raises:
        ApiError: it is none, or too long.
    """
    body = await read_bounded(request)
    try:
        return parse_qsl(
            body.decode(), keep_blank_values=True, max_num_fields=FIELDS_MAX, errors="strict"
        )
    except ValueError as error:
        raise ApiError("bad_request", "the body is no form") from error


async def read_json(request: Request, kind: type[T]) -> T:
    """A record of a body.

    Raises:
        ApiError: it is none.
    """
    try:
        return decode_given(await read_bounded(request), kind)
    except ValueError as error:
        raise ApiError("bad_request", f"the body: {error}") from error
