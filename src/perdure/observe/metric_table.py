"""What is counted: name, kind, help and labels of every metric, in one table.

Prometheus and the reference page are made from it. What the columns mean stands in ``metric_info``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from perdure.observe.instruments import Histogram
from perdure.observe.metric_info import (
    PACKET_TYPES,
    PREFIX,
    QOS_LEVELS,
    MetricInfo,
    counter,
    gauge,
    histogram,
)
from perdure.observe.metrics import Metrics

TABLE: tuple[MetricInfo, ...] = (
    MetricInfo("connections", "gauge", "Open connections.", ("listener",), (), "dict"),
    gauge("connections_maximum", "Most connections open at once since the start."),
    MetricInfo(
        "connections_opened",
        "counter",
        "Connections that sent a CONNECT.",
        ("listener", "protocol"),
        (),
        "dict",
    ),
    MetricInfo("connections_closed", "counter", "Connections that ended.", ("reason",), (), "dict"),
    MetricInfo(
        "connack_sent", "counter", "CONNACK packets by reason code.", ("reason_code",), (), "list"
    ),
    counter("tls_handshake_failures", "TLS handshakes that failed."),
    MetricInfo("packets_received", "counter", "Packets received.", ("type",), PACKET_TYPES, "list"),
    MetricInfo("packets_sent", "counter", "Packets sent.", ("type",), PACKET_TYPES, "list"),
    counter("bytes_received", "Bytes received from clients."),
    counter("bytes_sent", "Bytes sent to clients."),
    counter("payload_bytes_received", "Payload bytes in PUBLISH packets received."),
    counter("payload_bytes_sent", "Payload bytes in PUBLISH packets sent."),
    MetricInfo(
        "protocol_errors",
        "counter",
        "Connections closed for breaking the protocol.",
        ("reason_code",),
        (),
        "list",
    ),
    MetricInfo(
        "unexpected_errors",
        "counter",
        "Exceptions that nobody expected; each has cost one connection, or one background step.",
        ("where",),
        (),
        "dict",
    ),
    MetricInfo(
        "messages_received", "counter", "Messages published.", ("qos",), QOS_LEVELS, "fields"
    ),
    MetricInfo(
        "messages_delivered",
        "counter",
        "Messages sent to subscribers.",
        ("qos",),
        QOS_LEVELS,
        "fields",
    ),
    counter("messages_redelivered", "Messages sent again after a reconnect."),
    MetricInfo(
        "messages_dropped",
        "counter",
        "Messages not delivered, by reason.",
        ("reason",),
        (
            "expired",
            "queue_full",
            "no_subscriber",
            "too_large",
            "quota",
            "not_authorized",
            "retention",
        ),
        "fields",
    ),
    MetricInfo(
        "sessions",
        "gauge",
        "Sessions by state.",
        ("state",),
        ("connected", "offline"),
        "fields",
    ),
    gauge(
        "sessions_held_up",
        "Connected sessions that are sent nothing more before their oldest message is "
        "acknowledged: 65,535 others went out since.",
    ),
    counter("sessions_created", "Sessions created."),
    counter("sessions_resumed", "Sessions resumed by their client."),
    counter("sessions_taken_over", "Sessions taken over by a second connection."),
    counter("sessions_discarded", "Sessions deleted by clean start or an operator."),
    counter("sessions_expired", "Sessions deleted because their expiry passed."),
    counter("wills_published", "Will messages published."),
    gauge("pending_messages", "Stored messages not yet sent to connected sessions."),
    gauge("inflight_messages", "Messages sent and not yet acknowledged."),
    counter("inflight_full", "Times that a session's inflight window was full."),
    gauge(
        "oldest_unacked_seconds",
        "Age of the oldest message that a connected session was sent and has not acknowledged.",
    ),
    histogram(
        "publish_to_ack_seconds", "From PUBLISH read to its acknowledgement.", "qos", "1", "2"
    ),
    histogram(
        "publish_to_delivery_seconds",
        "From PUBLISH to its being written to subscribers, for one message of each turn of the "
        "loop (`live`) or each page (`replay`: read from the log): the oldest of them.",
        "path",
        "live",
        "replay",
    ),
    histogram(
        "session_resume_seconds", "From CONNECT, or the last AUTH, to CONNACK of a resumed session."
    ),
    histogram(
        "takeover_seconds", "Time to end the connection that was before, and to write what it left."
    ),
    histogram("event_loop_lag_seconds", "How late the event loop runs a timer."),
    gauge(
        "backup_age_seconds",
        "Since the last good backup was begun, where backup.every is set; -1 = there is none.",
    ),
    gauge("backup_failed", "1 if the last backup that the broker tried has failed."),
    MetricInfo(
        "backups",
        "counter",
        "Backups that the broker made by itself.",
        ("result",),
        ("made", "failed"),
        "fields",
    ),
    histogram(
        "subscription_match_seconds",
        "Time to find the subscriptions to a topic, past the cache: of one message in 256 turns of "
        "the loop.",
    ),
    gauge("subscriptions", "Subscriptions of all sessions in memory."),
    gauge("subscriptions_offline", "Subscriptions of sessions that are not connected."),
    gauge("shared_subscriptions", "Shared subscriptions of all sessions in memory."),
    gauge("shared_groups", "Shared groups."),
    gauge("retained_messages", "Retained messages."),
    gauge("retained_bytes", "Bytes of the retained messages, topics included."),
    histogram("storage_append_seconds", "Time of a write to the log, without the sync."),
    histogram("storage_commit_seconds", "Time of a sync to the disk."),
    gauge("cluster_members", "Nodes of the cluster, as this one has read; 0 = no cluster."),
    gauge("cluster_lag", "Records of the cluster's log that this node has not applied."),
    gauge("cluster_position", "Position of the cluster's log that this node reads next."),
    gauge("cluster_in_flight", "Records of this node that the log has not given back."),
    gauge("cluster_stalled_seconds", "How long this node has waited for the cluster's log."),
    counter(
        "cluster_applied_messages",
        "Recorded messages of the cluster's log that this node has applied, its own too.",
    ),
    histogram(
        "cluster_apply_cpu_seconds",
        "CPU time of the event loop for what the cluster's log has brought at once: to apply it "
        "and to hand it to sessions here.",
    ),
    histogram("cluster_log_seconds", "Time of a heartbeat through the cluster's log and back."),
    histogram("storage_commit_batch_messages", "Messages in one commit."),
    histogram("storage_read_seconds", "Time of a read of one page of the log."),
    MetricInfo("storage_errors", "counter", "Storage errors.", ("kind", "retriable"), (), "dict"),
    gauge("storage_bytes", "Approximate size of the log on disk."),
    gauge("storage_messages", "Messages in the log."),
    gauge("storage_generations", "Generations of the log."),
    gauge("storage_streams", "Learned streams in the current generation."),
    gauge("storage_backlog_messages", "Messages waiting for a commit."),
    gauge("storage_backlog_seconds", "How long the sync takes by now that they wait for."),
    gauge(
        "retention_held_generations",
        "Generations beyond `retention.time_s` that wait for a pipeline in `retention.keep_for`.",
    ),
    gauge(
        "retention_waiting_generations",
        "Generations beyond `retention.time_s` or `bytes` that wait until other nodes have carried "
        "over what their clients are owed. They are asked to, so a generation waits for one look.",
    ),
    counter(
        "retention_unread_messages",
        "Messages dropped that a pipeline in `retention.keep_for` had not read.",
    ),
    MetricInfo(
        "pipelines_behind_seconds",
        "gauge",
        "From what a pipeline has told this broker to have to the end of the log.",
        ("pipeline", "place"),
        (),
        "dict",
    ),
    MetricInfo(
        "pipelines_silent_seconds",
        "gauge",
        "Since `perdure pipeline run` has told this broker of itself: it does four times a minute.",
        ("pipeline", "place"),
        (),
        "dict",
    ),
    MetricInfo(
        "pipelines_late_seconds",
        "gauge",
        "How long one of its jobs has been overdue, has failed, or cannot reach its catalog, store "
        "or log; 0 = it is well.",
        ("pipeline", "place", "pipeline_job"),
        (),
        "dict",
    ),
    counter("archive_pages", "Pages of the archive that were read for replays."),
    counter("archive_messages", "Messages in those pages."),
    histogram("archive_read_seconds", "Time from asking for such a page to its arrival."),
    counter(
        "archive_failures",
        "Pages of the archive that could not be read, and are asked for again.",
    ),
    gauge("archive_waiting", "Subscriptions that wait for a page of the archive."),
    counter(
        "replays_cut_short",
        "Replays that passed over a part: of the archive, since retention dropped what it is not "
        "known to have and their sessions were owed; or what the log has dropped, since there is "
        "no archive here (another node of the cluster has one).",
    ),
    MetricInfo("auth", "counter", "Authentications.", ("result", "method"), (), "dict"),
    MetricInfo(
        "auth_checks",
        "counter",
        "Answers of methods in `auth.chain` that are not the broker's own: `allow`, `deny`, "
        "`ignore`, `unavailable`, `busy`.",
        ("method", "result"),
        (),
        "dict",
    ),
    MetricInfo(
        "auth_check_seconds", "histogram", "Time of such an answer.", ("method",), (), "dict"
    ),
    MetricInfo(
        "auth_breaker_open",
        "gauge",
        "1 while a method is left alone because it has failed too often.",
        ("method",),
        (),
        "dict",
    ),
    MetricInfo(
        "forwarder_messages",
        "counter",
        "Messages that forwarders have handed over, or that came in by them.",
        ("forwarder", "direction"),
        (),
        "dict",
    ),
    MetricInfo(
        "forwarder_dropped",
        "counter",
        "Messages that forwarders have passed over: expired, refused by the target, on their way "
        "round a loop, invalid; `lost`: gaps that retention has left.",
        ("forwarder", "reason"),
        (),
        "dict",
    ),
    MetricInfo(
        "forwarder_failures",
        "counter",
        "Times that a forwarder lost its target, or could not reach it.",
        ("forwarder",),
        (),
        "dict",
    ),
    MetricInfo(
        "forwarder_lag_messages",
        "gauge",
        "Messages of the log that a forwarder has still to look at, at most.",
        ("forwarder",),
        (),
        "dict",
    ),
    MetricInfo(
        "forwarder_lag_seconds",
        "gauge",
        "Age of the oldest of them.",
        ("forwarder",),
        (),
        "dict",
    ),
    MetricInfo(
        "forwarder_up", "gauge", "1 while the target takes messages.", ("forwarder",), (), "dict"
    ),
    gauge("bans", "Bans in force that an operator has made."),
    MetricInfo(
        "alarms",
        "gauge",
        "1 for each alarm that is raised (`perdure alarms list`).",
        ("alarm",),
        (),
        "dict",
    ),
    gauge("bans_temporary", "Bans in force that the broker has made by itself."),
    counter("logins_failed", "Passwords and SCRAM proofs that were wrong."),
    gauge(
        "clock_offset_lead_seconds",
        "What the newest offset is ahead of the wall clock: it was ahead, and was set back.",
    ),
    MetricInfo(
        "clock_steps",
        "counter",
        "Times that the wall clock was set by a second or more.",
        ("direction",),
        ("forward", "back"),
        "fields",
    ),
    MetricInfo(
        "refusals",
        "counter",
        "Refused CONNECTs, PUBLISHes and filters of SUBSCRIBEs, and clients dropped for a "
        "`packet`; reason code 0x00: closed without one.",
        ("packet", "reason_code"),
        (),
        "dict",
    ),
    MetricInfo(
        "limit_refusals",
        "counter",
        "Connections, sessions, subscriptions and retained messages refused, by the setting that "
        "refused them.",
        ("limit",),
        (),
        "dict",
    ),
    MetricInfo(
        "http_requests",
        "counter",
        "HTTP requests answered; `gone`: the client did not wait, `cut`: broken off.",
        ("route", "method", "status"),
        (),
        "dict",
    ),
    gauge("http_requests_in_flight", "HTTP requests under way."),
    histogram(
        "http_request_seconds",
        "From an HTTP request to the end of its answer: health, the log's state, messages.",
        "kind",
        "probe",
        "query",
        "read",
    ),
    MetricInfo(
        "http_connections_dropped",
        "counter",
        "HTTP connections closed before their time: `evicted` or `refused` for want of a place, "
        "`head_timeout`, `body_timeout`, `send_timeout`, `malformed`.",
        ("reason",),
        (),
        "dict",
    ),
    MetricInfo(
        "http_response_bytes", "counter", "Bytes in bodies of HTTP answers.", ("route",), (), "dict"
    ),
    MetricInfo(
        "metrics_requests",
        "counter",
        "Requests for these metrics by status; `timeout` and `evicted` got no answer.",
        ("status",),
        (),
        "dict",
    ),
    histogram("auth_seconds", "Time of an authentication."),
)
"""Every metric, in the order in which the reference page lists them."""


def info(name: str) -> MetricInfo:
    """The line of a metric."""
    return next(each for each in TABLE if each.name == name)


def numbers(metrics: Metrics, info: MetricInfo) -> Iterator[tuple[tuple[str, ...], int]]:
    """The label values and numbers of a counter or gauge; safe to call from another thread."""
    if info.layout == "scalar":
        yield (), getattr(metrics, info.name)
    elif info.layout == "fields":
        for value in info.values:
            yield (value,), getattr(metrics, f"{info.name}_{value}")
    elif info.layout == "list":
        for index, number in enumerate(list(getattr(metrics, info.name))):
            if info.values:
                yield (info.values[index],), number
            elif number:
                yield (f"0x{index:02x}",), number
    else:
        # One C call copies it: the owner may add a key meanwhile.
        yield from list(getattr(metrics, info.name).items())


def histograms(metrics: Metrics, info: MetricInfo) -> Iterator[tuple[tuple[str, ...], Histogram]]:
    """The label values and histograms of a histogram metric."""
    if info.layout == "scalar":
        yield (), getattr(metrics, info.name)
    elif info.layout == "dict":
        yield from list(getattr(metrics, info.name).items())
    else:
        for value in info.values:
            yield (value,), getattr(metrics, f"{info.name}_{value}")


INTRODUCTION: Final = """\
# Metrics

<!-- Generated from perdure.observe.metric_table; do not edit. -->

With `metrics.bind` (for example `127.0.0.1:9090`) the broker serves `/metrics` for Prometheus.
Counters grow from the start of the process and are not tied to a connection. Durations are in
seconds; histograms have buckets at the powers of two. No label holds a client id or a topic.
`perdure_build_info`, `process_*` and `python_gc_*` come with them.

The same numbers are published under `$SYS/broker/` with Mosquitto's names, load averages over 1,
5 and 15 minutes included, every `sys.interval_s` ([topics](sys-topics.md)).

| Name | Kind | Labels | What it says |
|---|---|---|---|
"""


def reference() -> str:
    """The reference page, Markdown."""
    return INTRODUCTION + "".join(_row(info) for info in TABLE)


def _row(info: MetricInfo) -> str:
    total = "_total" if info.kind == "counter" else ""
    labels = ", ".join(f"`{label}`" for label in info.labels)
    if info.values:
        labels += f" = {', '.join(info.values)}"
    return f"| `{PREFIX}{info.name}{total}` | {info.kind} | {labels} | {info.help} |\n"
