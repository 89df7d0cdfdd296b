"""PROXY headers: vectors of both versions, every split, and every damage."""

from __future__ import annotations

import struct
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.net.proxy_protocol import (
    HEADER_SIZE_MAX,
    SIGNATURE,
    ProxyFault,
    ProxyHeader,
    parse_proxy_header,
)

TCP4 = b"PROXY TCP4 203.0.113.7 192.0.2.1 56324 1883\r\n"


def v2(command: int, family: int, body: bytes = b"") -> bytes:
    return SIGNATURE + bytes([command, family]) + struct.pack(">H", len(body)) + body


def inet4(source: str, port: int) -> bytes:
    return ip_address(source).packed + ip_address("192.0.2.1").packed + struct.pack(">HH", port, 1)


def inet6(source: str, port: int) -> bytes:
    return ip_address(source).packed + ip_address("::1").packed + struct.pack(">HH", port, 1)


def tlv(kind: int, value: bytes) -> bytes:
    return bytes([kind]) + struct.pack(">H", len(value)) + value


def ssl_tlv(client: int, verify: int, name: bytes) -> bytes:
    return tlv(0x20, bytes([client]) + struct.pack(">I", verify) + tlv(0x22, name))


GOOD = [
    (TCP4, ("203.0.113.7", 56324), None),
    (b"PROXY TCP6 2001:DB8::7 ::1 1 65535\r\n", ("2001:db8::7", 1), None),
    (b"PROXY TCP4 1.2.3.4 5.6.7.8 0 0\r\n", ("1.2.3.4", 0), None),
    (b"PROXY UNKNOWN\r\n", None, None),
    (b"PROXY UNKNOWN ffff:: whatever 1 2\r\n", None, None),
    (v2(0x21, 0x11, inet4("203.0.113.7", 56324)), ("203.0.113.7", 56324), None),
    (v2(0x21, 0x21, inet6("2001:db8::7", 9)), ("2001:db8::7", 9), None),
    (v2(0x20, 0x00), None, None),
    (v2(0x20, 0x11, inet4("203.0.113.7", 1)), None, None),
    (v2(0x21, 0x00), None, None),
    (v2(0x21, 0x31, bytes(216)), None, None),
    (v2(0x21, 0x11, inet4("1.2.3.4", 5) + tlv(0xE0, b"x")), ("1.2.3.4", 5), None),
    (
        v2(0x21, 0x11, inet4("1.2.3.4", 5) + tlv(1, b"h2") + ssl_tlv(0x07, 0, b"sensor-7")),
        ("1.2.3.4", 5),
        "sensor-7",
    ),
    # A certificate that the proxy could not verify names nobody, nor does one never shown.
    (v2(0x21, 0x11, inet4("1.2.3.4", 5) + ssl_tlv(0x07, 1, b"liar")), ("1.2.3.4", 5), None),
    (v2(0x21, 0x11, inet4("1.2.3.4", 5) + ssl_tlv(0x01, 0, b"liar")), ("1.2.3.4", 5), None),
    (v2(0x21, 0x11, inet4("1.2.3.4", 5) + ssl_tlv(0x03, 0, b"\xff")), ("1.2.3.4", 5), None),
]

BAD = [
    b"\x10\x0e\x00\x04MQTT",
    b"GET / HTTP/1.1\r\n",
    b"PROXY TCP4 203.0.113.7 192.0.2.1 56324 1883\n" + b" " * 70,
    b"PROXY TCP4 203.0.113.7 192.0.2.1 56324\r\n",
    b"PROXY TCP4 203.0.113.7  192.0.2.1 56324 1883\r\n",
    b"PROXY TCP4 203.0.113.07 192.0.2.1 56324 1883\r\n",
    b"PROXY TCP4 203.0.113.7 192.0.2.256 56324 1883\r\n",
    b"PROXY TCP4 ::1 ::1 56324 1883\r\n",
    b"PROXY TCP6 1.2.3.4 ::1 56324 1883\r\n",
    b"PROXY TCP4 1.2.3.4 5.6.7.8 65536 1883\r\n",
    b"PROXY TCP4 1.2.3.4 5.6.7.8 1 65536\r\n",
    b"PROXY TCP4 1.2.3.4 5.6.7.8 01 2\r\n",
    b"PROXY TCP4 1.2.3.4 5.6.7.8 -1 2\r\n",
    b"PROXY UDP4 1.2.3.4 5.6.7.8 1 2\r\n",
    b"PROXY UNKNOWNX\r\n",
    b"PROXY " + b"x" * 120,
    v2(0x11, 0x11, inet4("1.2.3.4", 5)),
    v2(0x22, 0x11, inet4("1.2.3.4", 5)),
    v2(0x21, 0x12, inet4("1.2.3.4", 5)),
    v2(0x21, 0x41, bytes(216)),
    v2(0x21, 0x11, bytes(11)),
    v2(0x21, 0x21, bytes(35)),
    v2(0x21, 0x11, inet4("1.2.3.4", 5) + b"\x01"),
    v2(0x21, 0x11, inet4("1.2.3.4", 5) + b"\x01\x00\x05abc"),
    v2(0x21, 0x00, bytes(HEADER_SIZE_MAX)),
]


@pytest.mark.parametrize(("data", "source", "subject"), GOOD)
def test_header(data: bytes, source: tuple[str, int] | None, subject: str | None) -> None:
    expected = ProxyHeader(len(data), source, subject)
    assert parse_proxy_header(data) == expected
    assert parse_proxy_header(data + b"\x10\x0c\x00\x04MQTT\r\n") == expected


@pytest.mark.parametrize(("data", "source", "subject"), GOOD)
def test_every_prefix_needs_more(
    data: bytes, source: tuple[str, int] | None, subject: str | None
) -> None:
    for size in range(len(data)):
        assert parse_proxy_header(data[:size]) is None


@pytest.mark.parametrize("data", BAD)
def test_fault(data: bytes) -> None:
    result = parse_proxy_header(data)
    assert isinstance(result, ProxyFault)
    assert result.reason


def checksummed(damage: int = 0, size: int = 4) -> bytes:
    """A header whose CRC-32C was computed with an independent, table-driven implementation."""
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    body = inet4("1.2.3.4", 5) + tlv(0x03, bytes(size)) + tlv(0xE1, b"after")
    header = v2(0x21, 0x11, body)
    crc = 0xFFFFFFFF
    for byte in header:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF ^ damage
    at = 16 + 12 + 3
    return header[:at] + struct.pack(">I", crc)[:size] + header[at + size :]


def test_checksum_is_verified() -> None:
    assert isinstance(parse_proxy_header(checksummed()), ProxyHeader)
    assert parse_proxy_header(checksummed(damage=1)) == ProxyFault("wrong checksum in PROXY header")
    assert isinstance(parse_proxy_header(checksummed(size=3)), ProxyFault)


@given(st.binary(max_size=300), st.sampled_from([b"", b"PROXY ", SIGNATURE, TCP4[:20]]))
def test_any_bytes_give_one_of_three_answers(data: bytes, prefix: bytes) -> None:
    whole = prefix + data
    result = parse_proxy_header(whole)
    if isinstance(result, ProxyHeader):
        assert 0 < result.size <= len(whole)
        assert parse_proxy_header(whole[: result.size]) == result
    else:
        assert result is None or result.reason
