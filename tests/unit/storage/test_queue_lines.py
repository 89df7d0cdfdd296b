"""The lines of an export, field by field."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from perdure.model import Message
from perdure.mqtt.encode import forward_properties
from perdure.mqtt.packets import Properties
from perdure.storage.device_queue import EntryState, QueuedEntry
from perdure.storage.queue_lines import entry_line, session_line

NOW_US = 1_700_000_000_123_000
SECOND_US = 1_000_000


def line(message: Message, **fields: Any) -> dict[str, Any]:
    values = {"serial": 9, "packet_id": 3, "state": EntryState.PUBLISH, "qos": 1, **fields}
    written = msgspec.json.encode(entry_line("c 1", QueuedEntry(message=message, **values)))
    read: dict[str, Any] = json.loads(written)
    return read


def test_a_plain_message() -> None:
    assert line(Message("a/b", b"\x00\xff", 2, published_at_us=NOW_US)) == {
        "client_id": "c 1",
        "packet_id": 3,
        "topic": "a/b",
        "qos": 1,
        "retain": False,
        "payload_base64": "AP8=",
        "properties": {},
        "expires_at": None,
        "state": "PUBLISH",
    }


def test_all_that_a_message_may_have() -> None:
    properties = Properties(
        payload_format_indicator=0,
        content_type="",
        response_topic="answers/ä",
        correlation_data=b"\x01",
        user_properties=(("a", "1"), ("a", "2")),
    )
    message = Message(
        "t",
        b"",
        2,
        properties=forward_properties(properties),
        expires_at_us=NOW_US + 60 * SECOND_US,
        published_at_us=NOW_US,
    )
    found = line(message, qos=2, retain=True, identifiers=(5, 6), packet_id=0)
    assert found["properties"] == {
        "payload_format_indicator": 0,
        "content_type": "",
        "response_topic": "answers/ä",
        "correlation_data": "AQ==",
        "user_properties": [["a", "1"], ["a", "2"]],
        "message_expiry_interval": 60,
        "subscription_identifiers": [5, 6],
    }
    assert (found["packet_id"], found["retain"], found["qos"]) == (None, True, 2)
    assert found["expires_at"] == NOW_US // 1000 + 60_000


def test_whatever_ends_it_first() -> None:
    expires, forget = NOW_US + 60 * SECOND_US, NOW_US + 5 * SECOND_US
    message = Message("t", b"", 1, expires_at_us=expires, published_at_us=NOW_US)
    assert line(message, forget_at_us=forget)["expires_at"] == forget // 1000
    assert line(message, forget_at_us=expires + 1)["expires_at"] == expires // 1000
    plain = Message("t", b"", 1, published_at_us=NOW_US)
    found = line(plain, forget_at_us=forget, state=EntryState.PUBREL)
    assert (found["expires_at"], found["state"]) == (forget // 1000, "PUBREL")
    assert found["properties"] == {}


def test_a_session() -> None:
    assert session_line("c", 0) == {"client_id": "c", "last_packet_id": 0}
