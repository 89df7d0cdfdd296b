"""Refusals: codes that never change, each with its HTTP status and what it means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, final

import msgspec

from perdure.errors import MqttError, PerdureError


class Code(NamedTuple):
    """One code: its HTTP status, and its meaning for people."""

    status: int
    meaning: str


CODES: Final[Mapping[str, Code]] = {
    "bad_request": Code(400, "the request is not what the operation expects"),
    "mqtt_error": Code(400, "a topic, filter or property breaks the MQTT specification"),
    "config_invalid": Code(400, "a value cannot be used; details say which"),
    "unauthorized": Code(401, "nobody is named by the request's credentials"),
    "forbidden": Code(403, "the role or the scopes do not allow this"),
    "not_found": Code(404, "there is no such thing"),
    "unknown_operation": Code(404, "the broker knows no such operation"),
    "not_available": Code(409, "this broker is configured without it"),
    "conflict": Code(409, "it exists already, or is in use"),
    "storage_conflict": Code(409, "somebody else has changed it meanwhile; try again"),
    "storage_unavailable": Code(503, "what was asked for was dropped, or the store fails"),
    "precondition_failed": Code(412, "it has changed since it was read (If-Match)"),
    "too_large": Code(413, "a body or a batch is over its limit"),
    "key_reused": Code(422, "the Idempotency-Key was used for another request"),
    "too_many_requests": Code(429, "the rate of changes is over its limit; see Retry-After"),
    "internal": Code(500, "a defect of the broker; its log has more"),
    "storage_corrupt": Code(500, "the store holds what it cannot read"),
    "busy": Code(503, "too much is asked at once; try again"),
    "broker_unavailable": Code(503, "the broker does not answer"),
    "storage_full": Code(507, "the disk or its budget is full"),
    "storage_timeout": Code(504, "the store did not answer in time"),
}


@final
class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a refusal looks like on the admin socket.

    Attributes:
        code: one of ``CODES``, or an error code of the broker.
        message: one sentence.
        hint: what to do about it.
        details: values that belong to it.
    """

    code: str
    message: str
    hint: str = ""
    details: dict[str, Any] = {}


@final
class Refused(PerdureError):
    """An operation that was refused.

    Args:
        code: one of ``CODES``.
        message: one sentence.
        hint: what to do, or empty.
        details: values that belong to it.
    """

    def __init__(
        self, code: str, message: str, *, hint: str = "", details: dict[str, Any] | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.problem = Problem(code, message, hint, details or {})


def problem_of(error: PerdureError) -> Problem:
    """The problem that an error of ours is for whoever asked."""
    if isinstance(error, Refused):
        return error.problem
    path = getattr(error, "path", "")
    details = {"path": path} if path else {}
    if isinstance(error, MqttError):
        code = MqttError.code  # whichever packet or property it would have been in
    else:
        code = error.code if error.code in CODES else "internal"
    return Problem(code, error.message, error.hint, details)
