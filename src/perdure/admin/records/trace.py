"""Traces: what goes between the broker and one client, or about one topic, for a while."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias, final

import msgspec
from msgspec import Meta

from perdure.admin.limits import Limit
from perdure.admin.operation import Http, Operation, Page, Request

TraceKind: TypeAlias = Literal["client", "topic"]
TraceId: TypeAlias = Annotated[str, Meta(min_length=1, max_length=16)]
SECONDS_MAX: Final = 3_600


@final
class TraceRow(msgspec.Struct, frozen=True, kw_only=True):
    """A trace.

    Attributes:
        id: its name.
        kind, value: a client identifier, or a topic filter.
        running: it listens; it ends by itself at ``until``.
        payloads: whether the first 256 bytes of payloads are shown.
        begun_at, begun_at_us, until, until_us: when.
        events: that it has seen.
        lost: of them that are forgotten: the last 10,000 are kept.
    """

    id: str
    kind: TraceKind
    value: str
    running: bool
    payloads: bool
    begun_at: str | None
    begun_at_us: int
    until: str | None
    until_us: int
    events: int
    lost: int


@final
class TraceEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What went by.

    Attributes:
        number: of the event in its trace, from 1 on.
        at, at_us: when.
        client_id: between whom and the broker.
        event: ``connect``, ``connack``, ``subscribe``, ``suback``, ``unsubscribe``, ``publish``
            (from the client), ``answered`` or ``refused`` (to it), ``sent`` (to it), ``acked``
            (from it), ``dropped``, ``disconnect``, ``closed``, ``undecodable``.
        topic: of the message.
        qos, retain, dup, packet_id: of the packet.
        payload_bytes, payload: size, and the beginning if that was asked for.
        reason_code: of the packet.
        detail: filters, which acknowledgement, who disconnects.
    """

    number: int
    at: str | None
    at_us: int
    client_id: str
    event: str
    topic: str | None = None
    qos: int | None = None
    retain: bool | None = None
    dup: bool | None = None
    packet_id: int | None = None
    payload_bytes: int | None = None
    payload: str | None = None
    reason_code: int | None = None
    detail: str | None = None


@final
class TracePage(Page[TraceRow], frozen=True, kw_only=True):
    """Traces that are remembered."""


@final
class TraceEvents(Page[TraceEvent], frozen=True, kw_only=True):
    """Events of a trace.

    Attributes:
        trace: as it stands.
    """

    trace: TraceRow


class StartTrace(Request[TraceRow], frozen=True, kw_only=True):
    """Listen for a while; it ends by itself."""

    kind: TraceKind
    value: Annotated[str, Meta(min_length=1, max_length=65_535)]
    seconds: Annotated[int, Meta(ge=1, le=SECONDS_MAX)] = 60
    payloads: bool = False


class ListTraces(Request[TracePage], frozen=True, kw_only=True):
    """Those that run, and the last ones that did."""


class ReadTrace(Request[TraceEvents], frozen=True, kw_only=True):
    """Events behind a number; come again with that of the last one."""

    trace_id: TraceId
    after: Annotated[int, Meta(ge=0)] = 0
    limit: Limit = 500


class StopTrace(Request[TraceRow], frozen=True, kw_only=True):
    """End a trace before its time; what it has seen is kept."""

    trace_id: TraceId


OPERATIONS: Final = (
    Operation(
        name="traces.start",
        summary="Trace a client or a topic",
        request=StartTrace,
        result=TraceRow,
        right="admin",
        changes=True,
        http=Http("POST", "/traces", status=201),
        target="value",
        topics=lambda request: (request.value,) if request.kind == "topic" else (),
    ),
    Operation(
        name="traces.list",
        summary="Traces that run, and the last ones that did",
        request=ListTraces,
        result=TracePage,
        right="operator",
        http=Http("GET", "/traces"),
    ),
    Operation(
        name="traces.read",
        summary="Events of a trace",
        request=ReadTrace,
        result=TraceEvents,
        right="admin",
        http=Http("GET", "/traces/{trace_id}/events"),
    ),
    Operation(
        name="traces.stop",
        summary="End a trace",
        request=StopTrace,
        result=TraceRow,
        right="admin",
        changes=True,
        http=Http("DELETE", "/traces/{trace_id}"),
        target="trace_id",
    ),
)
