"""CONNECT: which protocol it names, and bodies that break a rule."""

from __future__ import annotations

import pytest

from perdure.mqtt import packets as p
from tests.unit.mqtt.feeding import (
    CONNECT_BYTES,
    decoded,
    feed_both,
    fresh,
    refused_connect,
)


def test_connect_names_the_version() -> None:
    for version in (4, 5):
        made = fresh()
        (packet,) = made.feed(CONNECT_BYTES[version])
        assert isinstance(packet, p.Connect)
        assert packet.protocol == made.version == made.protocol_level == version
        assert made.connected
        assert made.protocol_name_ok


@pytest.mark.spec("MQTT-3.1.2-1")
@pytest.mark.spec("MQTT-3.1.2-2")
@pytest.mark.parametrize(
    ("raw", "name_ok", "level"),
    [
        ("10 0c 0004 4d515454 03 02 003c 0000", True, 3),
        ("10 0c 0004 4d515454 06 02 003c 0000", True, 6),
        ("10 0c 0004 4d515454 84 02 003c 0000", True, 0x84),
        ("10 0e 0006 4d5149736470 03 02 003c 0000", True, 3),
        ("10 0c 0004 6d717474 05 02 003c 0000", False, 5),
        ("10 08 0000 05 02 003c 0000", False, 5),
    ],
)
def test_unsupported_protocols(raw: str, name_ok: bool, level: int) -> None:
    made = fresh()
    assert made.feed(bytes.fromhex(raw)) == []
    assert made.failure is not None
    assert made.failure.reason_code == 0x84
    assert made.protocol_name_ok is name_ok
    assert made.protocol_level == level
    assert made.version == 0
    assert refused_connect(bytes.fromhex(raw)) == 0x84


def test_a_bad_connect_still_says_its_version() -> None:
    made = fresh()
    made.feed(bytes.fromhex("10 0d 0004 4d515454 05 03 003c 00 0000"))
    assert made.failure is not None
    assert made.version == 5
    assert not made.connected


@pytest.mark.parametrize("version", [4, 5])
def test_a_connect_too_large(version: int) -> None:
    """Refused once it has named the version to be answered in, which is a part of its head."""
    one, other = fresh(10), fresh(10)
    feed_both(one, other, CONNECT_BYTES[version][:8])
    assert one.failure is None
    feed_both(one, other, CONNECT_BYTES[version][8:9])
    assert one.failure is not None
    assert one.failure.reason_code == 0x95
    assert one.version == other.version == version


@pytest.mark.parametrize(
    "head", [b"\x10\x63\x00\x04mqtt\x05", b"\x10\x63\x00\x04MQTT\x03", b"\x11\x63"]
)
def test_a_connect_too_large_that_names_no_version(head: bytes) -> None:
    one, other = fresh(10), fresh(10)
    feed_both(one, other, head)
    assert one.failure is not None
    assert one.version == other.version == 0


def _framed(first: int, body: str) -> bytes:
    raw = bytes.fromhex(body)
    assert len(raw) < 128
    return bytes((first, len(raw))) + raw


@pytest.mark.parametrize(
    ("level", "rest", "reason"),
    [
        pytest.param("04", "03 0000 0000", 0x81, marks=pytest.mark.spec("MQTT-3.1.2-3@3.1.1")),
        pytest.param("04", "0a 0000 0000", 0x81, marks=pytest.mark.spec("MQTT-3.1.2-13@3.1.1")),
        pytest.param("04", "22 0000 0000", 0x81, marks=pytest.mark.spec("MQTT-3.1.2-15@3.1.1")),
        pytest.param(
            "04", "1e 0000 0000 0001 77 0000", 0x81, marks=pytest.mark.spec("MQTT-3.1.2-14@3.1.1")
        ),
        pytest.param(
            "04", "42 0000 0000 0000", 0x81, marks=pytest.mark.spec("MQTT-3.1.2-22@3.1.1")
        ),
        pytest.param(
            "04", "06 0000 0000 0000 0000", 0x82, marks=pytest.mark.spec("MQTT-4.7.3-1@3.1.1")
        ),
        pytest.param(
            "04", "06 0000 0000 0001 23 0000", 0x81, marks=pytest.mark.spec("MQTT-4.7.1-1@3.1.1")
        ),
        pytest.param("04", "02 0000 0001 00", 0x81, marks=pytest.mark.spec("MQTT-1.5.3-2@3.1.1")),
        pytest.param(
            "04", "82 0000 0000 0001 ff", 0x81, marks=pytest.mark.spec("MQTT-1.5.3-1@3.1.1")
        ),
        pytest.param("05", "03 0000 00 0000", 0x81, marks=pytest.mark.spec("MQTT-3.1.2-3")),
        pytest.param("05", "12 0000 00 0000", 0x81, marks=pytest.mark.spec("MQTT-3.1.2-11")),
        pytest.param("05", "22 0000 00 0000", 0x81, marks=pytest.mark.spec("MQTT-3.1.2-13")),
        pytest.param(
            "05", "1e 0000 00 0000 00 0001 77 0000", 0x81, marks=pytest.mark.spec("MQTT-3.1.2-12")
        ),
        pytest.param(
            "05", "06 0000 00 0000 00 0000 0000", 0x82, marks=pytest.mark.spec("MQTT-4.7.3-1")
        ),
        pytest.param(
            "05",
            "06 0000 00 0000 00 0003 2f2b2f 0000",
            0x81,
            marks=pytest.mark.spec("MQTT-4.7.0-1"),
        ),
        pytest.param(
            "05",
            "06 0000 00 0000 00 0003 eda080 0000",
            0x81,
            marks=pytest.mark.spec("MQTT-3.1.3-11"),
        ),
        pytest.param("05", "02 0000 00 0003 eda080", 0x81, marks=pytest.mark.spec("MQTT-3.1.3-4")),
        pytest.param(
            "05", "82 0000 00 0000 0001 00", 0x81, marks=pytest.mark.spec("MQTT-3.1.3-12")
        ),
        ("05", "02 0000 03 16 0000 0000", 0x82),  # authentication data without a method
        ("05", "02 0000 06 210001 210001 0000", 0x82),
        ("05", "06 0000 00 0000 02 23 0001 0001 77 0000", 0x81),  # cut off
        ("05", "06 0000 00 0000 03 23 0001 0001 77 0000", 0x81),  # an alias in a will
    ],
)
def test_bad_connect(level: str, rest: str, reason: int) -> None:
    assert refused_connect(_framed(0x10, "0004 4d515454" + level + rest)) == reason


@pytest.mark.spec("MQTT-3.1.2-19")
def test_5_0_takes_a_password_without_a_user_name() -> None:
    (packet,) = decoded(
        _framed(0x10, "0004 4d515454 05 42 0000 00 0000 0001 70"), 5, from_client=True
    )
    assert isinstance(packet, p.Connect)
    assert (packet.username, packet.password) == (None, b"p")
