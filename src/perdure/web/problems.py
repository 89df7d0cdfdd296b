"""Answers that are errors: one JSON object, with codes that never change.

Invariant: whatever goes wrong, a client is answered with a ``Problem`` and a request id that
stands in the log, and nothing of a traceback.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

import msgspec
from starlette.responses import Response

from perdure.errors import (
    ConfigError,
    FormatTooNew,
    PerdureError,
    StorageCorrupt,
    StorageUnavailable,
)
from perdure.pipeline.protocol import Problem, problem_of

CODES: Final[Mapping[str, int]] = {
    "bad_request": 400,
    "unauthorized": 401,
    "not_found": 404,
    "method_not_allowed": 405,
    "other_database": 409,
    "timeout": 408,
    "too_large": 413,
    "head_too_large": 431,
    "internal": 500,
    "arrow_missing": 501,
    "busy": 503,
    "not_ready": 503,
}
"""Codes of this room and their statuses."""

_BUSY_RETRY_S: Final = 1


@final
class ApiError(PerdureError):
    """A request that is refused.

    Args:
        code: one of ``CODES``.
        message: one sentence.
        hint: what to do, or empty.
    """

    def __init__(self, code: str, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.status = CODES[code]
        self.problem_code = code


_OTHERS: Final[Mapping[type[PerdureError], int]] = {
    ConfigError: 400,
    # What was asked for was there and has been dropped, or cannot be read.
    StorageUnavailable: 410,
    StorageCorrupt: 500,
    FormatTooNew: 501,
}
"""Errors of rooms below that reach a client, and their statuses."""


def codes() -> dict[str, int]:
    """Every code that a client may be told, with its status."""
    return {**CODES, **{kind.code: status for kind, status in _OTHERS.items()}}


def as_problem(error: PerdureError) -> tuple[int, Problem]:
    """Status and body for an error of ours."""
    if isinstance(error, ApiError):
        return error.status, problem_of(error.problem_code, error.message, error.hint)
    status = _OTHERS.get(type(error))
    if status is None:
        return CODES["internal"], Problem("internal", error.message)
    return status, problem_of(error.code, error.message, error.hint)


def answer(status: int, problem: Problem) -> Response:
    """A problem as a response."""
    headers = {"Cache-Control": "no-store"}
    if status == CODES["unauthorized"]:
        headers["WWW-Authenticate"] = 'Bearer realm="perdure"'
    if status == CODES["busy"]:
        headers["Retry-After"] = str(_BUSY_RETRY_S)
    return Response(
        msgspec.json.encode(problem), status, headers=headers, media_type="application/json"
    )
