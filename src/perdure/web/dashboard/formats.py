"""Values as people read them."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import quote, urlencode

from markupsafe import Markup

THIN_SPACE: Final = "\u2009"
NONE: Final = "–"

_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - UTC; an offset would be in each text
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_SPANS: Final = (("d", 86_400), ("h", 3_600), ("min", 60))


def number(value: float | None, digits: int = 0) -> str:
    """With thin spaces between thousands."""
    if value is None:
        return NONE
    return f"{value:,.{digits}f}".replace(",", THIN_SPACE)


def rate(value: float | None) -> str:
    """Per second; small ones with a decimal."""
    if value is None:
        return NONE
    return number(value, 1 if 0 < value < 10 else 0)


def size(value: float | None) -> str:
    """Bytes in binary units."""
    if value is None:
        return NONE
    left = float(value)
    for unit in _UNITS:
        if left < 1_024 or unit == _UNITS[-1]:
            digits = 0 if unit == "B" or left >= 100 else 1
            return f"{left:.{digits}f}{THIN_SPACE}{unit}"
        left /= 1_024
    raise AssertionError


def span(seconds: float | None) -> str:
    """A duration, in its two largest units."""
    if seconds is None:
        return NONE
    if seconds < 1:
        return f"{seconds * 1000:.0f}{THIN_SPACE}ms"
    left, parts = int(seconds), []
    for unit, length in _SPANS:
        if left >= length:
            parts.append(f"{left // length}{THIN_SPACE}{unit}")
            left %= length
    if left or not parts:
        parts.append(f"{left}{THIN_SPACE}s")
    return " ".join(parts[:2])


def moment(at_us: int | None, now_us: int, *, has_words: bool = True) -> Markup | str:
    """How long ago, or until when; the moment itself is told on hover and to machines.

    Args:
        at_us: the moment.
        now_us: now.
        has_words: False = the page's script writes how long ago.
    """
    if not at_us:
        return NONE
    head = _moment_head(at_us // 1000)
    if not head:
        return NONE
    away_s = (now_us - at_us) / 1_000_000
    if not has_words:
        text = ""
    elif abs(away_s) < 1:
        text = "now"
    else:
        length = span(abs(away_s))
        text = f"{length} ago" if away_s > 0 else f"in {length}"
    return Markup(f"{head}{text}</time>")  # noqa: S704 - of numbers and words of ours alone


@functools.lru_cache(4_096)
def _moment_head(at_ms: int) -> str:
    """How the element of a moment begins; empty = it is beyond all calendars.

    A page has hundreds; they took half of what a list costs.
    """
    try:
        at = _EPOCH + timedelta(milliseconds=at_ms)
    except OverflowError:
        return ""
    exact = at.isoformat(timespec="milliseconds")
    day, _, time_of_day = exact.partition("T")
    shown = f"{day} {time_of_day[:8]} UTC"
    return f'<time datetime="{exact}Z" title="{shown}" data-at="{at_ms}">'


def segment(text: str) -> str:
    """A text as one segment of a path."""
    return quote(text, safe="")


def sentence(text: str) -> str:
    """A message as it begins a sentence; names in it stay as they are written."""
    return text[:1].upper() + text[1:]


def argument(text: str) -> str:
    """A text as one word of a shell's command line, which no option can be mistaken for."""
    return f"-- {shlex.quote(text)}" if text.startswith("-") else shlex.quote(text)


def options(values: Mapping[str, Any]) -> str:
    """Options of a command line that are not empty; each begins with a space."""
    given = {name: each for name, each in values.items() if each not in ("", None)}
    return "".join(f" {name}={shlex.quote(str(each))}" for name, each in given.items())


def query(values: Mapping[str, Any], **changes: Any) -> str:
    """A query string of what is not empty, with changes; begins with ``?`` unless it is empty."""
    merged = {**values, **changes}
    encoded = urlencode({name: each for name, each in merged.items() if each not in ("", None)})
    return f"?{encoded}" if encoded else ""
