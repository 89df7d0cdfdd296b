"""Rows of each release's tables, as plain mappings."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.mqtt.encode import properties_from_forward
from perdure.pipeline.tbmq import rows
from perdure.pipeline.tbmq.message_json import DamagedEntry

V1_0 = {"client_id", "serial_number", "topic", "time", "packet_id", "packet_type", "qos", "payload"}
V1_2 = V1_0 | {
    "user_properties",
    "retain",
    "msg_expiry_interval",
    "payload_format_indicator",
    "content_type",
}
V1_3 = V1_2 | {"response_topic", "correlation_data"}
TIME_MS = 1_700_000_000_000
DAY_US = 86_400_000_000


def _row(**fields: Any) -> dict[str, Any]:
    return (
        dict.fromkeys(V1_3)
        | {
            "client_id": "c",
            "serial_number": 0,
            "topic": "t",
            "time": TIME_MS,
            "packet_id": 1,
            "packet_type": "PUBLISH",
            "qos": 1,
            "payload": b"x",
        }
        | fields
    )


def test_columns_of_each_release() -> None:
    for present in (V1_0, V1_2, V1_3):
        assert rows.missing_columns(present) == []
        listed = rows.select_list(present).split(", ")
        assert {each.split(" AS ")[-1] for each in listed} == V1_3
        assert {each for each in listed if "::" not in each} == present
    assert "NULL::bytea AS correlation_data" in rows.select_list(V1_2)
    assert rows.missing_columns(V1_3 - {"payload", "time"}) == ["time", "payload"]
    assert rows.select_list(V1_0, light=True).endswith(
        "packet_id, packet_type, time, NULL::integer AS msg_expiry_interval"
    )


def test_a_row() -> None:
    entry = rows.parse_row(
        _row(
            qos=2,
            retain=True,
            user_properties='{"props":[{"k":"a","v":"b"}]}',
            payload_format_indicator=0,
            content_type="c",
            response_topic="r",
            correlation_data=b"\x01",
            msg_expiry_interval=5,
        ),
        place=7,
        packet_id=9,
        ttl_s=100,
    )
    assert (entry.place, entry.packet_id, entry.qos, entry.retain) == (7, 9, 2, True)
    assert entry.expires_at_us == (TIME_MS + 5_000) * 1000
    assert entry.forget_at_us == 0
    properties = properties_from_forward(entry.properties)
    assert properties.user_properties == (("a", "b"),)
    assert (properties.content_type, properties.response_topic) == ("c", "r")
    assert (properties.correlation_data, properties.payload_format_indicator) == (b"\x01", 0)


def test_what_only_the_first_release_has() -> None:
    entry = rows.parse_row(_row(packet_type=None), place=1, packet_id=1, ttl_s=100)
    assert not entry.released
    assert entry.forget_at_us == TIME_MS * 1000 + 100_000_000
    assert rows.parse_row(_row(), place=1, packet_id=1, ttl_s=0).forget_at_us == 0


def test_what_is_still_owed() -> None:
    now_us = TIME_MS * 1000 + 8 * DAY_US
    week_s = 7 * 86_400
    assert not rows.is_owed(_row(), ttl_s=week_s, now_us=now_us)
    assert rows.is_owed(_row(), ttl_s=0, now_us=now_us)
    assert rows.is_owed(_row(msg_expiry_interval=week_s * 2), ttl_s=week_s, now_us=now_us)
    assert not rows.is_owed(_row(msg_expiry_interval=1), ttl_s=0, now_us=now_us)
    pubrel = _row(packet_type="PUBREL", msg_expiry_interval=1)
    assert rows.is_owed(pubrel, ttl_s=1, now_us=now_us)
    assert rows.parse_row(pubrel, place=1, packet_id=1, ttl_s=1).is_owed(now_us)


@pytest.mark.parametrize("fields", [{"payload": None}, {"topic": ""}, {"qos": 9}])
def test_damaged(fields: dict[str, Any]) -> None:
    with pytest.raises(DamagedEntry):
        rows.parse_row(_row(**fields), place=1, packet_id=1, ttl_s=0)
