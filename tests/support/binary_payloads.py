"""Payloads in binary formats, made from their specifications and sharing nothing with ours."""

from __future__ import annotations

import struct
from typing import Any


def varint(value: int) -> bytes:
    made = bytearray()
    while value > 127:
        made.append(value & 127 | 128)
        value >>= 7
    return bytes([*made, value])


def field(number: int, value: int | bytes, kind: int = 0) -> bytes:
    """A field of a Protocol Buffers message, as the specification of its wire form has it."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if kind:
        return varint(number << 3 | kind) + value
    return varint(number << 3 | 2) + varint(len(value)) + value


def cbor_of(value: Any) -> bytes:
    """A value as a CBOR item in its preferred form, floats in eight bytes (RFC 8949)."""
    if value is None or isinstance(value, bool):
        return {None: b"\xf6", True: b"\xf5", False: b"\xf4"}[value]
    if isinstance(value, float):
        return b"\xfb" + struct.pack(">d", value)
    if isinstance(value, int):
        if -(2**64) <= value < 2**64:
            return _head(0, value) if value >= 0 else _head(1, -1 - value)
        size = value if value >= 0 else -1 - value
        return (b"\xc2" if value >= 0 else b"\xc3") + cbor_of(
            size.to_bytes((size.bit_length() + 7) // 8, "big")
        )
    if isinstance(value, bytes):
        return _head(2, len(value)) + value
    if isinstance(value, str):
        return _head(3, len(value.encode())) + value.encode()
    if isinstance(value, list):
        return _head(4, len(value)) + b"".join(map(cbor_of, value))
    pairs = (cbor_of(key) + cbor_of(each) for key, each in value.items())
    return _head(5, len(value)) + b"".join(pairs)


def _head(major: int, count: int) -> bytes:
    if count < 24:
        return bytes([major << 5 | count])
    for info, size in ((24, 1), (25, 2), (26, 4), (27, 8)):
        if count < 1 << 8 * size:
            return bytes([major << 5 | info]) + count.to_bytes(size, "big")
    raise ValueError(count)


def sparkplug_of(metrics: dict[str, Any], timestamp: int) -> bytes:
    """A Sparkplug B payload (Eclipse Sparkplug 3.0, section 6.4)."""
    return field(1, timestamp) + b"".join(
        field(2, field(1, name.encode()) + _metric_value(value)) for name, value in metrics.items()
    )


def _metric_value(value: Any) -> bytes:
    if value is None:
        return field(7, 1)
    if isinstance(value, bool):
        return field(4, 11) + field(14, int(value))
    if isinstance(value, int):  # Int64
        return field(4, 4) + field(11, value % 2**64)
    if isinstance(value, float):
        return field(4, 10) + field(13, struct.pack("<d", value), 1)
    if isinstance(value, bytes):
        return field(4, 17) + field(16, value)
    return field(4, 12) + field(15, value.encode())
