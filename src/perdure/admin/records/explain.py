"""Why a message is, or is not, delivered to a session."""

from __future__ import annotations

from typing import Annotated, Final, final

import msgspec
from msgspec import Meta

from perdure.admin.limits import ClientId, Qos, Topic
from perdure.admin.operation import Http, Operation, Request
from perdure.limits import REMAINING_LENGTH_MAX


@final
class What(msgspec.Struct, frozen=True):
    """The message that is asked about; None = as the last recorded one, or QoS 1 and empty.

    Attributes:
        publisher: client identifier.
        qos: as published.
        size: payload bytes.
    """

    publisher: str | None = None
    qos: int | None = None
    size: int | None = None


ANY: Final = What()


@final
class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at on a message's way.

    Attributes:
        check: session, subscription, rights, message, record, limits or delivery.
        ok: nothing in the way here.
        code: stable word for programs.
        detail: a sentence.
    """

    check: str
    ok: bool
    code: str
    detail: str


@final
class Explanation(msgspec.Struct, frozen=True):
    """Why a message on a topic is, or is not, delivered to a session.

    Attributes:
        client_id, topic: what was asked.
        verdict: code of the first finding that is in the way, or ``delivered``; ``shared`` = it
            goes to one of several members of a group.
        reason: its sentence.
        findings: all, in the order of a message's way.
    """

    client_id: str
    topic: str
    verdict: str
    reason: str
    findings: list[Finding]


class ExplainSession(Request[Explanation], frozen=True, kw_only=True):
    """A message on a topic, to a session."""

    client_id: ClientId
    topic: Topic
    publisher: Annotated[str, Meta(max_length=65_535)] | None = None
    qos: Qos | None = None
    size: Annotated[int, Meta(ge=0, le=REMAINING_LENGTH_MAX)] | None = None


OPERATIONS: Final = (
    Operation(
        name="sessions.explain",
        summary="Why messages on a topic are, or are not, delivered to a session",
        request=ExplainSession,
        result=Explanation,
        http=Http("GET", "/sessions/{client_id}/explain"),
    ),
)
