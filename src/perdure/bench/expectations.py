"""``--expect 'p99<50ms,lost=0'``: what a run must have found, as text.

::

    expectations = expectation ("," expectation)*
    expectation  = [phase "."] name operator number [unit]
    operator     = "<" | "<=" | ">" | ">=" | "=" | "=="
    unit         = us ms s | k M | KiB MiB GiB | %

Names are those of ``Phase`` and ``Totals``, and short ones for latencies: ``p50 p90 p99 p999 max``
of the delivery (of the acknowledgement where nothing was delivered), or ``ack_p99`` and so on.
Without a phase, an expectation holds for every phase that has the value.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from typing import Final, final

import msgspec

from perdure.bench.result import Phase, Result, Totals
from perdure.errors import UsageError

_FORM: Final = re.compile(
    r"^(?:(?P<phase>[a-z]+)\.)?(?P<name>[a-z0-9_]+)\s*(?P<op><=|>=|==|<|>|=)\s*"
    r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>us|ms|s|k|M|KiB|MiB|GiB|%)?$"
)
_OPERATORS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "==": operator.eq,
}
_UNITS: Final[Mapping[str, float]] = {
    "": 1,
    "k": 1e3,
    "M": 1e6,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "%": 0.01,
}
_MILLISECONDS: Final[Mapping[str, float]] = {"us": 0.001, "ms": 1, "s": 1000}
_ALIASES: Final[Mapping[str, str]] = {
    "loss": "lost",
    "dup": "repeated",
    "reorder": "out_of_order",
    "rate": "done_per_s",
    "cpu_per_million": "cpu_s_per_million",
}
_PERCENTILES: Final = ("p50", "p90", "p99", "p999", "max", "mean")


@final
class Expectation(msgspec.Struct, frozen=True):
    """One thing that must hold.

    Attributes:
        text: as it was given.
        phase: name of the phase, or empty.
        name: of the value.
        operator: between value and bound.
        bound: in the value's own unit.
    """

    text: str
    phase: str
    name: str
    operator: str
    bound: float


@final
class Verdict(msgspec.Struct, frozen=True):
    """Whether an expectation was met.

    Attributes:
        text: the expectation.
        found: the value; NaN if the run has no such value.
        is_met: it holds.
    """

    text: str
    found: float
    is_met: bool


def parse(text: str) -> list[Expectation]:
    """Expectations from their text.

    Raises:
        UsageError: it is not one, or names a value that no run has.
    """
    return [_parse_one(part.strip()) for part in text.split(",") if part.strip()]


def judge(expectations: list[Expectation], result: Result) -> list[Verdict]:
    """What a run says to expectations; a value that it does not have misses them."""
    verdicts = []
    for expected in expectations:
        found = _values(expected, result)
        holds = _OPERATORS[expected.operator]
        missed = [value for value in found if not holds(value, expected.bound)]
        shown = missed[0] if missed else (found[0] if found else math.nan)
        verdicts.append(Verdict(expected.text, shown, bool(found) and not missed))
    return verdicts


def _parse_one(text: str) -> Expectation:
    match = _FORM.match(text)
    if match is None:
        raise UsageError(f"cannot read the expectation {text!r}", hint="for example p99<50ms")
    unit = match["unit"] or ""
    name = _ALIASES.get(match["name"], match["name"])
    is_latency = _latency_name(name) is not None
    if not is_latency and name not in _NAMES:
        raise UsageError(f"no run has a value {match['name']!r}", hint=f"one of {_known()}")
    if unit in _MILLISECONDS:
        if not is_latency and not name.endswith(("_s", "_ms", "seconds")):
            raise UsageError(f"{match['name']} is not a time: {text!r}")
        factor = _MILLISECONDS[unit]
        if not is_latency and not name.endswith("_ms"):
            factor /= 1000
    elif is_latency and (unit or float(match["number"])):
        raise UsageError(f"{text!r} needs a unit: us, ms or s")
    else:
        factor = _UNITS[unit]
    return Expectation(
        text, match["phase"] or "", name, match["op"], float(match["number"]) * factor
    )


def _latency_name(name: str) -> tuple[str, str] | None:
    """("ack" or "delivery" or "", percentile), if it is the name of a latency."""
    side, _, percentile = name.rpartition("_")
    if percentile in _PERCENTILES and side in ("", "ack", "delivery"):
        return side, percentile
    return None


def _values(expected: Expectation, result: Result) -> list[float]:
    if expected.name in _TOTALS and not expected.phase:
        return [float(getattr(result.totals, expected.name))]
    found = []
    for phase in result.phases:
        if expected.phase in ("", phase.name):
            value = _of_phase(expected.name, phase)
            if value is not None:
                found.append(value)
    return found


def _of_phase(name: str, phase: Phase) -> float | None:
    latency_name = _latency_name(name)
    if latency_name is not None:
        side, percentile = latency_name
        latency = phase.ack if side == "ack" else phase.delivery
        if not side and latency is None:
            latency = phase.ack
        return None if latency is None else float(getattr(latency, f"{percentile}_ms"))
    if name in phase.extra:
        return phase.extra[name]
    value = getattr(phase, name, None)
    return float(value) if isinstance(value, int | float) else None


def _known() -> str:
    return " ".join(sorted({*_NAMES, *_ALIASES, *_PERCENTILES}))


_TOTALS: Final = frozenset(Totals.__struct_fields__)
_NUMBERS: Final = frozenset(
    {
        "broker_cpu_s",
        "broker_cpu_share",
        "cpu_s_per_million",
        "delivered",
        "delivered_per_s",
        "done",
        "done_per_s",
        "generator_cpu_share",
        "late_p99_ms",
        "memory_bytes",
        "memory_peak_bytes",
        "others_cpu_share",
        "seconds",
    }
)
_EXTRAS: Final = frozenset({"bytes_each", "connected_s", "restart_s"})
_NAMES: Final = _TOTALS | _NUMBERS | _EXTRAS
