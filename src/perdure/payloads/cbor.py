"""CBOR (RFC 8949): one item, as JSON would say it.

A decoder of our own: what a content filter says of a message may not depend on which library, or
which version of one, is installed where it is asked; and what libraries do with tags (references
that share values, expressions that are compiled, fractions of any size) has no bound.

Invariant: nothing is taken from memory for a length that the payload does not have.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, final

from perdure.limits import CONTENT_DEPTH_MAX, PAYLOAD_VALUES_MAX
from perdure.payloads.values import (
    BIGNUM_BYTES_MAX,
    Undecodable,
    float_of,
    key_of,
    plain,
)

_MAGNITUDE_MAX: Final = 1_024
_MAGNITUDE_MIN: Final = -1_080
"""Binary exponents that are beyond the numbers of 64 bits, and below them."""

_UINT, _NEGATIVE, _BYTES, _TEXT, _ARRAY, _MAP, _TAG = range(7)
_INDEFINITE: Final = -1
_BREAK: Final = 0xFF
_SIMPLE: Final[Mapping[int, bool | None]] = {20: False, 21: True, 22: None, 23: None}
_FLOATS: Final = {25: (">e", 2), 26: (">f", 4), 27: (">d", 8)}
_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)
_REFERENCES: Final = frozenset((25, 29))
"""Tags for what stood earlier in the item: small bytes that stand for any number of values."""


def cbor(payload: bytes) -> object:
    """One CBOR item, and nothing behind it.

    Bytes are base64, times text, keys text; a tag without a meaning here says nothing.

    Raises:
        Undecodable: it is none, is nested too deep, has too many values, or refers to itself.
    """
    reader = _Reader(payload)
    try:
        value = plain(reader.item(0))
    except (ValueError, OverflowError, IndexError, TypeError, RecursionError) as error:
        raise Undecodable(str(error)) from None
    if reader.at != len(payload):
        raise Undecodable("bytes are left")
    return value


@final
class _Reader:
    """Reads items, one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._values = 0
        self.at = 0

    def item(self, depth: int) -> object:
        """The next item; ``depth`` is how many arrays, maps and tags it is in."""
        self._one_more()
        if depth > 2 * CONTENT_DEPTH_MAX:  # tags are not nesting for whoever looks at values
            raise Undecodable("nested too deep")
        head = self._data[self.at]
        self.at += 1
        major, info = head >> 5, head & 31
        if major == 7:
            return self._simple(info)
        count = self._count(info)
        if major <= _NEGATIVE or major == _TAG:
            if count == _INDEFINITE:
                raise Undecodable("a number without an end")
            if major == _TAG:
                return _tagged(count, self.item(depth + 1))
            return count if major == _UINT else -1 - count
        if major <= _TEXT:
            return self._string(major, count)
        return self._array(count, depth) if major == _ARRAY else self._map(count, depth)

    def _one_more(self) -> None:
        self._values += 1
        if self._values > PAYLOAD_VALUES_MAX:
            raise Undecodable("too many values")

    def _take(self, size: int) -> bytes:
        end = self.at + size
        if end > len(self._data):
            raise Undecodable("cut short")
        taken = self._data[self.at : end]
        self.at = end
        return taken

    def _count(self, info: int) -> int:
        if info < 24:
            return info
        if info == 31:
            return _INDEFINITE
        if info > 27:
            raise Undecodable("a reserved length")
        return int.from_bytes(self._take(1 << (info - 24)), "big")

    def _simple(self, info: int) -> object:
        if info in _FLOATS:
            form, size = _FLOATS[info]
            value: float = struct.unpack(form, self._take(size))[0]
            return value
        if info not in _SIMPLE:
            raise Undecodable("a simple value without a meaning")
        return _SIMPLE[info]

    def _string(self, major: int, count: int) -> object:
        if count != _INDEFINITE:
            taken = self._take(count)
            return taken if major == _BYTES else taken.decode()
        parts = []
        while not self._ends():
            self._one_more()
            head = self._data[self.at]
            self.at += 1
            size = self._count(head & 31)
            if head >> 5 != major or size == _INDEFINITE:
                raise Undecodable("a part of another type")
            part = self._take(size)
            if major == _TEXT:
                part.decode()
            parts.append(part)
        whole = b"".join(parts)
        return whole if major == _BYTES else whole.decode()

    def _array(self, count: int, depth: int) -> list[object]:
        found: list[object] = []
        while len(found) != count and not (count == _INDEFINITE and self._ends()):
            found.append(self.item(depth + 1))
        return found

    def _map(self, count: int, depth: int) -> dict[str, object]:
        found: dict[str, object] = {}
        pairs = 0
        while pairs != count and not (count == _INDEFINITE and self._ends()):
            key = key_of(self.item(depth + 1))
            found[key] = self.item(depth + 1)
            pairs += 1
        return found

    def _ends(self) -> bool:
        if self._data[self.at] != _BREAK:
            return False
        self.at += 1
        return True


# -- tags ----------------------------------------------------------------------------------


def _tagged(tag: int, value: object) -> object:
    if tag in _REFERENCES:
        raise Undecodable("a reference")
    meaning = _MEANINGS.get(tag)
    return value if meaning is None else meaning(value)


def _epoch(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Undecodable("a moment that is no number")
    return _BEGINNING + timedelta(seconds=value)


def _bignum(value: object) -> int:
    if not isinstance(value, bytes) or len(value) > BIGNUM_BYTES_MAX:
        raise Undecodable("a number that is none, or too large")
    return int.from_bytes(value, "big")


def _parts(value: object) -> tuple[int, int]:
    if isinstance(value, list) and len(value) == 2:
        exponent, mantissa = value
        if type(exponent) is int and type(mantissa) is int:
            return exponent, mantissa
    raise Undecodable("a fraction without its two numbers")


def _decimal(value: object) -> float:
    exponent, mantissa = _parts(value)
    return float_of(mantissa, exponent)


def _bigfloat(value: object) -> float:
    exponent, mantissa = _parts(value)
    # ldexp() takes no mantissa beyond a float, and rounds twice where the result is small.
    if not mantissa or mantissa.bit_length() + exponent < _MAGNITUDE_MIN:
        return -0.0 if mantissa < 0 else 0.0
    if mantissa.bit_length() + exponent > _MAGNITUDE_MAX:
        raise Undecodable("a fraction beyond the numbers of 64 bits")
    return mantissa / (1 << -exponent) if exponent < 0 else float(mantissa << exponent)


_MEANINGS: Final[Mapping[int, Callable[[object], object]]] = {
    1: _epoch,
    2: _bignum,
    3: lambda value: -1 - _bignum(value),
    4: _decimal,
    5: _bigfloat,
}
