"""What is printed for a message."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import click
import pytest

from perdure.cli.message_format import (
    BadPayload,
    compile_format,
    message_record,
    payload_only,
    verbose,
)
from perdure.mqtt.encode import forward_properties
from perdure.mqtt.packets import Properties, Publish

AT_NS = 1_470_818_943_786_368_637

FULL = Publish(
    "x/ü",
    b"abc",
    2,
    retain=True,
    packet_id=7,
    expiry_s=60,
    forward=forward_properties(
        Properties(
            payload_format_indicator=1,
            content_type="text/plain",
            response_topic="r/t",
            correlation_data=b"id-1",
            user_properties=(("a", "1"), ("b", "2")),
        )
    ),
    identifiers=(3, 4),
)
BARE = Publish("t", b"\xff\x00")


@pytest.fixture(autouse=True)
def far_east(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A time zone that is not UTC and has no summer time."""
    monkeypatch.setenv("TZ", "XST-3:30")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", b""),
        ("plain ü", "plain ü".encode()),
        ("%t %p", "x/ü abc".encode()),
        ("%%|@@|\\\\|\\0\\a\\e\\n\\r\\t\\v", b"%|@|\\|\0\a\x1b\n\r\t\v"),
        ("%C|%E|%F|%R|%S|%D|%P", b"text/plain|60|1|r/t|3 4|id-1|a:1 b:2"),
        ("%l|%05l|%5l|%-5l|", b"3|00003|    3|3    |"),
        ("%m %q %r", b"7 2 1"),
        ("%5t|%-5t|%.1t|%4.1t|%05t", "  x/ü|x/ü  |x|   x|  x/ü".encode()),
        ("%x %X", b"616263 616263"),
        ("%8x|%-8x|%08x|%-08x|", b"  616263|616263  |00616263|616263  |"),
        ("%5p|%-5p|", b"  abc|abc  |"),
        ("%I", b"2016-08-10T12:19:03+0330"),
        ("%U", b"1470818943.786368637"),
        ("@Y-@m-@d @H:@M:@S.@N", b"2016-08-10 12:19:03.786368637"),
        ("%A", b""),
    ],
)
def test_format(text: str, expected: bytes) -> None:
    assert compile_format(text)(FULL, AT_NS) == expected


def test_absent_values_are_empty() -> None:
    assert compile_format("%A|%C|%D|%E|%F|%P|%R|%S|%m")(BARE, AT_NS) == b"||||||||0"
    assert compile_format("%p %X")(BARE, AT_NS) == b"\xff\x00 FF00"
    aliased = Publish("t", b"", topic_alias=5)
    assert compile_format("%03A")(aliased, AT_NS) == b"005"


@pytest.mark.parametrize("text", ["%", "%5", "@", "\\", "%z", "\\z", "a%-"])
def test_bad_formats(text: str) -> None:
    with pytest.raises(click.UsageError):
        compile_format(text)


def test_plain_printers() -> None:
    assert payload_only(FULL, AT_NS) == b"abc"
    assert verbose(FULL, AT_NS) == "x/ü abc".encode()


def test_mosquitto_json() -> None:
    assert json.loads(compile_format("%j")(FULL, AT_NS)) == {
        "tst": "2016-08-10T12:19:03.786368+0330",
        "topic": "x/ü",
        "qos": 2,
        "retain": 1,
        "payloadlen": 3,
        "mid": 7,
        "properties": {
            "payload-format-indicator": 1,
            "content-type": "text/plain",
            "response-topic": "r/t",
            "correlation-data": "id-1",
            "user-properties": {"a": "1", "b": "2"},
            "message-expiry-interval": 60,
            "subscription-identifier": 3,
        },
        "payload": "abc",
    }
    plain = json.loads(compile_format("%j")(BARE, AT_NS))
    assert "mid" not in plain
    assert "properties" not in plain
    assert plain["payload"] == "\ufffd\x00"
    binary = Publish("t", b"", forward=forward_properties(Properties(correlation_data=b"\xff")))
    assert json.loads(compile_format("%j")(binary, AT_NS))["properties"] == {
        "correlation-data": "ff"
    }


def test_mosquitto_json_with_a_parsed_payload() -> None:
    text = compile_format("%J")(Publish("t", b'{"a": [1, 2.5]}'), AT_NS)
    assert json.loads(text)["payload"] == {"a": [1, 2.5]}
    for bad in (b"{", b"[" * 100_000):
        with pytest.raises(BadPayload):
            compile_format("%J")(Publish("t", bad), AT_NS)


def test_record() -> None:
    assert message_record(FULL, AT_NS) == {
        "received_at": "2016-08-10T08:49:03.786368Z",
        "topic": "x/ü",
        "qos": 2,
        "retain": True,
        "dup": False,
        "packet_id": 7,
        "payload": "YWJj",
        "payload_text": "abc",
        "properties": {
            "payload_format_indicator": 1,
            "content_type": "text/plain",
            "response_topic": "r/t",
            "correlation_data": "aWQtMQ==",
            "user_properties": (("a", "1"), ("b", "2")),
            "message_expiry_interval": 60,
            "subscription_identifiers": [3, 4],
        },
    }
    bare = message_record(BARE, AT_NS)
    assert (bare["payload"], bare["payload_text"], bare["packet_id"]) == ("/wA=", None, None)
    assert bare["properties"] == {}
