"""The PROXY protocol header, versions 1 and 2, as a function of bytes.

Written by a load balancer before the first byte of its client (HAProxy's ``proxy-protocol.txt``).
The parser is strict: a listener that expects the header refuses whatever is not exactly one.

Version 2 on the wire::

    signature(12) version+command(1) family(1) length(2) | addresses(12, 36, 216) | TLVs
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Final, final

SIGNATURE: Final = b"\r\n\r\n\x00\r\nQUIT\n"
V1_SIZE_MAX: Final = 107
"""Longest version 1 line with its line end, bytes (proxy-protocol.txt section 2.1)."""
HEADER_SIZE_MAX: Final = 4096
"""Longest header that we take, bytes; TLS details make about 1 KiB."""

_V1 = re.compile(
    rb"PROXY (TCP4|TCP6) ([0-9A-Fa-f.:]+) ([0-9A-Fa-f.:]+) (0|[1-9][0-9]{0,4}) (0|[1-9][0-9]{0,4})"
)
_V2_PREFIX: Final = 16
_ADDRESS_SIZES: Final = {0x00: 0, 0x11: 12, 0x12: 12, 0x21: 36, 0x22: 36, 0x31: 216, 0x32: 216}
_TLV_CRC32C: Final = 0x03
_TLV_SSL: Final = 0x20
_SSL_COMMON_NAME: Final = 0x22
_SSL_CLIENT_CERTIFICATE: Final = 0x02 | 0x04
"""Bits of the SSL TLV: a certificate was shown on this connection, or in this session."""


@final
@dataclass(frozen=True, slots=True)
class ProxyHeader:
    """A complete header."""

    size: int
    """Bytes that the header takes."""
    source: tuple[str, int] | None
    """Address and port of the client; ``None`` when the proxy speaks for itself."""
    certificate_subject: str | None = None
    """Common name of the client certificate that the proxy verified."""


@final
@dataclass(frozen=True, slots=True)
class ProxyFault:
    """The bytes are no PROXY header, and why."""

    reason: str


def parse_proxy_header(data: bytes) -> ProxyHeader | ProxyFault | None:
    """Parse the start of a connection.

    Args:
        data: everything received so far.

    Returns:
        The header, why there is none, or ``None`` when more bytes are needed to tell.
    """
    if data[:12] == SIGNATURE[: len(data)]:
        return _parse_v2(data) if len(data) >= _V2_PREFIX else None
    if data[:6] == b"PROXY "[: len(data)]:
        return _parse_v1(data)
    return ProxyFault("no PROXY header")


def _parse_v1(data: bytes) -> ProxyHeader | ProxyFault | None:
    end = data.find(b"\r\n", 0, V1_SIZE_MAX)
    if end < 0:
        return None if len(data) < V1_SIZE_MAX else ProxyFault("PROXY line too long")
    line = data[:end]
    if line == b"PROXY UNKNOWN" or line.startswith(b"PROXY UNKNOWN "):
        # The receiver must ignore what stands before the line end.
        return ProxyHeader(end + 2, None)
    match = _V1.fullmatch(line)
    if match is None:
        return ProxyFault("malformed PROXY line")
    family, source, destination, source_port, destination_port = match.groups()
    kind = ipaddress.IPv4Address if family == b"TCP4" else ipaddress.IPv6Address
    try:
        address = str(kind(source.decode("ascii")))
        kind(destination.decode("ascii"))
    except ValueError:
        return ProxyFault("bad address in PROXY line")
    if int(source_port) > 65_535 or int(destination_port) > 65_535:
        return ProxyFault("bad port in PROXY line")
    return ProxyHeader(end + 2, (address, int(source_port)))


def _parse_v2(data: bytes) -> ProxyHeader | ProxyFault | None:
    version_command, family = data[12], data[13]
    length = int.from_bytes(data[14:16], "big")
    size = _V2_PREFIX + length
    if version_command not in (0x20, 0x21):
        return ProxyFault("unknown version or command in PROXY header")
    if size > HEADER_SIZE_MAX:
        return ProxyFault("PROXY header too long")
    if len(data) < size:
        return None
    if version_command == 0x20:
        # LOCAL: the proxy's own connection (a health check); the rest has no meaning.
        return ProxyHeader(size, None)
    addresses_size = _ADDRESS_SIZES.get(family)
    if addresses_size is None or family & 0x0F == 0x02:
        return ProxyFault("unsupported family in PROXY header")
    if length < addresses_size:
        return ProxyFault("PROXY header too short for its family")
    body = data[_V2_PREFIX:size]
    tlvs = _tlvs(body[addresses_size:])
    if tlvs is None:
        return ProxyFault("malformed TLV in PROXY header")
    for kind, offset, value in tlvs:
        if kind == _TLV_CRC32C and not _checksum_holds(
            data[:size], _V2_PREFIX + addresses_size + offset, value
        ):
            return ProxyFault("wrong checksum in PROXY header")
    source: tuple[str, int] | None = None
    if family == 0x11:
        source = (str(ipaddress.IPv4Address(body[:4])), int.from_bytes(body[8:10], "big"))
    elif family == 0x21:
        source = (str(ipaddress.IPv6Address(body[:16])), int.from_bytes(body[32:34], "big"))
    return ProxyHeader(size, source, _common_name(tlvs))


def _tlvs(data: bytes) -> list[tuple[int, int, bytes]] | None:
    """Type, offset of the value and value of each TLV, or ``None`` if they do not add up."""
    found: list[tuple[int, int, bytes]] = []
    position = 0
    while position < len(data):
        if position + 3 > len(data):
            return None
        length = int.from_bytes(data[position + 1 : position + 3], "big")
        start = position + 3
        if start + length > len(data):
            return None
        found.append((data[position], start, data[start : start + length]))
        position = start + length
    return found


def _common_name(tlvs: list[tuple[int, int, bytes]]) -> str | None:
    """The common name in the SSL TLV, if the proxy verified the client's certificate."""
    for kind, _, value in tlvs:
        if kind != _TLV_SSL or len(value) < 5:
            continue
        verified = value[1:5] == b"\x00\x00\x00\x00"
        if not verified or not value[0] & _SSL_CLIENT_CERTIFICATE:
            return None
        for sub_kind, _, sub_value in _tlvs(value[5:]) or ():
            if sub_kind == _SSL_COMMON_NAME:
                try:
                    return sub_value.decode("utf-8") or None
                except UnicodeDecodeError:
                    return None
    return None


def _checksum_holds(header: bytes, offset: int, value: bytes) -> bool:
    """Whether CRC-32C over the header, with the checksum itself as zeros, is ``value``."""
    if len(value) != 4:
        return False
    zeroed = header[:offset] + b"\x00\x00\x00\x00" + header[offset + 4 :]
    return _crc32c(zeroed) == int.from_bytes(value, "big")


def _crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli), bit by bit: headers are short and rare."""
    crc = 0xFFFF_FFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F6_3B78 if crc & 1 else 0)
    return crc ^ 0xFFFF_FFFF
