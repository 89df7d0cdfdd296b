"""Values as JSON has them, out of formats that have more.

Invariant: what comes out holds dict (with text for keys), list, str, int, float, bool and None.
"""

from __future__ import annotations

import base64
import uuid
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Final

from perdure.limits import CONTENT_DEPTH_MAX


class Undecodable(ValueError):
    """Bytes are not what they were said to be."""


_PLAIN: Final = (str, int, float, bool, type(None))


def plain(value: object, depth: int = 0) -> object:
    """A value as JSON has it: bytes are base64, moments RFC 3339, decimals floats.

    Raises:
        Undecodable: it is nested too deep, or of a type that has no form.
    """
    if type(value) in _PLAIN:
        return value
    if depth > CONTENT_DEPTH_MAX:
        raise Undecodable("nested too deep")
    if isinstance(value, dict):
        return {_key(key): plain(each, depth + 1) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each, depth + 1) for each in value]
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


def _key(key: object) -> str:
    if isinstance(key, bytes):
        return base64.b64encode(key).decode()
    return key if isinstance(key, str) else str(key)
