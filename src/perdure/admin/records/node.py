"""The broker as a whole: its numbers now, its rates, and their last hour."""

from __future__ import annotations

from typing import Annotated, Final, final

import msgspec
from msgspec import Meta

from perdure.admin.operation import Http, Operation, Page, Request

HISTORY_S_MAX: Final = 3_600

ALL_NODES: Final = "*"
"""Asks for all nodes of a cluster together."""


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
        messages_dropped_by: the last one by reason; and ``no_subscriber``, which is no drop and
            not in it.
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
    """Per second, over the last ``window_s``, and how long it took; null = not known yet.

    Attributes:
        window_s: how long was measured.
        messages_received, messages_delivered, messages_dropped: messages.
        bytes_received, bytes_sent: on the wire.
        connections_opened: connections.
        cpu_cores: CPU seconds of the broker's process.
        ack_p50_us, ack_p99_us: half of the messages at QoS 1 and 2, and 99 of 100, were
            acknowledged so soon after they were read, to a factor of two; null = none was.
    """

    window_s: float
    messages_received: float | None = None
    messages_delivered: float | None = None
    messages_dropped: float | None = None
    bytes_received: float | None = None
    bytes_sent: float | None = None
    connections_opened: float | None = None
    cpu_cores: float | None = None
    ack_p50_us: int | None = None
    ack_p99_us: int | None = None


@final
class Overview(Stats, frozen=True, kw_only=True):
    """The first page: numbers and rates of one moment, of a node or of all together.

    Of all (``node`` is ``*``) it has sums of what each node counts, the worst of what has no sum,
    and of what is the same on every node (the log, what is retained, who is offline) what the node
    has that was asked. Nodes say new numbers every ten seconds, so those of others are so old.

    Attributes:
        state: ``running``, or why the node is no member of the cluster any more (``left``,
            ``expelled`` and the like); its numbers are the last ones then.
        as_of, as_of_us: when they held; of all nodes, the oldest of them.
        unheard: of all nodes, the members whose numbers are not in it, because they have not said
            any since they joined or since the node that was asked has started.
        cluster_lag: records of the cluster's log that it has not applied; null = no cluster.
        rates: of the last ten seconds.
        open_files, memory_bytes, cpu_s: of the broker's process.
        event_loop_lag_us: how late the loop was, at the last look.
    """

    state: str = "running"
    as_of: str | None
    as_of_us: int
    unheard: list[str] = []
    cluster_lag: int | None = None
    rates: Rates
    open_files: int | None
    memory_bytes: int | None
    cpu_s: float
    event_loop_lag_us: int


@final
class History(msgspec.Struct, frozen=True, kw_only=True):
    """Values of the last hour, from memory: gone with the process.

    Of another node it has what that one has said of itself since this one has started; of all
    together sums, the worst of what has no sum, and of what is the same on every node what the node
    has that was asked.

    Attributes:
        step_s: between two values.
        until, until_us: of the last value.
        series: values by name, oldest first, all of one length; rates are per second, of
            ``ack_p50_us`` and ``ack_p99_us`` 0 = nothing was acknowledged, and null = another node
            has said nothing then.
    """

    step_s: int
    until: str | None
    until_us: int
    series: dict[str, list[float | None]]


@final
class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A broker of the cluster.

    What other nodes count is as they have said it last, some ten seconds ago or less; null = it is
    no member, or has said nothing since it joined or since the node that was asked has started.

    Attributes:
        name: of the node.
        is_self: it has answered.
        state: ``running``, or what is known of another one.
        version: its release.
        started_at, started_at_us: since when it runs.
        connections, sessions_connected: on it.
        storage, storage_reason: as in the overview.
        rate_in, rate_out: messages per second, over the last ten seconds.
        messages_dropped: since its start.
        cluster_lag: records of the log that it has not applied.
        log_bytes: that its log takes on its disk.
        as_of, as_of_us: when that held, or was said last.
    """

    name: str
    is_self: bool
    state: str
    version: str | None
    started_at: str | None
    connections: int | None
    sessions_connected: int | None
    started_at_us: int | None = None
    storage: str | None = None
    storage_reason: str | None = None
    rate_in: float | None = None
    rate_out: float | None = None
    messages_dropped: int | None = None
    cluster_lag: int | None = None
    log_bytes: int | None = None
    as_of: str | None = None
    as_of_us: int | None = None


@final
class NodePage(Page[Node], frozen=True, kw_only=True):
    """The nodes."""


class GetStats(Request[Stats], frozen=True, kw_only=True):
    """Numbers of now."""


class GetRates(Request[Rates], frozen=True, kw_only=True):
    """Rates of the last ten seconds."""


class GetOverview(Request[Overview], frozen=True, kw_only=True):
    """Numbers and rates together.

    Attributes:
        node: whose; empty = of the node that is asked, ``*`` = of all together.
    """

    node: Annotated[str, Meta(max_length=255)] = ""


class GetHistory(Request[History], frozen=True, kw_only=True):
    """The last hour, or a part of it.

    Attributes:
        seconds: how much of it.
        node: whose; empty = of the node that is asked, ``*`` = of all together.
    """

    seconds: Annotated[int, Meta(ge=1, le=HISTORY_S_MAX)] = HISTORY_S_MAX
    node: Annotated[str, Meta(max_length=255)] = ""


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
