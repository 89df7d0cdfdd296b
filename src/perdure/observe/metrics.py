"""Counters, gauges and histograms as plain ints.

A hot counter is an int in a slot (28 ns for ``+= 1``; a prometheus_client counter is 244 ns).
Rooms hold a ``Metrics`` and count; ``prometheus`` and ``sys_topics`` read. Nothing here knows
who exports; the names and what they mean stand in ``metric_table``. Counters only grow, and never
vanish with the connection that they counted.
"""

from __future__ import annotations

from typing import final

HISTOGRAM_BUCKETS = 28
"""Powers of two: up to 2**27 us = 134 s."""


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

    def merge(self, counts: list[int], total: int) -> None:
        """Add the observations of another histogram: its buckets and its sum."""
        assert len(counts) == len(self.counts)
        for bucket, number in enumerate(counts):
            self.counts[bucket] += number
        self.sum += total

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
    """Everything one broker counts. Attributes follow ``metric_table.TABLE``;
    owners write them directly."""

    __slots__ = (
        "auth",
        "auth_seconds",
        "bans",
        "bytes_received",
        "bytes_sent",
        "connack_sent",
        "connections",
        "connections_closed",
        "connections_maximum",
        "connections_opened",
        "event_loop_lag_seconds",
        "http_request_seconds_probe",
        "http_request_seconds_query",
        "http_request_seconds_read",
        "http_requests",
        "http_requests_in_flight",
        "http_response_bytes",
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
        self.session_resume_seconds = Histogram()
        self.takeover_seconds = Histogram()
        self.event_loop_lag_seconds = Histogram()
        # Subscriptions and retained messages.
        self.subscriptions: int = 0
        self.shared_subscriptions: int = 0
        self.shared_groups: int = 0
        self.retained_messages: int = 0
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
        self.bans: int = 0
        self.http_requests: dict[tuple[str, ...], int] = {}
        self.http_requests_in_flight: int = 0
        self.http_request_seconds_probe = Histogram()
        self.http_request_seconds_query = Histogram()
        self.http_request_seconds_read = Histogram()
        self.http_response_bytes: dict[tuple[str, ...], int] = {}

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
