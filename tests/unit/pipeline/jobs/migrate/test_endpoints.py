"""URLs of stores."""

from __future__ import annotations

import pytest

from perdure.errors import ConfigError
from perdure.pipeline.jobs.migrate.endpoints import Endpoint, parse_endpoint, redacted


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("postgresql://u:p@h/d", "postgres"),
        ("postgres://h", "postgres"),
        ("redis://h:1/2", "redis"),
        ("rediss://h", "redis"),
        ("redis+cluster://h:7000", "redis"),
        ("redis+cluster://h:7000,i:7001", "redis"),
        ("redis+cluster://u:p@h:7000,[::1]:7001/0", "redis"),
        ("data", "directory"),
        ("/var/lib/perdure", "directory"),
        ("file:///var/lib/perdure", "directory"),
    ],
)
def test_kinds(text: str, kind: str) -> None:
    endpoint = parse_endpoint(text, layout="compact", prefix="p:")
    assert endpoint.kind == kind
    assert endpoint.prefix == ("p:" if kind == "redis" else "")
    assert parse_endpoint("file:///data", layout="tbmq").url == "/data"


@pytest.mark.parametrize("text", ["mysql://h", "redis://", "redis://h:x", "", "file://"])
def test_no_such_store(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_endpoint(text, layout="tbmq")


def test_passwords_are_not_shown() -> None:
    assert redacted("redis://:s@ecret@h:1/0") == "redis://:***@h:1/0"
    assert redacted("postgresql://u:secret@h/d") == "postgresql://u:***@h/d"
    assert redacted("postgresql://u@h/d?x=1") == "postgresql://u@h/d?x=1"
    assert redacted("data") == "data"
    assert redacted("postgresql://h/d?user=u&password=s") == "postgresql://h/d?user=u&password=***"
    assert redacted("postgresql://u:s@h/d?sslpassword=s&x=1") == (
        "postgresql://u:***@h/d?sslpassword=***&x=1"
    )
    shown = Endpoint("redis", "redis://:x@h", "compact", "p:").shown
    assert shown == "redis://:***@h (compact, prefix p:)"
    assert Endpoint("directory", "data").shown == "data"
