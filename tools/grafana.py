"""Writes the Grafana dashboard from a table: ``python -m tools.grafana``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

TARGET: Final = Path(__file__).parents[1] / "deploy/grafana/perdure.json"
WIDTH: Final = 24
HEIGHT: Final = 8
_OF: Final = '{job="$job",instance=~"$instance"}'


def _rate(name: str, *by: str) -> str:
    return f"sum by ({', '.join(('instance', *by))}) (rate({name}{_OF}[$__rate_interval]))"


def _quantile(share: float, name: str) -> str:
    return f"histogram_quantile({share}, {_rate(name + '_bucket', 'le')})"


def _latency(name: str) -> list[tuple[str, str]]:
    return [(f"p{round(share * 100)}", _quantile(share, name)) for share in (0.5, 0.99)]


def _latency_by(label: str, name: str) -> list[tuple[str, str]]:
    return [
        (
            f"{{{{{label}}}}} p{round(share * 100)}",
            f"histogram_quantile({share}, {_rate(name + '_bucket', 'le', label)})",
        )
        for share in (0.5, 0.99)
    ]


def _gauge(name: str) -> str:
    return f"perdure_{name}{_OF}"


ROWS: Final[tuple[tuple[str, tuple[tuple[str, str, list[tuple[str, str]]], ...]], ...]] = (
    ("Is it well?", (
        ("Up", "none", [("{{instance}}", "up" + _OF)]),
        ("Messages of durable sessions lost", "short", [
            ("{{reason}}", ("sum by (instance, reason) (increase(perdure_messages_dropped_total"
             '{job="$job",instance=~"$instance",reason=~"queue_full|retention"}[$__rate_interval]))')),
        ]),
        ("Storage errors", "short", [("{{kind}}", _rate("perdure_storage_errors_total", "kind"))]),
    )),
    ("Traffic", (
        ("Messages", "ops", [
            ("in, QoS {{qos}}", _rate("perdure_messages_received_total", "qos")),
            ("out, QoS {{qos}}", _rate("perdure_messages_delivered_total", "qos")),
        ]),
        ("Bytes", "Bps", [
            ("in", _rate("perdure_bytes_received_total")),
            ("out", _rate("perdure_bytes_sent_total")),
        ]),
        ("Dropped and sent again", "ops", [
            ("{{reason}}", _rate("perdure_messages_dropped_total", "reason")),
            ("sent again", _rate("perdure_messages_redelivered_total")),
        ]),
    )),
    ("Clients", (
        ("Connections", "short", [("{{listener}}", _gauge("connections"))]),
        ("Sessions", "short", [("{{state}}", _gauge("sessions"))]),
        ("Refused", "ops", [
            ("{{packet}} {{reason_code}}",
             _rate("perdure_refusals_total", "packet", "reason_code")),
            ("limit {{limit}}", _rate("perdure_limit_refusals_total", "limit")),
        ]),
    )),
    ("Latency", (
        ("PUBLISH to its acknowledgement", "s", _latency("perdure_publish_to_ack_seconds")),
        ("A sync to the disk", "s", _latency("perdure_storage_commit_seconds")),
        ("Lateness of the event loop", "s", _latency("perdure_event_loop_lag_seconds")),
    )),
    ("On the way", (
        ("PUBLISH to its delivery", "s",
         _latency_by("path", "perdure_publish_to_delivery_seconds")),
        ("Finding the subscriptions to a topic", "s",
         _latency("perdure_subscription_match_seconds")),
        ("Waiting for a sync", "s", [("{{instance}}", _gauge("storage_backlog_seconds"))]),
    )),
    ("What is owed", (
        ("Pending and in flight", "short", [
            ("pending", _gauge("pending_messages")),
            ("in flight", _gauge("inflight_messages")),
            ("waiting for a commit", _gauge("storage_backlog_messages")),
        ]),
        ("Oldest unacknowledged", "s", [("{{instance}}", _gauge("oldest_unacked_seconds"))]),
        ("Sessions held up", "short", [("{{instance}}", _gauge("sessions_held_up"))]),
    )),
    ("The log and the machine", (
        ("Log", "bytes", [("{{instance}}", _gauge("storage_bytes"))]),
        ("Memory and open files", "short", [
            ("resident bytes", "process_resident_memory_bytes" + _OF),
            ("open files", "process_open_fds" + _OF),
        ]),
        ("CPU", "percentunit", [("{{instance}}", _rate("process_cpu_seconds_total"))]),
    )),
)  # fmt: skip
"""(row, (title, unit, (legend, PromQL)...)...)."""

SOURCE: Final = {"type": "prometheus", "uid": "${source}"}


def _panel(number: int, place: dict[str, int], title: str, unit: str, asked: Any) -> dict[str, Any]:
    targets = [
        {"refId": chr(ord("A") + at), "datasource": SOURCE, "expr": expr, "legendFormat": legend}
        for at, (legend, expr) in enumerate(asked)
    ]
    return {
        "id": number,
        "type": "timeseries",
        "title": title,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}},
        "targets": targets,
    }


def _variable(name: str, kind: str, query: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "query": query, "refresh": 2, **more}


def dashboard() -> dict[str, Any]:
    """The whole of it."""
    panels: list[dict[str, Any]] = []
    top = 0
    for row, members in ROWS:
        place = {"h": 1, "w": WIDTH, "x": 0, "y": top}
        panels.append(
            {"id": len(panels) + 1, "type": "row", "title": row, "gridPos": place, "panels": []}
        )
        width = WIDTH // len(members)
        for at, (title, unit, asked) in enumerate(members):
            spot = {"h": HEIGHT, "w": width, "x": at * width, "y": top + 1}
            panels.append(_panel(len(panels) + 1, spot, title, unit, asked))
        top += 1 + HEIGHT
    source = {"datasource": SOURCE, "includeAll": False}
    return {
        "uid": "perdure",
        "title": "Perdure",
        "tags": ["mqtt"],
        "schemaVersion": 41,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [
            _variable("source", "datasource", "prometheus", label="Data source"),
            _variable("job", "query", "label_values(perdure_build_info, job)", **source),
            _variable(
                "instance", "query", 'label_values(perdure_build_info{job="$job"}, instance)',
                **{**source, "includeAll": True}, multi=True,
            ),
        ]},
        "panels": panels,
    }  # fmt: skip


if __name__ == "__main__":
    TARGET.write_text(json.dumps(dashboard(), indent=1) + "\n", encoding="utf-8")
