"""JSON of TBMQ: read in every form that it has, written in the latest."""

from __future__ import annotations

import json
from typing import Any

import pytest

from perdure.errors import StorageCorrupt
from perdure.model import Message
from perdure.storage.device_queue import EntryState, NewEntry, QueuedEntry
from perdure.storage.redis import tbmq_record
from tests.contract.queues import NOW_US, PROPERTIES, SECOND_US

TIME_MS = 1_736_333_110_026
PLAIN: dict[str, Any] = {
    "packetType": "PUBLISH",
    "payload": "eyJkYXRhIjoidGJtcWlzYXdlc29tZSJ9",
    "time": TIME_MS,
    "clientId": "client",
    "retained": False,
    "packetId": 1,
    "topicName": "europe/ua/kyiv/client/0",
    "qos": 1,
}


def read(values: dict[str, Any], expiry_ms: int = -1, packet_id: int = 1) -> QueuedEntry:
    text = json.dumps(values).encode()
    return tbmq_record.decode(text, serial=9, packet_id=packet_id, expiry_ms=expiry_ms)


def written(new: NewEntry, packet_id: int = 1) -> dict[str, Any]:
    text = b'{"packetId":%d%b' % (packet_id, tbmq_record.tail(new))
    values: dict[str, Any] = json.loads(text)
    return values


def test_a_message_of_tbmq_is_read() -> None:
    entry = read(PLAIN)
    assert (entry.serial, entry.packet_id, entry.state, entry.qos) == (9, 1, EntryState.PUBLISH, 1)
    message = entry.message
    assert message.payload == b'{"data":"tbmqisawesome"}'
    assert (message.topic, message.published_at_us) == (PLAIN["topicName"], TIME_MS * 1000)
    assert (message.properties, message.expires_at_us, entry.forget_at_us) == (b"", 0, 0)


def test_what_we_write_is_what_tbmq_writes() -> None:
    message = Message(
        PLAIN["topicName"], b'{"data":"tbmqisawesome"}', 1, published_at_us=TIME_MS * 1000 + 7
    )
    assert written(NewEntry("client", message, 1)) == PLAIN


def test_the_older_name_of_the_topic_is_read() -> None:
    older = {**PLAIN, "topic": "old/name"}
    del older["topicName"]
    assert read(older).message.topic == "old/name"


def test_nulls_are_absent() -> None:
    names = ("userProperties", "msgExpiryInterval", "contentType", "correlationData")
    entry = read({**PLAIN, **dict.fromkeys(names), "payload": None, "retained": None})
    assert entry.message.payload == b""
    assert entry.message.properties == b""
    assert read({**PLAIN, "userProperties": {"props": None}}).message.properties == b""


def test_properties_go_both_ways() -> None:
    message = Message("t", b"", 2, properties=PROPERTIES, published_at_us=NOW_US)
    values = written(NewEntry("c", message, 2, retain=True, identifiers=(1, 7)))
    assert values["userProperties"] == {
        "props": [{"k": "unit", "v": "K"}, {"k": "unit", "v": "°C"}, {"k": "", "v": ""}]
    }
    assert values["correlationData"] == "AP8="
    assert (values["payloadFormatIndicator"], values["contentType"]) == (1, "text/plain")
    assert (values["responseTopic"], values["subscriptionIds"]) == ("answers/ä", [1, 7])
    assert values["retained"] is True
    entry = read(values)
    assert entry.message.properties == PROPERTIES
    assert (entry.qos, entry.retain, entry.identifiers) == (2, True, (1, 7))


def test_an_interval_is_from_the_time_of_the_message() -> None:
    entry = read({**PLAIN, "msgExpiryInterval": 60}, expiry_ms=TIME_MS + 60_020)
    assert entry.message.expires_at_us == (TIME_MS + 60_000) * 1000
    # The expiry of its key is the same one.
    assert entry.forget_at_us == 0


def test_the_expiry_of_a_key_is_the_lifetime_in_the_queue() -> None:
    entry = read(PLAIN, expiry_ms=TIME_MS + 604_800_000)
    assert entry.forget_at_us == (TIME_MS + 604_800_000) * 1000
    assert entry.message.expires_at_us == 0
    sooner = read({**PLAIN, "msgExpiryInterval": 60}, expiry_ms=TIME_MS + 30_000)
    assert sooner.forget_at_us == (TIME_MS + 30_000) * 1000


def test_a_pubrel_is_owed_without_interval_or_payload() -> None:
    entry = read({**PLAIN, "packetType": "PUBREL", "qos": 2, "msgExpiryInterval": 1})
    assert (entry.state, entry.qos) == (EntryState.PUBREL, 2)
    assert (entry.message.payload, entry.message.expires_at_us) == (b"", 0)
    new = NewEntry("c", Message("t", b"x", expires_at_us=9), 2, state=EntryState.PUBREL)
    values = written(new)
    assert (values["packetType"], values["payload"]) == ("PUBREL", "")
    assert "msgExpiryInterval" not in values


def test_an_expiry_in_the_middle_of_a_second_is_not_too_early() -> None:
    message = Message("t", b"", 1, published_at_us=NOW_US, expires_at_us=NOW_US + SECOND_US + 1)
    assert written(NewEntry("c", message, 1))["msgExpiryInterval"] == 2
    assert tbmq_record.deadline_ms(NewEntry("c", message, 1)) == NOW_US // 1000 + 1001


def test_the_name_of_the_key_outranks_the_json() -> None:
    assert read(PLAIN, packet_id=5).packet_id == 5
    assert read(PLAIN, packet_id=0).packet_id == 1
    assert read({**PLAIN, "packetId": None}, packet_id=0).packet_id == 0


def test_a_bare_pubrel_has_what_tbmq_needs() -> None:
    values = json.loads(b'{"packetId":4' + tbmq_record.bare_pubrel_tail("c"))
    assert read(values, packet_id=4).state is EntryState.PUBREL
    assert values["clientId"] == "c"


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b'{"qos":"x"}', b'{"payload":"*"}', b"\xff"])
def test_other_json_is_corrupt(text: bytes) -> None:
    with pytest.raises(StorageCorrupt):
        tbmq_record.decode(text, serial=1, packet_id=1, expiry_ms=-1)


@pytest.mark.parametrize(
    "changes",
    [
        {"contentType": "x" * 70_000},
        {"payloadFormatIndicator": 300},
        {"userProperties": {"props": [{"k": "x" * 70_000, "v": ""}]}},
    ],
)
def test_properties_that_mqtt_cannot_carry_are_corrupt(changes: dict[str, Any]) -> None:
    with pytest.raises(StorageCorrupt):
        read({**PLAIN, **changes})


def test_properties_that_are_none_are_corrupt() -> None:
    with pytest.raises(StorageCorrupt):
        tbmq_record.tail(NewEntry("c", Message("t", b"", properties=b"\x7f"), 1))
