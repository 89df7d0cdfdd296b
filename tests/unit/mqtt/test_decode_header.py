"""What a fixed header may say, and who may send it."""

from __future__ import annotations

import pytest

from perdure.mqtt import packets as p
from tests.unit.mqtt.feeding import (
    CONNECT_BYTES,
    refused,
    refused_connect,
)


@pytest.mark.spec("MQTT-3.1.0-1")
@pytest.mark.parametrize("kind", range(2, 16))
def test_the_first_packet_must_be_connect(kind: int) -> None:
    flags = 2 if kind in (p.PUBREL, p.SUBSCRIBE, p.UNSUBSCRIBE) else 0
    assert refused_connect(bytes((kind << 4 | flags, 0))) == 0x82


@pytest.mark.spec("MQTT-3.1.0-2")
@pytest.mark.parametrize("version", [4, 5])
def test_a_second_connect(version: int) -> None:
    assert refused(CONNECT_BYTES[version], version) == 0x82


@pytest.mark.spec("MQTT-2.1.3-1")
@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("kind", range(1, 15))
def test_reserved_flags(version: int, kind: int) -> None:
    good = {p.PUBREL: 2, p.SUBSCRIBE: 2, p.UNSUBSCRIBE: 2}.get(kind, 0)
    for flags in range(16):
        if flags != good and kind != p.PUBLISH:
            raw = bytes((kind << 4 | flags, 2, 0, 1))
            assert refused(raw, version) == 0x81
            if kind != p.CONNECT:
                assert refused(raw, version, from_client=False) == 0x81


@pytest.mark.parametrize("version", [4, 5])
def test_reserved_packet_types(version: int) -> None:
    for first in range(16):
        # Known from the first byte, whatever the length and even if that is no length.
        for rest in (b"\x00", b"\x01\x00", b"\xc0", b"\x80\x80\x80\x80\x01"):
            assert refused(bytes((first,)) + rest, version) == 0x82
    if version == 4:
        assert refused(b"\xf0\x00", version) == 0x81
        assert refused(b"\xf0\x00", version, from_client=False) == 0x81


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("kind", [p.CONNACK, p.SUBACK, p.UNSUBACK, p.PINGRESP])
def test_what_only_a_server_sends(version: int, kind: int) -> None:
    assert refused(bytes((kind << 4, 2, 0, 1)), version) == 0x82


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("first", [0x10, 0x82, 0xA2, 0xC0])
def test_what_only_a_client_sends(version: int, first: int) -> None:
    assert refused(bytes((first, 0)), version, from_client=False) == 0x82
