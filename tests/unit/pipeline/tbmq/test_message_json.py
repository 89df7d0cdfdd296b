"""The JSON of TBMQ 2.x, written by hand: every field, every release, and what is no message."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from perdure.mqtt.encode import properties_from_forward
from perdure.pipeline.tbmq.message_json import (
    DamagedEntry,
    parse_message,
    parse_user_properties,
)
from perdure.pipeline.tbmq.pending import PendingEntry

TIME_MS = 1_736_333_110_026


def _parse(forget_at_us: int = 0, **fields: Any) -> PendingEntry:
    stored = {
        "packetType": "PUBLISH",
        "payload": base64.b64encode(b"data").decode(),
        "time": TIME_MS,
        "clientId": "client",
        "retained": False,
        "packetId": 1,
        "topicName": "europe/ua/kyiv/client/0",
        "qos": 1,
    } | fields
    present = {name: value for name, value in stored.items() if value is not ...}
    value = json.dumps(present).encode()
    return parse_message(value, place=3, packet_id=1, forget_at_us=forget_at_us)


def test_a_message() -> None:
    entry = _parse(forget_at_us=5)
    assert (entry.place, entry.packet_id, entry.released) == (3, 1, False)
    assert (entry.topic, entry.payload) == ("europe/ua/kyiv/client/0", b"data")
    assert (entry.qos, entry.retain, entry.properties) == (1, False, b"")
    assert (entry.published_at_us, entry.expires_at_us) == (TIME_MS * 1000, 0)
    assert entry.forget_at_us == 5
    assert not entry.is_owed(5)


def test_all_properties() -> None:
    entry = _parse(
        retained=True,
        qos=2,
        userProperties={"props": [{"k": "b", "v": "1"}, {"k": "a", "v": ""}, {"k": "b", "v": "2"}]},
        msgExpiryInterval=60,
        payloadFormatIndicator=1,
        contentType="text/plain",
        responseTopic="answers",
        correlationData=base64.b64encode(b"\x00\xff").decode(),
        subscriptionIds=[3, 268_435_455],
    )
    assert (entry.qos, entry.retain, entry.identifiers) == (2, True, (3, 268_435_455))
    properties = properties_from_forward(entry.properties)
    assert properties.user_properties == (("b", "1"), ("a", ""), ("b", "2"))
    assert properties.payload_format_indicator == 1
    assert (properties.content_type, properties.response_topic) == ("text/plain", "answers")
    assert properties.correlation_data == b"\x00\xff"
    assert entry.expires_at_us == (TIME_MS + 60_000) * 1000
    assert entry.is_owed(entry.expires_at_us - 1)
    assert not entry.is_owed(entry.expires_at_us)


def test_the_first_release_wrote_topic() -> None:
    assert _parse(topicName=..., topic="old").topic == "old"


def test_a_pubrel_is_owed_whatever_its_interval_says() -> None:
    entry = _parse(packetType="PUBREL", msgExpiryInterval=1, payload="", topicName=...)
    assert (entry.released, entry.qos, entry.payload) == (True, 2, b"")
    assert entry.is_owed(2**62)


def test_empty_payload_nulls_and_an_interval_of_zero() -> None:
    entry = _parse(payload="", userProperties=None, contentType=None, unknown={"a": 1})
    assert entry.payload == b""
    assert _parse(payload=...).payload == b""
    assert not _parse(msgExpiryInterval=0, time=0).is_owed(1)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"payload": "%"}, "decode"),
        ({"qos": 3}, "QoS is 3"),
        ({"qos": "1"}, "decode"),
        ({"topicName": "a/+"}, "wildcard"),
        ({"topicName": ...}, "topic"),
        ({"packetType": "PUBACK"}, "PUBACK"),
        ({"msgExpiryInterval": -1}, "-1"),
    ],
)
def test_what_is_no_message_says_why(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(DamagedEntry, match=said):
        _parse(**fields)
    with pytest.raises(DamagedEntry):
        parse_message(b"{", place=1, packet_id=1, forget_at_us=0)


def test_user_properties_of_a_column() -> None:
    assert parse_user_properties(None) == ()
    assert parse_user_properties("") == ()
    assert parse_user_properties("null") == ()
    assert parse_user_properties('{"props":null}') == ()
    assert parse_user_properties('{"props":[{"k":"ä","v":"ö"}]}') == (("ä", "ö"),)
    with pytest.raises(DamagedEntry):
        parse_user_properties('[{"k":"a"}]')
