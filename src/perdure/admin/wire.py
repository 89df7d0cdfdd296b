"""Lines of the admin socket.

A line of JSON asks, a line answers, in order::

    > {"operation": "sessions.list", "request": {"limit": 10}}
    < {"result": {"items": [...], "next_cursor": "...", "estimated_total": 7}}
    > {"operation": "sessions.kick", "request": {"client_id": "x"}, "principal": {...}}
    < {"error": {"code": "not_found", "message": "..."}}

Without a principal, whoever opened the socket asks, as an admin.
"""

from __future__ import annotations

from typing import Final, TypeVar, final

import msgspec

from perdure.admin.problems import Problem
from perdure.admin.rights import Principal

REQUEST_BYTES_MAX: Final = 16 * 1024 * 1024
"""A batch of messages to publish is the longest."""

ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
"""A page of messages with large payloads is the longest."""


@final
class Ask(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A line that asks.

    Attributes:
        operation: name in the table.
        request: the fields of its request.
        principal: on whose behalf.
        request_id: of the HTTP request.
    """

    operation: str
    request: msgspec.Raw = msgspec.Raw(b"{}")
    principal: Principal | None = None
    request_id: str = ""


@final
class Answer(msgspec.Struct, frozen=True):
    """A line that answers: ``result`` if there is no ``error``."""

    result: msgspec.Raw = msgspec.Raw(b"null")
    error: Problem | None = None


_encoder: Final = msgspec.json.Encoder()

T = TypeVar("T")


def decode_given(data: bytes | str, kind: type[T]) -> T:
    """A record of JSON that somebody sent.

    Raises:
        ValueError: it is none, with a sentence that says why.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except RecursionError:  # msgspec follows brackets also where nobody looks into them
        raise ValueError("it is nested too deeply") from None


def encode_line(message: msgspec.Struct | dict[str, object]) -> bytes:
    """A message as a line."""
    return _encoder.encode(message) + b"\n"
