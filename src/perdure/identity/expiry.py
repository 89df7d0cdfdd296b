"""When a key ends, as people say it."""

from __future__ import annotations

from perdure.admin.problems import Refused
from perdure.config.units import parse_duration, parse_time


def expiry_us(text: str, now_us: int) -> int:
    """Wall time of ``90d`` from now on, or of a moment (RFC 3339); 0 for an empty text.

    Raises:
        Refused: it is neither, or has passed.
    """
    if not text:
        return 0
    try:
        if text.strip().isdecimal():
            raise ValueError("a number alone is a moment, in microseconds")
        ends_us = now_us + parse_duration(text, "us")
    except ValueError:
        try:
            ends_us = parse_time(text, now_us)
        except ValueError:
            raise Refused(
                "bad_request", f"expires: {text!r} is neither a duration (90d) nor a time"
            ) from None
    if ends_us <= now_us:
        raise Refused("bad_request", f"expires: {text} has passed")
    return ends_us
