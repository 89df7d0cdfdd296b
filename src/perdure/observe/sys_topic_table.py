"""The ``$SYS/broker/`` topics in two tables: name, meaning, unit, and where the value is read.

``SysTopics`` and the reference page are made from them. Names are Mosquitto's, where it has one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

import msgspec

from perdure.observe.metrics import Metrics

ROOT: Final = "$SYS/broker"

ALARMS: Final = "alarms"
"""Below ``ROOT``: a message for each alarm, published when the alarm changes."""

PERIODS: Final = (("1min", 60.0), ("5min", 300.0), ("15min", 900.0))


@final
class Look(msgspec.Struct, frozen=True):
    """What the values are read from.

    Attributes:
        metrics: the broker's counters.
        version: release of the broker.
        uptime_s: since the start.
        clients_maximum: most sessions there were since the start.
    """

    metrics: Metrics
    version: str
    uptime_s: int
    clients_maximum: int


@final
class SysTopic(msgspec.Struct, frozen=True):
    """One topic.

    Attributes:
        name: below ``ROOT``.
        help: one sentence.
        read: the value.
        unit: of the value; empty = a text.
        is_clusters: only a node of a cluster has it.
    """

    name: str
    help: str
    read: Callable[[Look], int | str]
    unit: str = "count"
    is_clusters: bool = False


def sessions(metrics: Metrics) -> int:
    """Sessions, connected or not."""
    return metrics.sessions_connected + metrics.sessions_offline


TOPICS: Final = (
    SysTopic(
        "version",
        "As Mosquitto's `mosquitto version 2.0.18`, with name and release of this broker.",
        lambda look: f"perdure version {look.version}",
        "",
    ),
    SysTopic(
        "uptime",
        "Since the start; the payload has the unit in it: `42 seconds`.",
        lambda look: f"{look.uptime_s} seconds",
        "s",
    ),
    SysTopic(
        "clients/connected",
        "Sessions whose client is connected.",
        lambda look: look.metrics.sessions_connected,
    ),
    SysTopic(
        "clients/disconnected",
        "Sessions whose client is not connected.",
        lambda look: look.metrics.sessions_offline,
    ),
    SysTopic(
        "clients/active",
        "Mosquitto's older name of `clients/connected`.",
        lambda look: look.metrics.sessions_connected,
    ),
    SysTopic(
        "clients/inactive",
        "Mosquitto's older name of `clients/disconnected`.",
        lambda look: look.metrics.sessions_offline,
    ),
    SysTopic("clients/total", "Sessions, connected or not.", lambda look: sessions(look.metrics)),
    SysTopic(
        "clients/maximum",
        "Most sessions that an update has found since the start.",
        lambda look: look.clients_maximum,
    ),
    SysTopic(
        "clients/expired",
        "Sessions deleted since the start because their expiry passed.",
        lambda look: look.metrics.sessions_expired,
    ),
    SysTopic(
        "messages/received",
        "Packets of all types received since the start: Mosquitto calls them messages here.",
        lambda look: sum(look.metrics.packets_received),
    ),
    SysTopic(
        "messages/sent",
        "Packets of all types sent since the start.",
        lambda look: sum(look.metrics.packets_sent),
    ),
    SysTopic(
        "messages/stored",
        "Messages in the log; the same as `store/messages/count`.",
        lambda look: look.metrics.storage_messages,
    ),
    SysTopic(
        "store/messages/count",
        "Messages in the log, all generations together.",
        lambda look: look.metrics.storage_messages,
    ),
    SysTopic(
        "store/messages/bytes",
        "Size of the log on disk, about.",
        lambda look: look.metrics.storage_bytes,
        "bytes",
    ),
    SysTopic(
        "retained messages/count",
        "Topics with a retained message; those of `$SYS` are not counted.",
        lambda look: look.metrics.retained_messages,
    ),
    SysTopic(
        "subscriptions/count",
        "Subscriptions of the sessions whose client is connected, shared ones included.",
        lambda look: look.metrics.subscriptions,
    ),
    SysTopic(
        "shared_subscriptions/count",
        "Shared subscriptions of sessions in memory.",
        lambda look: look.metrics.shared_subscriptions,
    ),
    SysTopic(
        "publish/messages/received",
        "Messages published since the start.",
        lambda look: look.metrics.messages_received,
    ),
    SysTopic(
        "publish/messages/sent",
        "Messages sent to subscribers since the start, each of them counted.",
        lambda look: look.metrics.messages_delivered,
    ),
    SysTopic(
        "publish/messages/dropped",
        "Messages not delivered since the start; `perdure_messages_dropped_total` has the reasons.",
        lambda look: look.metrics.messages_dropped,
    ),
    SysTopic(
        "publish/bytes/received",
        "Payload bytes published since the start.",
        lambda look: look.metrics.payload_bytes_received,
        "bytes",
    ),
    SysTopic(
        "publish/bytes/sent",
        "Payload bytes sent to subscribers since the start.",
        lambda look: look.metrics.payload_bytes_sent,
        "bytes",
    ),
    SysTopic(
        "bytes/received",
        "Bytes received from clients since the start.",
        lambda look: look.metrics.bytes_received,
        "bytes",
    ),
    SysTopic(
        "bytes/sent",
        "Bytes sent to clients since the start.",
        lambda look: look.metrics.bytes_sent,
        "bytes",
    ),
    SysTopic(
        "cluster/members",
        "Nodes of the cluster, as this one has read; this and what follows is a second old at "
        "most.",
        lambda look: look.metrics.cluster_members,
        is_clusters=True,
    ),
    SysTopic(
        "cluster/position",
        "Position of the cluster's log that this node reads next.",
        lambda look: look.metrics.cluster_position,
        "records",
        is_clusters=True,
    ),
    SysTopic(
        "cluster/end",
        "End of the cluster's log.",
        lambda look: look.metrics.cluster_position + look.metrics.cluster_lag,
        "records",
        is_clusters=True,
    ),
    SysTopic(
        "cluster/lag",
        "What this node has still to apply of it.",
        lambda look: look.metrics.cluster_lag,
        "records",
        is_clusters=True,
    ),
    SysTopic(
        "cluster/in_flight",
        "What this node has written and the log has not given back.",
        lambda look: look.metrics.cluster_in_flight,
        "records",
        is_clusters=True,
    ),
    SysTopic(
        "cluster/stalled",
        "How long this node has waited for the log; the unit is in the payload: `0 seconds`.",
        lambda look: f"{look.metrics.cluster_stalled_seconds} seconds",
        "s",
        is_clusters=True,
    ),
)
"""All but the load averages, in the order of the reference page."""


@final
class LoadOf(msgspec.Struct, frozen=True):
    """A counter whose averages are published.

    Attributes:
        name: of its topics, ``load/<name>/<period>``.
        help: what is counted.
        read: the counter.
        unit: what it counts.
    """

    name: str
    help: str
    read: Callable[[Metrics], int]
    unit: str = "count"


LOADS: Final = (
    LoadOf(
        "connections", "Answers to CONNECT (CONNACK).", lambda metrics: sum(metrics.connack_sent)
    ),
    LoadOf(
        "sockets",
        "Connections that sent a CONNECT.",
        lambda metrics: sum(metrics.connections_opened.values()),
    ),
    LoadOf(
        "messages/received",
        "Packets of all types received.",
        lambda metrics: sum(metrics.packets_received),
    ),
    LoadOf(
        "messages/sent", "Packets of all types sent.", lambda metrics: sum(metrics.packets_sent)
    ),
    LoadOf("publish/received", "Messages published.", lambda metrics: metrics.messages_received),
    LoadOf(
        "publish/sent",
        "Messages sent to subscribers.",
        lambda metrics: metrics.messages_delivered,
    ),
    LoadOf("publish/dropped", "Messages not delivered.", lambda metrics: metrics.messages_dropped),
    LoadOf(
        "bytes/received",
        "Bytes received from clients.",
        lambda metrics: metrics.bytes_received,
        "bytes",
    ),
    LoadOf("bytes/sent", "Bytes sent to clients.", lambda metrics: metrics.bytes_sent, "bytes"),
)
"""Counters whose load is published; Mosquitto counts packets as messages here."""


def topic_names(*, is_clustered: bool) -> list[str]:
    """Every topic that a broker publishes at its start and then at each interval.

    Args:
        is_clustered: it is a node of a cluster.
    """
    plain = [f"{ROOT}/{each.name}" for each in TOPICS if is_clustered or not each.is_clusters]
    loads = [f"{ROOT}/load/{load.name}/{period}" for load in LOADS for period, _ in PERIODS]
    return plain + loads


INTRODUCTION: Final = """\
# $SYS topics

<!-- Generated from perdure.observe.sys_topic_table; do not edit. -->

What the broker tells of itself over MQTT, under Mosquitto's names:
`perdure sub '$SYS/broker/clients/#'`. [Metrics](metrics.md) tell more, and `perdure status` tells
it without a subscription.

- **When**: all of them at the start, and then every `sys.interval_s` (10 s; 0 = there are no such
  topics) those whose value is another than before. Alarms: when one is raised or cleared.
- **How**: QoS 0 and plain text. Who subscribes later gets the last value, with RETAIN set, as of a
  retained message. The values are in memory only: they are not in the log, not among the retained
  messages that are counted and listed, and begin anew with the process. So do counters.
- **Who**: without an ACL file everyone may read them, with one only who has a line for it; nobody
  may publish there ([ACL](../howto/acl.md#sys)). `#` does not cover them.
- **In a cluster** each node tells its own clients of itself: what it has counted, and the
  connections that it has. A session that is connected to another node is `disconnected` here.
  Retained messages and the log are the same on all nodes, so do not add those up
  ([cluster](../howto/cluster.md)).

## Values

| Topic | Unit | What it says |
|---|---|---|
"""

LOADS_INTRODUCTION: Final = """
## Load averages

What a counter grows by in a minute, averaged over the last one, five and fifteen minutes (what is
older counts less and less), with two decimals.

| Topic | Unit | What is counted |
|---|---|---|
"""

CLUSTER_INTRODUCTION: Final = """
## Nodes of a cluster

Only a node of a cluster has these.

| Topic | Unit | What it says |
|---|---|---|
"""

ALARMS_SECTION: Final = f"""
## Alarms

`{ROOT}/{ALARMS}/<name>` is there from the first time on that
[the alarm](../howto/monitor.md#alarms) was raised in this process. The payload is JSON: `node`,
`state` (`raised` or `cleared`), `alarm`, `reason`, `value`, `threshold`, `raised_at` and
`cleared_at` (RFC 3339; null while it is raised).
"""


def reference() -> str:
    """The reference page, Markdown."""
    plain = "".join(_row(each.name, each) for each in TOPICS if not each.is_clusters)
    clusters = "".join(_row(each.name, each) for each in TOPICS if each.is_clusters)
    loads = "".join(
        _row(f"load/{each.name}/{period}", each, per="/min")
        for each in LOADS
        for period, _ in PERIODS
    )
    return (
        f"{INTRODUCTION}{plain}{LOADS_INTRODUCTION}{loads}{CLUSTER_INTRODUCTION}{clusters}"
        f"{ALARMS_SECTION}"
    )


def _row(name: str, each: SysTopic | LoadOf, *, per: str = "") -> str:
    return f"| `{ROOT}/{name}` | {each.unit}{per} | {each.help} |\n"
