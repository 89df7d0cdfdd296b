"""Sparkplug B payloads (Eclipse Sparkplug 3.0, section 6.4): metrics by name.

The message is read field by field of its wire form, of which only a few are wanted: no generated
code, no dependency. A metric without a name, as in data messages that use aliases, has the name
``alias_N``: which name that is said the birth message, which is another message.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from perdure.limits import PAYLOAD_VALUES_MAX
from perdure.payloads.values import Undecodable, plain

_SIGNED_BITS: Final = {1: 8, 2: 16, 3: 32, 4: 64}
"""Data types Int8 to Int64, whose values travel as unsigned."""

METRICS_MAX: Final = 10_000
NAMESPACE: Final = "spBv1.0/"
_TYPES: Final = frozenset(
    ("NBIRTH", "NDEATH", "NDATA", "NCMD", "DBIRTH", "DDEATH", "DDATA", "DCMD")
)


def is_sparkplug(topic: str) -> bool:
    """Whether a topic is one of Sparkplug's namespace whose payloads are Sparkplug B.

    ``spBv1.0/<group>/<type>/<edge node>[/<device>]``; a host's ``spBv1.0/STATE/<host>`` is JSON.
    """
    if not topic.startswith(NAMESPACE):
        return False
    levels = topic.split("/", 4)
    return len(levels) >= 4 and levels[2] in _TYPES


def sparkplug(payload: bytes) -> object:
    """``timestamp``, ``seq``, and every metric under its name.

    Raises:
        Undecodable: it is no such payload.
    """
    found: dict[str, object] = {}
    metrics = 0
    left = [PAYLOAD_VALUES_MAX]
    for number, value in _fields(payload, left):
        if number == 1 and isinstance(value, int):
            found["timestamp"] = value
        elif number == 3 and isinstance(value, int):
            found["seq"] = value
        elif number == 2 and isinstance(value, bytes):
            metrics += 1
            if metrics > METRICS_MAX:
                raise Undecodable("too many metrics")
            name, each = _metric(value, left)
            found[name] = each
        elif number > 5:
            raise Undecodable("a field that Sparkplug does not have")
    if not metrics and "timestamp" not in found:
        raise Undecodable("neither a timestamp nor a metric")
    return plain(found)


def _metric(data: bytes, left: list[int]) -> tuple[str, object]:
    name, alias, kind = "", -1, 0
    value: object = None
    for number, each in _fields(data, left):
        if number == 1 and isinstance(each, bytes):
            name = each.decode("utf-8", "replace")
        elif number == 2 and isinstance(each, int):
            alias = each
        elif number == 4 and isinstance(each, int):
            kind = each
        elif number in {10, 11} and isinstance(each, int):
            value = each
        elif number == 12 and isinstance(each, bytes) and len(each) == 4:
            value = struct.unpack("<f", each)[0]
        elif number == 13 and isinstance(each, bytes) and len(each) == 8:
            value = struct.unpack("<d", each)[0]
        elif number == 14:
            value = bool(each)
        elif number == 15 and isinstance(each, bytes):
            value = each.decode("utf-8", "replace")
        elif number == 16:
            value = each
    if isinstance(value, int) and kind in _SIGNED_BITS:
        value = _signed(value, _SIGNED_BITS[kind])
    return name or f"alias_{alias}", value


def _signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def _fields(data: bytes, left: list[int]) -> Iterator[tuple[int, int | bytes]]:
    """Numbers and values of a Protocol Buffers message; fixed ones as their bytes.

    Args:
        data: of the message.
        left: how many more fields there may be, in its one element.
    """
    at = 0
    while at < len(data):
        left[0] -= 1
        if left[0] < 0:
            raise Undecodable("too many fields")
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield tag >> 3, value
            continue
        size = {1: 8, 5: 4}.get(kind, -1)
        if kind == 2:
            size, at = _varint(data, at)
        if size < 0 or at + size > len(data) or not tag >> 3:
            raise Undecodable("no Protocol Buffers message")
        yield tag >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70 and at < len(data):
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    raise Undecodable("a number that does not end")
