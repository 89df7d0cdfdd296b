"""Counters, gauges and histograms as plain ints.

A hot counter is an int in a slot (28 ns for ``+= 1``; a prometheus_client counter is 244 ns).
Rooms hold a ``Metrics`` and count; ``prometheus`` and ``sys_topics`` read. Nothing here knows
who exports; the names and what they mean stand in ``metric_table``. Counters only grow, and never
vanish with the connection that they counted.
"""

from __future__ import annotations

from typing import Final, final

from perdure.observe.connection_metrics import ConnectionMetrics
from perdure.observe.instruments import Histogram

# Packet types (MQTT 5.0 section 2.1.2).
_PUBLISH: Final = 3
_PUBACK: Final = 4


@final
class Metrics(ConnectionMetrics):
    """Everything one broker counts. Attributes follow ``metric_table.TABLE``;
    owners write them directly."""

    __slots__ = (
        "alarms",
        "archive_failures",
        "archive_messages",
        "archive_pages",
        "archive_read_seconds",
        "archive_waiting",
        "auth",
        "auth_breaker_open",
        "auth_check_seconds",
        "auth_checks",
        "auth_seconds",
        "backup_age_seconds",
        "backup_failed",
        "backups_failed",
        "backups_made",
        "bans",
        "bans_temporary",
        "clock_offset_lead_seconds",
        "clock_steps_back",
        "clock_steps_forward",
        "cluster_applied_messages",
        "cluster_apply_cpu_seconds",
        "cluster_in_flight",
        "cluster_lag",
        "cluster_log_seconds",
        "cluster_members",
        "cluster_position",
        "cluster_stalled_seconds",
        "event_loop_lag_seconds",
        "forwarder_dropped",
        "forwarder_failures",
        "forwarder_lag_messages",
        "forwarder_lag_seconds",
        "forwarder_messages",
        "forwarder_up",
        "http_connections_dropped",
        "http_request_seconds_probe",
        "http_request_seconds_query",
        "http_request_seconds_read",
        "http_requests",
        "http_requests_in_flight",
        "http_response_bytes",
        "inflight_full",
        "inflight_messages",
        "limit_refusals",
        "logins_failed",
        "messages_delivered_0",
        "messages_delivered_1",
        "messages_delivered_2",
        "messages_dropped_expired",
        "messages_dropped_no_subscriber",
        "messages_dropped_not_authorized",
        "messages_dropped_queue_full",
        "messages_dropped_quota",
        "messages_dropped_retention",
        "messages_dropped_too_large",
        "messages_received_0",
        "messages_received_1",
        "messages_received_2",
        "messages_redelivered",
        "metrics_requests",
        "oldest_unacked_seconds",
        "pending_messages",
        "pipelines_behind_seconds",
        "pipelines_late_seconds",
        "pipelines_silent_seconds",
        "publish_to_ack_seconds_1",
        "publish_to_ack_seconds_2",
        "publish_to_delivery_seconds_live",
        "publish_to_delivery_seconds_replay",
        "refusals",
        "replays_cut_short",
        "retained_bytes",
        "retained_messages",
        "retention_held_generations",
        "retention_unread_messages",
        "retention_waiting_generations",
        "session_resume_seconds",
        "sessions_connected",
        "sessions_created",
        "sessions_discarded",
        "sessions_expired",
        "sessions_held_up",
        "sessions_offline",
        "sessions_resumed",
        "sessions_taken_over",
        "shared_groups",
        "shared_subscriptions",
        "storage_append_seconds",
        "storage_backlog_messages",
        "storage_backlog_seconds",
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
        "subscriptions_offline",
        "takeover_seconds",
        "wills_published",
    )

    def __init__(self) -> None:
        super().__init__()
        # Messages.
        self.messages_received_0: int = 0
        self.messages_received_1: int = 0
        self.messages_received_2: int = 0
        self.messages_delivered_0: int = 0
        self.messages_delivered_1: int = 0
        self.messages_delivered_2: int = 0
        self.messages_redelivered: int = 0
        self.messages_dropped_expired: int = 0
        self.messages_dropped_queue_full: int = 0
        self.messages_dropped_no_subscriber: int = 0
        self.messages_dropped_too_large: int = 0
        self.messages_dropped_quota: int = 0
        self.messages_dropped_not_authorized: int = 0
        self.messages_dropped_retention: int = 0
        # Sessions.
        self.backup_age_seconds: int = 0
        self.backup_failed: int = 0
        self.backups_failed: int = 0
        self.backups_made: int = 0
        self.sessions_connected: int = 0
        self.sessions_offline: int = 0
        self.sessions_held_up: int = 0
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
        self.subscription_match_seconds = Histogram()
        self.subscriptions: int = 0
        self.subscriptions_offline: int = 0
        self.shared_subscriptions: int = 0
        self.shared_groups: int = 0
        self.retained_messages: int = 0
        self.retained_bytes: int = 0
        # Storage.
        self.storage_append_seconds = Histogram()
        self.storage_commit_seconds = Histogram()
        self.cluster_applied_messages: int = 0
        self.cluster_apply_cpu_seconds = Histogram()
        self.cluster_in_flight: int = 0
        self.cluster_lag: int = 0
        self.cluster_log_seconds = Histogram()
        self.cluster_members: int = 0
        self.cluster_position: int = 0
        self.cluster_stalled_seconds: int = 0
        self.storage_commit_batch_messages = Histogram()
        self.storage_read_seconds = Histogram()
        self.storage_errors: dict[tuple[str, ...], int] = {}
        self.storage_bytes: int = 0
        self.storage_messages: int = 0
        self.storage_generations: int = 0
        self.storage_streams: int = 0
        self.storage_backlog_messages: int = 0
        self.storage_backlog_seconds: int = 0
        self.archive_failures: int = 0
        self.archive_messages: int = 0
        self.archive_pages: int = 0
        self.archive_read_seconds = Histogram()
        self.archive_waiting: int = 0
        self.replays_cut_short: int = 0
        self.retention_held_generations: int = 0
        self.retention_waiting_generations: int = 0
        self.retention_unread_messages: int = 0
        # Authentication.
        self.auth: dict[tuple[str, ...], int] = {}
        self.auth_seconds = Histogram()
        self.auth_checks: dict[tuple[str, ...], int] = {}
        self.auth_check_seconds: dict[tuple[str, ...], Histogram] = {}
        self.auth_breaker_open: dict[tuple[str, ...], int] = {}
        self.forwarder_messages: dict[tuple[str, ...], int] = {}
        self.forwarder_dropped: dict[tuple[str, ...], int] = {}
        self.forwarder_failures: dict[tuple[str, ...], int] = {}
        self.forwarder_lag_messages: dict[tuple[str, ...], int] = {}
        self.forwarder_lag_seconds: dict[tuple[str, ...], int] = {}
        self.forwarder_up: dict[tuple[str, ...], int] = {}
        self.pipelines_behind_seconds: dict[tuple[str, ...], int] = {}
        self.pipelines_late_seconds: dict[tuple[str, ...], int] = {}
        self.pipelines_silent_seconds: dict[tuple[str, ...], int] = {}
        self.bans: int = 0
        self.clock_offset_lead_seconds: int = 0
        self.clock_steps_back: int = 0
        self.clock_steps_forward: int = 0
        self.refusals: dict[tuple[str, ...], int] = {}
        self.http_connections_dropped: dict[tuple[str, ...], int] = {}
        self.alarms: dict[tuple[str, ...], int] = {}
        self.bans_temporary: int = 0
        self.logins_failed: int = 0
        self.limit_refusals: dict[tuple[str, ...], int] = {}
        self.http_requests: dict[tuple[str, ...], int] = {}
        self.http_requests_in_flight: int = 0
        self.http_request_seconds_probe = Histogram()
        self.http_request_seconds_query = Histogram()
        self.http_request_seconds_read = Histogram()
        self.metrics_requests: dict[tuple[str, ...], int] = {}
        self.http_response_bytes: dict[tuple[str, ...], int] = {}

    @property
    def messages_received(self) -> int:
        """Messages published, with any QoS."""
        return self.messages_received_0 + self.messages_received_1 + self.messages_received_2

    @property
    def messages_delivered(self) -> int:
        """Messages sent to subscribers, with any QoS."""
        return self.messages_delivered_0 + self.messages_delivered_1 + self.messages_delivered_2

    @property
    def packets_received(self) -> list[int]:
        """Packets received, by type."""
        received = self.control_packets_received.copy()
        received[_PUBLISH] = self.publishes_received
        received[_PUBACK] = self.pubacks_received
        return received

    @property
    def packets_sent(self) -> list[int]:
        """Packets sent, by type."""
        sent = self.control_packets_sent.copy()
        sent[_PUBLISH] = self.messages_delivered
        sent[_PUBACK] += self.pubacks_sent
        return sent

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
