"""Counters, gauges and histograms as plain ints, and the one table that names them.

A hot counter is an int in a slot (28 ns for ``+= 1``; a prometheus_client counter is 244 ns).
Rooms hold a ``Metrics`` and count; ``prometheus`` and ``sys_topics`` read. Nothing here knows
who exports. Counters only grow, and never vanish with the connection that they counted.

How an attribute is named and exported follows from its line in ``TABLE``:

========  ============================================  ==================================
layout    attribute                                     label value
========  ============================================  ==================================
scalar    ``name: int``                                 none
fields    ``name_<value>: int`` for each value          the end of the attribute's name
list      ``name: list[int]``                           ``values[index]``, or the index
dict      ``name: dict[tuple[str, ...], int]``          the key
histogram ``name: Histogram``, or ``name_<value>``      as fields
========  ============================================  ==================================
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeAlias, final

import msgspec

HISTOGRAM_BUCKETS = 28
"""Powers of two: up to 2**27 us = 134 s."""

PACKET_TYPES = (
    "reserved",
    "connect",
    "connack",
    "publish",
    "puback",
    "pubrec",
    "pubrel",
    "pubcomp",
    "subscribe",
    "suback",
    "unsubscribe",
    "unsuback",
    "pingreq",
    "pingresp",
    "disconnect",
    "auth",
)
"""By MQTT control packet type number (MQTT 5.0 section 2.1.2)."""

QOS_LEVELS = ("0", "1", "2")


@final
class Histogram:
    """Observations in buckets that are powers of two; one ``observe`` is O(1).

    Bucket ``i`` counts the values ``v`` with ``2**(i-1) < v <= 2**i`` (bucket 0: ``v <= 1``);
    the last one has everything above.
    """

    __slots__ = ("counts", "sum")

    def __init__(self) -> None:
        self.counts: list[int] = [0] * (HISTOGRAM_BUCKETS + 1)
        self.sum: int = 0

    def observe(self, value: int) -> None:
        """Count one value (microseconds, or messages)."""
        bucket = (value - 1).bit_length() if value > 1 else 0
        self.counts[min(HISTOGRAM_BUCKETS, bucket)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        """Number of observations."""
        return sum(self.counts)

    def quantile(self, q: float) -> int:
        """Upper bound of the bucket that holds the quantile; 0 if nothing was observed."""
        rank = q * self.count
        seen = 0
        for bucket, number in enumerate(self.counts):
            seen += number
            if number and seen >= rank:
                return 1 << bucket
        return 0


@final
class Metrics:
    """Everything one broker counts. Attributes follow ``TABLE``; owners write them directly."""

    __slots__ = (
        "auth",
        "auth_seconds",
        "bytes_received",
        "bytes_sent",
        "connack_sent",
        "connections",
        "connections_closed",
        "connections_maximum",
        "connections_opened",
        "event_loop_lag_seconds",
        "inflight_full",
        "inflight_messages",
        "messages_delivered",
        "messages_dropped_expired",
        "messages_dropped_no_subscriber",
        "messages_dropped_not_authorized",
        "messages_dropped_queue_full",
        "messages_dropped_quota",
        "messages_dropped_retention",
        "messages_dropped_too_large",
        "messages_received",
        "messages_redelivered",
        "oldest_unacked_seconds",
        "packets_received",
        "packets_sent",
        "payload_bytes_received",
        "payload_bytes_sent",
        "pending_messages",
        "protocol_errors",
        "publish_to_ack_seconds_1",
        "publish_to_ack_seconds_2",
        "publish_to_delivery_seconds_live",
        "publish_to_delivery_seconds_replay",
        "retained_bytes",
        "retained_messages",
        "session_resume_seconds",
        "sessions_connected",
        "sessions_created",
        "sessions_discarded",
        "sessions_expired",
        "sessions_offline",
        "sessions_resumed",
        "sessions_taken_over",
        "shared_groups",
        "shared_subscriptions",
        "storage_append_seconds",
        "storage_backlog_messages",
        "storage_bytes",
        "storage_commit_batch_messages",
        "storage_commit_seconds",
        "storage_errors",
        "storage_generations",
        "storage_messages",
        "storage_read_seconds",
        "storage_streams",
        "subscription_match_seconds",
        "subscriptions",
        "takeover_seconds",
        "tls_handshake_failures",
        "wills_published",
    )

    def __init__(self) -> None:
        # Connections.
        self.connections: dict[tuple[str, ...], int] = {}
        self.connections_maximum: int = 0
        self.connections_opened: dict[tuple[str, ...], int] = {}
        self.connections_closed: dict[tuple[str, ...], int] = {}
        self.connack_sent: list[int] = [0] * 256
        self.tls_handshake_failures: int = 0
        # Packets and bytes.
        self.packets_received: list[int] = [0] * 16
        self.packets_sent: list[int] = [0] * 16
        self.bytes_received: int = 0
        self.bytes_sent: int = 0
        self.payload_bytes_received: int = 0
        self.payload_bytes_sent: int = 0
        self.protocol_errors: list[int] = [0] * 256
        # Messages.
        self.messages_received: list[int] = [0, 0, 0]
        self.messages_delivered: list[int] = [0, 0, 0]
        self.messages_redelivered: int = 0
        self.messages_dropped_expired: int = 0
        self.messages_dropped_queue_full: int = 0
        self.messages_dropped_no_subscriber: int = 0
        self.messages_dropped_too_large: int = 0
        self.messages_dropped_quota: int = 0
        self.messages_dropped_not_authorized: int = 0
        self.messages_dropped_retention: int = 0
        # Sessions.
        self.sessions_connected: int = 0
        self.sessions_offline: int = 0
        self.sessions_created: int = 0
        self.sessions_resumed: int = 0
        self.sessions_taken_over: int = 0
        self.sessions_discarded: int = 0
        self.sessions_expired: int = 0
        self.wills_published: int = 0
        self.pending_messages: int = 0
        self.inflight_messages: int = 0
        self.inflight_full: int = 0
        self.oldest_unacked_seconds: int = 0
        # Latency.
        self.publish_to_ack_seconds_1 = Histogram()
        self.publish_to_ack_seconds_2 = Histogram()
        self.publish_to_delivery_seconds_live = Histogram()
        self.publish_to_delivery_seconds_replay = Histogram()
        self.session_resume_seconds = Histogram()
        self.takeover_seconds = Histogram()
        self.event_loop_lag_seconds = Histogram()
        # Subscriptions and retained messages.
        self.subscriptions: int = 0
        self.shared_subscriptions: int = 0
        self.shared_groups: int = 0
        self.subscription_match_seconds = Histogram()
        self.retained_messages: int = 0
        self.retained_bytes: int = 0
        # Storage.
        self.storage_append_seconds = Histogram()
        self.storage_commit_seconds = Histogram()
        self.storage_commit_batch_messages = Histogram()
        self.storage_read_seconds = Histogram()
        self.storage_errors: dict[tuple[str, ...], int] = {}
        self.storage_bytes: int = 0
        self.storage_messages: int = 0
        self.storage_generations: int = 0
        self.storage_streams: int = 0
        self.storage_backlog_messages: int = 0
        # Authentication.
        self.auth: dict[tuple[str, ...], int] = {}
        self.auth_seconds = Histogram()

    def connection_opened(self, listener: str, protocol: str) -> None:
        """Count a connection when its CONNECT was accepted or refused by the broker."""
        add(self.connections_opened, (listener, protocol))
        self.connections[(listener,)] = self.connections.get((listener,), 0) + 1
        self.connections_maximum = max(self.connections_maximum, self.connections_now)

    def connection_closed(self, listener: str, reason: str) -> None:
        """Count the end of a connection that ``connection_opened`` counted."""
        add(self.connections_closed, (reason,))
        self.connections[(listener,)] = self.connections.get((listener,), 0) - 1
        assert self.connections[(listener,)] >= 0, "closed more often than opened"

    @property
    def connections_now(self) -> int:
        """Connections on all listeners."""
        return sum(self.connections.values())

    @property
    def messages_dropped(self) -> int:
        """Messages dropped for any reason but the lack of a subscriber."""
        return (
            self.messages_dropped_expired
            + self.messages_dropped_queue_full
            + self.messages_dropped_too_large
            + self.messages_dropped_quota
            + self.messages_dropped_not_authorized
            + self.messages_dropped_retention
        )


def add(counter: dict[tuple[str, ...], int], key: tuple[str, ...], count: int = 1) -> None:
    """Count in a ``dict`` metric."""
    counter[key] = counter.get(key, 0) + count


Kind: TypeAlias = Literal["counter", "gauge", "histogram"]
Layout: TypeAlias = Literal["scalar", "fields", "list", "dict"]


@final
class MetricInfo(msgspec.Struct, frozen=True):
    """One line of the table.

    Attributes:
        name: exported as ``perdure_<name>``, counters with ``_total`` after it.
        kind: counter, gauge or histogram.
        help: one sentence.
        labels: label names.
        values: closed set of values of the one label (``fields`` and ``list``).
        layout: where the numbers are (see the module's docstring).
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    layout: Layout = "scalar"


def _counter(name: str, text: str) -> MetricInfo:
    return MetricInfo(name, "counter", text)


def _gauge(name: str, text: str) -> MetricInfo:
    return MetricInfo(name, "gauge", text)


def _histogram(name: str, text: str, label: str = "", *values: str) -> MetricInfo:
    if not label:
        return MetricInfo(name, "histogram", text)
    return MetricInfo(name, "histogram", text, (label,), values, "fields")


TABLE: tuple[MetricInfo, ...] = (
    MetricInfo("connections", "gauge", "Open connections.", ("listener",), (), "dict"),
    _gauge("connections_maximum", "Most connections open at once since the start."),
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
    _counter("tls_handshake_failures", "TLS handshakes that failed."),
    MetricInfo("packets_received", "counter", "Packets received.", ("type",), PACKET_TYPES, "list"),
    MetricInfo("packets_sent", "counter", "Packets sent.", ("type",), PACKET_TYPES, "list"),
    _counter("bytes_received", "Bytes received from clients."),
    _counter("bytes_sent", "Bytes sent to clients."),
    _counter("payload_bytes_received", "Payload bytes in PUBLISH packets received."),
    _counter("payload_bytes_sent", "Payload bytes in PUBLISH packets sent."),
    MetricInfo(
        "protocol_errors",
        "counter",
        "Connections closed for breaking the protocol.",
        ("reason_code",),
        (),
        "list",
    ),
    MetricInfo("messages_received", "counter", "Messages published.", ("qos",), QOS_LEVELS, "list"),
    MetricInfo(
        "messages_delivered",
        "counter",
        "Messages sent to subscribers.",
        ("qos",),
        QOS_LEVELS,
        "list",
    ),
    _counter("messages_redelivered", "Messages sent again after a reconnect."),
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
    _counter("sessions_created", "Sessions created."),
    _counter("sessions_resumed", "Sessions resumed by their client."),
    _counter("sessions_taken_over", "Sessions taken over by a second connection."),
    _counter("sessions_discarded", "Sessions deleted by clean start or an operator."),
    _counter("sessions_expired", "Sessions deleted because their expiry passed."),
    _counter("wills_published", "Will messages published."),
    _gauge("pending_messages", "Stored messages not yet sent to connected sessions."),
    _gauge("inflight_messages", "Messages sent and not yet acknowledged."),
    _counter("inflight_full", "Times that a session's inflight window was full."),
    _gauge("oldest_unacked_seconds", "Age of the oldest unacknowledged message."),
    _histogram(
        "publish_to_ack_seconds", "From PUBLISH read to its acknowledgement.", "qos", "1", "2"
    ),
    _histogram(
        "publish_to_delivery_seconds",
        "From PUBLISH read to its delivery.",
        "path",
        "live",
        "replay",
    ),
    _histogram("session_resume_seconds", "From CONNECT to CONNACK of a resumed session."),
    _histogram("takeover_seconds", "Time to end the connection that was before."),
    _histogram("event_loop_lag_seconds", "How late the event loop runs a timer."),
    _gauge("subscriptions", "Subscriptions of all sessions in memory."),
    _gauge("shared_subscriptions", "Shared subscriptions of all sessions in memory."),
    _gauge("shared_groups", "Shared groups."),
    _histogram("subscription_match_seconds", "Time to find the subscribers of a topic."),
    _gauge("retained_messages", "Retained messages."),
    _gauge("retained_bytes", "Bytes of retained messages."),
    _histogram("storage_append_seconds", "Time of a write to the log, without the sync."),
    _histogram("storage_commit_seconds", "Time of a sync to the disk."),
    _histogram("storage_commit_batch_messages", "Messages in one commit."),
    _histogram("storage_read_seconds", "Time of a read of the log."),
    MetricInfo("storage_errors", "counter", "Storage errors.", ("kind", "retriable"), (), "dict"),
    _gauge("storage_bytes", "Approximate size of the log on disk."),
    _gauge("storage_messages", "Messages in the log."),
    _gauge("storage_generations", "Generations of the log."),
    _gauge("storage_streams", "Learned streams in the current generation."),
    _gauge("storage_backlog_messages", "Messages waiting for a commit."),
    MetricInfo("auth", "counter", "Authentications.", ("result", "method"), (), "dict"),
    _histogram("auth_seconds", "Time of an authentication."),
)
"""Every metric, in the order in which the reference page lists them."""


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
    else:
        for value in info.values:
            yield (value,), getattr(metrics, f"{info.name}_{value}")
