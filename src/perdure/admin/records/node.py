"""The broker as a whole: its numbers now, its rates, and their last hour."""

from __future__ import annotations

from typing import Annotated, Final, final

import msgspec
from msgspec import Meta

from perdure.admin.operation import Http, Operation, Page, Request

HISTORY_S_MAX: Final = 3_600


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """What ``perdure status`` shows.

    Attributes:
        node: name of the broker.
        phase: ``starting``, ``serving`` (clients can connect) or ``stopping``.
        version, build: release; ``compiled`` or ``pure``.
        started_at, started_at_us, uptime_s: since when it runs.
        storage: ``ok``, ``refusing`` (the disk budget is used up), ``stalled`` (the log of the
            cluster takes nothing) or ``failed``.
        storage_reason: why it is not ``ok``.
        connections, sessions_connected, sessions_offline: now.
        subscriptions, subscriptions_connected, subscriptions_offline: now.
        inflight_messages, pending_messages: of connected sessions.
        shared_groups, retained_messages, retained_bytes: now.
        messages_received, messages_delivered, messages_dropped: since the start.
        messages_dropped_by: the last one by reason.
        log_messages, log_bytes, generations: what the log holds.
    """

    node: str
    phase: str = "serving"
    version: str
    build: str
    started_at: str | None
    started_at_us: int
    uptime_s: int
    storage: str
    storage_reason: str
    connections: int
    sessions_connected: int
    sessions_offline: int
    subscriptions: int
    subscriptions_connected: int
    subscriptions_offline: int
    inflight_messages: int
    pending_messages: int
    shared_groups: int
    retained_messages: int
    retained_bytes: int
    messages_received: int
    messages_delivered: int
    messages_dropped: int
    messages_dropped_by: dict[str, int]
    log_messages: int
    log_bytes: int
    generations: int


@final
class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """Per second, over the last ``window_s``; null = not known yet.

    Attributes:
        window_s: how long was measured.
        messages_received, messages_delivered, messages_dropped: messages.
        bytes_received, bytes_sent: on the wire.
        connections_opened: connections.
    """

    window_s: float
    messages_received: float | None = None
    messages_delivered: float | None = None
    messages_dropped: float | None = None
    bytes_received: float | None = None
    bytes_sent: float | None = None
    connections_opened: float | None = None


@final
class Overview(Stats, frozen=True, kw_only=True):
    """The first page: numbers and rates of one moment.

    Attributes:
        as_of, as_of_us: when they held.
        rates: of the last ten seconds.
        open_files, memory_bytes, cpu_s: of the broker's process.
        event_loop_lag_us: how late the loop was, at the last look.
    """

    as_of: str | None
    as_of_us: int
    rates: Rates
    open_files: int | None
    memory_bytes: int | None
    cpu_s: float
    event_loop_lag_us: int


@final
class History(msgspec.Struct, frozen=True, kw_only=True):
    """Values of the last hour, from memory: gone with the process.

    Attributes:
        step_s: between two values.
        until, until_us: of the last value.
        series: values by name, oldest first, all of one length; rates are per second.
    """

    step_s: int
    until: str | None
    until_us: int
    series: dict[str, list[float]]


@final
class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A broker of the cluster.

    Attributes:
        name: of the node.
        is_self: it has answered.
        state: ``running``, or what is known of another one.
        version: its release.
        started_at: since when.
        connections, sessions_connected: on it.
    """

    name: str
    is_self: bool
    state: str
    version: str | None
    started_at: str | None
    connections: int | None
    sessions_connected: int | None


@final
class NodePage(Page[Node], frozen=True, kw_only=True):
    """The nodes."""


class GetStats(Request[Stats], frozen=True, kw_only=True):
    """Numbers of now."""


class GetRates(Request[Rates], frozen=True, kw_only=True):
    """Rates of the last ten seconds."""


class GetOverview(Request[Overview], frozen=True, kw_only=True):
    """Numbers and rates together."""


class GetHistory(Request[History], frozen=True, kw_only=True):
    """The last hour, or a part of it."""

    seconds: Annotated[int, Meta(ge=1, le=HISTORY_S_MAX)] = HISTORY_S_MAX


class ListNodes(Request[NodePage], frozen=True, kw_only=True):
    """All nodes that are known."""


@final
class MetricsText(msgspec.Struct, frozen=True):
    """Everything that is counted, in the format of Prometheus."""

    text: str


class GetMetrics(Request[MetricsText], frozen=True, kw_only=True):
    """All counters."""


OPERATIONS: Final = (
    Operation(
        name="stats.show",
        summary="Numbers of now",
        request=GetStats,
        result=Stats,
        http=Http("GET", "/stats"),
    ),
    Operation(
        name="stats.rates",
        summary="Rates of the last ten seconds",
        request=GetRates,
        result=Rates,
        http=Http("GET", "/rates"),
    ),
    Operation(
        name="stats.overview",
        summary="Numbers and rates of one moment",
        request=GetOverview,
        result=Overview,
        http=Http("GET", "/overview"),
    ),
    Operation(
        name="stats.history",
        summary="The last hour, from memory",
        request=GetHistory,
        result=History,
        http=Http("GET", "/history"),
    ),
    Operation(
        name="stats.metrics",
        summary="All counters, for Prometheus",
        request=GetMetrics,
        result=MetricsText,
    ),
    Operation(
        name="nodes.list",
        summary="The nodes of the cluster",
        request=ListNodes,
        result=NodePage,
        http=Http("GET", "/nodes"),
    ),
)
