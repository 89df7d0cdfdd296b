"""What of a forwarder's settings is refused before it runs, and by which name."""

from __future__ import annotations

import pytest

from perdure.errors import ConfigError
from perdure.forwarders.check import check_forwarder
from perdure.forwarders.definitions import bind_settings


@pytest.mark.parametrize(
    ("given", "setting"),
    [
        ({"type": "mqtt"}, "url"),
        ({"type": "mqtt", "url": "http://h"}, "url"),
        ({"type": "mqtt", "url": "mqtt://h", "topic": "a/#"}, "topic"),
        (
            {"type": "mqtt", "url": "mqtt://h", "direction": "in", "local_topic": "+/{topic}"},
            "local_topic",
        ),
        ({"type": "webhook", "url": "ftp://h"}, "url"),
        ({"type": "postgres", "table": "t"}, "url"),
        ({"type": "postgres", "url": "h:5432", "table": "t"}, "url"),
        ({"type": "postgres", "url": "mysql://h/d", "table": "t"}, "url"),
        ({"type": "postgres", "url": "postgres://h/d", "table": "a b"}, "table"),
        ({"type": "kafka", "topic": "t"}, "bootstrap"),
        ({"type": "kafka", "bootstrap": "h:9092", "topic": "a b"}, "topic"),
        ({"type": "redis"}, "url"),
    ],
)
def test_what_cannot_be_used(given: dict[str, str], setting: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check_forwarder("x", bind_settings("x", dict(given)))
    assert refused.value.path == f"forwarders.x.{setting}"


@pytest.mark.parametrize("url", ["postgres://h/d", "postgresql://u:p@h:5432/d?sslmode=require"])
def test_what_can(url: str) -> None:
    check_forwarder("x", bind_settings("x", {"type": "postgres", "url": url, "table": "s.t"}))
