"""Answers that are errors: one JSON object, with codes that never change.

Invariant: whatever goes wrong, a client is answered with a ``Problem`` and a request id that
stands in the log, and nothing of a traceback.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, final

import msgspec
from starlette.responses import Response

from perdure.admin import problems as admin_problems
from perdure.admin.problems import Code
from perdure.errors import (
    ConfigError,
    FormatTooNew,
    PerdureError,
    StorageCorrupt,
    StorageUnavailable,
)
from perdure.pipeline.protocol import Problem, problem_of

_OWN: Final[Mapping[str, Code]] = {
    "method_not_allowed": Code(405, "there is such a resource, and not with this method"),
    "timeout": Code(408, "the request did not come in time"),
    "other_database": Code(409, "the data directory holds another database than was asked for"),
    "head_too_large": Code(431, "request line and headers are too long"),
    "arrow_missing": Code(501, "this installation cannot write Arrow streams"),
    "not_ready": Code(503, "the broker does not answer, or takes no messages"),
}
"""Codes of this room."""

CODES: Final[Mapping[str, int]] = {
    code: found.status for code, found in (*admin_problems.CODES.items(), *_OWN.items())
}
"""Every code of the API and its status."""

_BUSY_RETRY_S: Final = 1
_RETRIED: Final = frozenset({CODES["busy"], CODES["too_many_requests"]})


@final
class ApiError(PerdureError):
    """A request that is refused.

    Args:
        code: one of ``CODES``.
        message: one sentence.
        hint: what to do, or empty.
        allow: methods that there are (405).
    """

    def __init__(
        self, code: str, message: str, *, hint: str = "", allow: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message, hint=hint)
        self.allow = allow
        self.status = CODES[code]
        self.problem_code = code


_OTHERS: Final[Mapping[type[PerdureError], Code]] = {
    ConfigError: Code(400, "a value cannot be used"),
    StorageUnavailable: Code(
        410, "what was asked for was dropped; with 503, the broker's store fails"
    ),
    StorageCorrupt: Code(500, "the store holds what it cannot read"),
    FormatTooNew: Code(501, "the store was written by a newer release"),
}
"""Errors of rooms below that reach a client when this process reads the log itself."""


def codes() -> dict[str, Code]:
    """Every code that a client may be told."""
    return {
        **admin_problems.CODES,
        **_OWN,
        **{kind.code: found for kind, found in _OTHERS.items()},
    }


def as_problem(error: PerdureError) -> tuple[int, Problem]:
    """Status and body for an error of ours."""
    if isinstance(error, ApiError):
        return error.status, problem_of(error.problem_code, error.message, error.hint)
    if isinstance(error, admin_problems.Refused):
        found = error.problem
        details = {"hint": found.hint, **found.details} if found.hint else found.details
        return CODES.get(found.code, 500), Problem(found.code, found.message, details)
    known = _OTHERS.get(type(error))
    if known is None:
        return CODES["internal"], Problem("internal", error.message)
    return known.status, problem_of(error.code, error.message, error.hint)


def answer(status: int, problem: Problem, *, allow: Sequence[str] = ()) -> Response:
    """A problem as a response.

    Args:
        status: of HTTP.
        problem: its body.
        allow: methods that there are, which a 405 has to tell (RFC 9110, 15.5.6).
    """
    headers = {"Cache-Control": "no-store"}
    if allow:
        headers["Allow"] = ", ".join(allow)
    if status == CODES["unauthorized"]:
        headers["WWW-Authenticate"] = 'Bearer realm="perdure"'
    if status in _RETRIED:
        headers["Retry-After"] = str(problem.details.get("retry_after_s", _BUSY_RETRY_S))
    return Response(
        msgspec.json.encode(problem), status, headers=headers, media_type="application/json"
    )
