"""The data representations of MQTT (5.0 section 1.5): integers, strings, binary data.

Reading functions take the buffer, a position and the end of what they may read, and return the
value with the position after it; whatever the bytes, they raise ``MalformedPacket`` or return.
Writing functions raise ``UsageError``: what cannot be written is our own mistake.
"""

from __future__ import annotations

import re
from typing import Final

from perdure.errors import UsageError
from perdure.limits import PACKET_ID_MAX, REMAINING_LENGTH_MAX, UTF8_STRING_BYTES_MAX
from perdure.mqtt.errors import MalformedPacket

UINT16_BYTES: Final[list[bytes]] = [bytes((high, low)) for high in range(256) for low in range(256)]
"""Each two-byte integer in wire form: an index costs a quarter of a call (3 MB, 3 ms at import)."""

BYTES: Final[list[bytes]] = [bytes((value,)) for value in range(256)]
"""Each single byte."""

_NOT_IN_NAMES: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\ufdd0-\ufdef"
    + "".join(f"{chr(plane << 16 | 0xFFFE)}{chr(plane << 16 | 0xFFFF)}" for plane in range(17))
    + "]"
)
"""Control characters (general category Cc) and Unicode's 66 non-characters."""


def read_byte(data: bytes, at: int, end: int) -> tuple[int, int]:
    """One byte."""
    if at >= end:
        raise MalformedPacket("the packet ends too early")
    return data[at], at + 1


def read_uint16(data: bytes, at: int, end: int) -> tuple[int, int]:
    """A two-byte integer."""
    if at + 2 > end:
        raise MalformedPacket("the packet ends inside a two-byte integer")
    return data[at] << 8 | data[at + 1], at + 2


def read_uint32(data: bytes, at: int, end: int) -> tuple[int, int]:
    """A four-byte integer."""
    if at + 4 > end:
        raise MalformedPacket("the packet ends inside a four-byte integer")
    return int.from_bytes(data[at : at + 4], "big"), at + 4


def read_varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """A variable byte integer, in its shortest form ([MQTT-1.5.5-1])."""
    value = 0
    shift = 0
    while True:
        if at >= end:
            raise MalformedPacket("the packet ends inside a variable byte integer")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if byte == 0 and shift:
                raise MalformedPacket("a variable byte integer is longer than it must be")
            return value, at
        shift += 7
        if shift == 28:
            raise MalformedPacket("a variable byte integer has more than four bytes")


def read_binary(data: bytes, at: int, end: int) -> tuple[bytes, int]:
    """Binary data with its two-byte length."""
    start = at + 2
    if start > end:
        raise MalformedPacket("the packet ends inside the length of a field")
    stop = start + (data[at] << 8 | data[at + 1])
    if stop > end:
        raise MalformedPacket("a field is longer than what holds it")
    return data[start:stop], stop


def read_text(data: bytes, at: int, end: int) -> tuple[str, int]:
    """A UTF-8 encoded string with its two-byte length."""
    raw, stop = read_binary(data, at, end)
    return text_of(raw), stop


def text_of(raw: bytes) -> str:
    """Validate and decode a UTF-8 encoded string.

    Ill-formed UTF-8, which includes encoded surrogates, is malformed ([MQTT-1.5.4-1]), and so is
    U+0000 ([MQTT-1.5.4-2]). U+FEFF stays where it is ([MQTT-1.5.4-3]).
    """
    if 0 in raw:
        raise MalformedPacket("a string holds U+0000")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise MalformedPacket("a string is not well-formed UTF-8") from None


def read_name(data: bytes, at: int, end: int) -> tuple[str, int]:
    """A string that names something (topic, filter, client, user), with its two-byte length."""
    raw, stop = read_binary(data, at, end)
    return name_of(raw), stop


def name_of(raw: bytes) -> str:
    """Validate and decode a string that names something.

    Section 1.5.4 lets a receiver refuse control characters and non-characters. In names we do, as
    other brokers do, because they deceive whoever reads a log or a terminal; in free text, such
    as user properties, they are left alone.
    """
    name = text_of(raw)
    if not name.isprintable() and _NOT_IN_NAMES.search(name) is not None:
        raise MalformedPacket("a name holds a control character or a non-character")
    return name


def uint16(value: int) -> bytes:
    """A two-byte integer in wire form."""
    if not 0 <= value <= PACKET_ID_MAX:
        raise UsageError(f"{value} does not fit a two-byte integer")
    return UINT16_BYTES[value]


def uint32(value: int) -> bytes:
    """A four-byte integer in wire form."""
    if not 0 <= value <= 0xFFFF_FFFF:
        raise UsageError(f"{value} does not fit a four-byte integer")
    return value.to_bytes(4, "big")


def varint(value: int) -> bytes:
    """A variable byte integer in its shortest form."""
    if 0 <= value < 0x80:
        return BYTES[value]
    if not 0 <= value <= REMAINING_LENGTH_MAX:
        raise UsageError(f"{value} does not fit a variable byte integer")
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint_size(value: int) -> int:
    """How many bytes ``varint(value)`` has."""
    if value < 0x80:
        return 1
    if value < 0x4000:
        return 2
    return 3 if value < 0x20_0000 else 4


def binary(value: bytes) -> bytes:
    """Binary data in wire form."""
    if len(value) > UTF8_STRING_BYTES_MAX:
        raise UsageError(f"a field of {len(value)} bytes is longer than its length can say")
    return UINT16_BYTES[len(value)] + value


def text(value: str) -> bytes:
    """A UTF-8 encoded string in wire form."""
    try:
        raw = value.encode()
    except UnicodeEncodeError:
        raise UsageError("a surrogate cannot be sent in a string") from None
    if 0 in raw:
        raise UsageError("U+0000 cannot be sent in a string")
    return binary(raw)
