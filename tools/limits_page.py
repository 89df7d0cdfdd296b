"""The page of limits: what the schema says of each, and what is seen when it is reached."""

from __future__ import annotations

from typing import Final

from perdure.config.fields import Setting, settings
from perdure.config.reference import default_text, own_maximum
from perdure.config.schema import Config
from perdure.config.units import format_size

SECTIONS: Final = ("limits", "session", "mqtt")
"""All whose numbers are limits."""

ENDINGS: Final = ("_max", "_rate", "backlog", "max_open_files", "disk_bytes_max")
"""Of the names of limits in other sections."""

OTHERS: Final = {"retention.bytes", "retention.time_s"}
NOT_ONE: Final = ("alarms.", "forwarders.", "listeners.tls", "listeners.ws", "session.feed_chunk")
"""Thresholds, bounds of work, and what is said of ``listeners.tcp`` already."""

REFUSED: Final = "`perdure_limit_refusals_total{limit}`"
QUOTA: Final = "0x97 (3.1.1: {v3})"

SEEN: Final = {
    "listeners.tcp[].connections_max": "The connection is closed before a packet; "
    f"`listener.refused`, {REFUSED}",
    "listeners.tcp[].connections_per_ip_max": "As `limits.connections_per_ip_max`",
    "listeners.tcp[].connect_rate": "As `limits.connect_rate`",
    "listeners.tcp[].publish_rate": "As `limits.publish_rate`",
    "listeners.tcp[].publish_bytes_rate": "As `limits.publish_bytes_rate`",
    "listeners.tcp[].subscribe_rate": "As `limits.subscribe_rate`",
    "mqtt.packet_size_max": "DISCONNECT 0x95 (3.1.1: the connection is closed)",
    "mqtt.connect_size_max": "The connection is closed: nobody knows yet which version it speaks",
    "mqtt.subscribe_filters_max": "DISCONNECT 0x97 (3.1.1: the connection is closed)",
    "mqtt.properties_max": "DISCONNECT 0x97",
    "mqtt.receive_maximum": "In CONNACK; who sends more: DISCONNECT 0x93",
    "mqtt.topic_alias_maximum": "In CONNACK; a higher alias: DISCONNECT 0x94",
    "mqtt.keep_alive_max_s": "In CONNACK as the server's keep alive (5.0)",
    "mqtt.maximum_qos": "In CONNACK; a PUBLISH above it: DISCONNECT 0x9B, a will: CONNACK 0x9B; "
    "SUBACK grants no more",
    "mqtt.topic_levels_max": "Topic name 0x90, topic filter 0x8F",
    "mqtt.client_id_bytes_max": "CONNACK 0x85 (3.1.1: 2)",
    "mqtt.connect_timeout_ms": "The connection is closed",
    "session.expiry_max_s": "In CONNACK as the session expiry (5.0)",
    "session.inflight_max": "Nothing: messages wait in the log",
    "session.inflight_catch_up_max": "Nothing: messages wait in the log",
    "session.memory_pending_max": "Nothing: messages are read from the log",
    "session.outbound_buffer_bytes": "Deliveries pause, and nothing is read from the client; "
    'QoS 0 for it is dropped: `perdure_messages_dropped_total{reason="queue_full"}`',
    "session.subscriptions_max": f"SUBACK {QUOTA.format(v3='0x80')}; {REFUSED}",
    "session.subscription_bytes_max": f"SUBACK {QUOTA.format(v3='0x80')}; {REFUSED}",
    "limits.connections_max": "The connection is closed before a packet; `listener.refused`, "
    f"{REFUSED}",
    "limits.connections_per_ip_max": "The connection is closed before a packet; "
    f"`listener.refused`, {REFUSED}",
    "limits.connect_rate": "The connection is closed before a packet; `listener.refused`, "
    f"{REFUSED}",
    "limits.incomplete_bytes_max": "Nothing more is read from the client until there is room; who "
    "holds room and sends less than 64 KiB a second is closed",
    "limits.connect_bytes_max": f"The connection is closed; {REFUSED}",
    "limits.connects_waiting_max": "Connections wait in the system's backlog",
    "limits.publish_rate": "Nothing is read from the client for a while",
    "limits.publish_bytes_rate": "Nothing is read from the client for a while",
    "limits.subscribe_rate": "Nothing is read from the client for a while",
    "limits.content_filters_max": f"SUBACK {QUOTA.format(v3='0x80')}; {REFUSED}",
    "limits.content_filter_bytes_max": f"SUBACK {QUOTA.format(v3='0x80')}; {REFUSED}",
    "limits.flapping_max": "A [ban](../howto/bans.md): CONNACK 0x8A (3.1.1: 5)",
    "limits.sessions_max": f"CONNACK {QUOTA.format(v3='3')}; {REFUSED}",
    "limits.sessions_per_user_max": f"CONNACK {QUOTA.format(v3='3')}; {REFUSED}",
    "limits.will_bytes_max": f"CONNACK {QUOTA.format(v3='3')}; {REFUSED}",
    "limits.subscriptions_max": f"SUBACK {QUOTA.format(v3='0x80')}; {REFUSED}",
    "limits.retained_messages_max": "PUBACK or PUBREC 0x97; QoS 0 and 3.1.1: delivered and not "
    f"retained; {REFUSED}",
    "limits.retained_bytes_max": "PUBACK or PUBREC 0x97; QoS 0 and 3.1.1: delivered and not "
    f"retained; {REFUSED}",
    "auth.failures_max": "CONNACK 0x8A (3.1.1: 5); `perdure bans` lists it",
    "auth.failures_per_address_max": "CONNACK 0x8A (3.1.1: 5); `perdure bans` lists it",
    "auth.verify_queue_max": "CONNACK 0x89 (3.1.1: 3)",
    "auth.verify_pending_per_address_max": "CONNACK 0x97 (3.1.1: 3)",
    "auth.verify_pending_per_user_max": "CONNACK 0x97 (3.1.1: 3)",
    "http.connections_max": "Another connection makes room, or 503 `busy`; "
    "`perdure_http_connections_dropped_total{reason}`",
    "metrics.connections_max": "Another connection makes room: `perdure_metrics_requests_total` "
    "with `evicted`",
    "retention.disk_bytes_max": "`refuse`: PUBACK or PUBREC 0x97 (3.1.1: closed), "
    "`perdure status` says `refusing`, `/readyz` 503; `drop_oldest`: `generation.dropped`",
    "retention.bytes": "The oldest generation goes: `generation.dropped`",
    "retention.time_s": "The generation goes: `generation.dropped`",
}
"""What who reaches a limit, or an operator, sees. Where it is missing, the setting's description
says all there is."""

for _name in ("messages_max", "bytes_max", "age_max_s"):
    SEEN[f"session.pending_{_name}"] = (
        "The oldest are dropped: `dropped_count` of the session, and a 5.0 client finds their "
        "number in the user property `perdure-dropped`"
    )

INTRODUCTION: Final = """\
# Limits

<!-- Generated by `make docs`; do not edit. -->

Every setting that bounds something, with what is seen when it is reached: reason codes of MQTT 5.0
(of 3.1.1 in brackets), events of the [log](log-events.md), [metrics](metrics.md). What they are
for, and which to set, is told in [durability and limits](../howto/limits.md); all settings are in
[configuration](configuration.md). A dash: what the description says is all there is to see.

**Live** settings take effect at a reload, or when they are changed while the broker runs; the
others at a restart. `listeners.tcp[]` stands for listeners of every kind.
[Requests of HTTP](../howto/api.md#limits) have fixed limits besides.
"""


def is_limit(setting: Setting) -> bool:
    """Whether a setting bounds what clients or others may do."""
    path = setting.path
    if setting.kind is not int or path.startswith(NOT_ONE):
        return False
    section = path.partition(".")[0]
    return section in SECTIONS or path in OTHERS or path.endswith(ENDINGS)


def limits() -> list[Setting]:
    """All of them, in the order of the configuration."""
    return [setting for setting in settings(Config) if is_limit(setting)]


def reference() -> str:
    """The page."""
    parts = [INTRODUCTION]
    section = ""
    for setting in limits():
        above, _, name = setting.path.rpartition(".")
        if above != section:
            section = above
            parts.append(
                f"\n## {section}\n\n| Setting | Default | Unit | Range | Reload | What it bounds "
                "| What is seen |\n|---|---|---|---|---|---|---|\n"
            )
        cells = (
            f"`{name}`",
            default_text(setting),
            setting.unit,
            _range(setting),
            setting.reload,
            setting.description,
            SEEN.get(setting.path, "-"),
        )
        parts.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n")
    return "".join(parts)


def _range(setting: Setting) -> str:
    low, high = setting.minimum or 0, own_maximum(setting)
    text = [format_size(n) if n and setting.unit == "bytes" else str(n) for n in (low, high or 0)]
    return f"{text[0]} to {text[1]}" if high is not None else f"from {text[0]}"
