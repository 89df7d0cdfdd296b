"""Values as JSON has them, out of formats that have more.

Invariant: what comes out holds dict (with text for keys), list, str, int, float, bool and None.
"""

from __future__ import annotations

import base64
import math
import uuid
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Final

from perdure.limits import CONTENT_DEPTH_MAX, PAYLOAD_VALUES_MAX

COLUMN_DEPTH_MAX: Final = 4
"""Levels of names within names that become columns; what is deeper is text in one."""

BIGNUM_BYTES_MAX: Final = 1_000
"""Bytes of a number beyond 64 bits."""


class Undecodable(ValueError):
    """Bytes are not what they were said to be."""


_PLAIN: Final = frozenset((str, int, float, bool, type(None)))
_KEYWORDS: Final = {None: "null", True: "true", False: "false"}


def plain(value: object) -> object:
    """A value as JSON has it: bytes are base64, moments RFC 3339, decimals floats, keys text.

    Raises:
        Undecodable: it is nested too deep, has too many values, or one of a type without a form.
    """
    return value if type(value) in _PLAIN else _plain(value, 0, [PAYLOAD_VALUES_MAX])


def _plain(value: object, depth: int, left: list[int]) -> object:
    if isinstance(value, dict | list | tuple | set | frozenset):
        left[0] -= len(value)
        if depth >= CONTENT_DEPTH_MAX or left[0] < 0:
            raise Undecodable("nested too deep" if left[0] >= 0 else "too many values")
        below = depth + 1
        if isinstance(value, dict):
            return {
                key_of(key): each if type(each) in _PLAIN else _plain(each, below, left)
                for key, each in value.items()
            }
        return [each if type(each) in _PLAIN else _plain(each, below, left) for each in value]
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(bytes(value)).decode()
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, uuid.UUID):
        return str(value)
    raise Undecodable(f"a value of type {type(value).__name__}")


def is_too_deep(value: object) -> bool:
    """Whether lists and dicts are nested more than ``CONTENT_DEPTH_MAX`` deep."""
    level: list[object] = [value]
    for _ in range(CONTENT_DEPTH_MAX):
        following: list[object] = []
        for each in level:
            if isinstance(each, dict):
                following.extend(each.values())
            elif isinstance(each, list):
                following.extend(each)
        if not following:
            return False
        level = following
    return any(isinstance(each, dict | list) for each in level)


def float_of(mantissa: int, exponent: int) -> float:
    """A decimal number of two whole ones, the first of ``BIGNUM_BYTES_MAX`` bytes at most.

    Raises:
        Undecodable: it is beyond the numbers of 64 bits.
    """
    found = float(f"{mantissa}e{exponent}")
    if math.isinf(found):
        raise Undecodable("a fraction beyond the numbers of 64 bits")
    return found


def key_of(key: object) -> str:
    """The key of a map as text: numbers, truths and null as JSON writes them, bytes base64.

    Raises:
        Undecodable: it is something else.
    """
    if isinstance(key, str):
        return key
    if isinstance(key, bytes):
        return base64.b64encode(key).decode()
    if key is None or isinstance(key, bool):
        return _KEYWORDS[key]
    if isinstance(key, int | float):
        return str(key)
    raise Undecodable(f"a key of type {type(key).__name__}")
