"""How an event becomes a line: structlog's processors, console or JSON, repeats limited.

Standard-library loggers of dependencies come out of the same pipe. Only ``configure`` writes
global state. Imported when something is logged, or logging is configured, and not before
(``logs``): structlog and what it brings take longer to load than a short command runs.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, Final, TextIO, final

import msgspec
import structlog

from perdure.observe.printable import printable, printable_json

LEVELS: Mapping[str, int] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}

REPEAT_KEYS_MAX = 4096
"""Distinct (room, event) pairs remembered by the limiter; events are constants, so few."""


@final
class RepeatLimiter:
    """Drops an event that is repeated too often, and counts what it dropped.

    The first event after the window carries ``suppressed``, the number of those dropped.

    Args:
        repeat_max: times that one event passes in a window; 0 = no limit.
        window_s: length of the window, seconds.
        monotonic: source of time, seconds.
    """

    __slots__ = ("_monotonic", "_repeat_max", "_seen", "_window_s")

    def __init__(self, repeat_max: int, *, window_s: int, monotonic: Callable[[], float]) -> None:
        self._repeat_max = repeat_max
        self._window_s = window_s
        self._monotonic = monotonic
        # (room, event) -> start of its window, times in it.
        self._seen: dict[tuple[str, str], tuple[float, int]] = {}

    def count(self, room: str, event: str) -> int:
        """Count an event; returns how many were dropped before it, -1 = drop it."""
        if self._repeat_max == 0:
            return 0
        key = (room, event)
        now = self._monotonic()
        window = self._seen.get(key)
        if window is None:
            if len(self._seen) >= REPEAT_KEYS_MAX:
                self._seen.clear()
            window = now, 0
        start, count = window
        dropped = 0
        if now - start >= self._window_s:
            dropped = max(0, count - self._repeat_max)
            start, count = now, 0
        self._seen[key] = start, count + 1
        return dropped if count < self._repeat_max else -1

    def __call__(
        self, _logger: object, _method: str, event: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        """Pass or drop an event that did not come through ``_Limited``: a processor."""
        # Their texts have what a client sent in them, so that each would be another event.
        dropped = self.count("", str(event.get("logger", "")))
        if dropped < 0:
            raise structlog.DropEvent
        if dropped:
            event["suppressed"] = dropped
        return event


class _Limited(structlog.BoundLoggerBase):
    """Asks the limiter first: under load most events are dropped, which must cost little."""

    limiter: RepeatLimiter

    def _proxy_to_logger(self, method_name: str, event: str | None = None, **values: Any) -> Any:
        if "suppressed" in values:
            # Its repeats were limited before (``broker.connection.refusal_log``).
            return super()._proxy_to_logger(method_name, event, **values)
        dropped = self.limiter.count(self._context.get("room", ""), event or "")
        if dropped < 0:
            return None
        if dropped:
            values["suppressed"] = dropped
        return super()._proxy_to_logger(method_name, event, **values)


def configure(
    *,
    level: str,
    format: str,  # noqa: A002 - the name of the setting
    repeat_max: int = 0,
    repeat_window_s: int = 10,
    stream: TextIO | None = None,
    monotonic: Callable[[], float] = time.monotonic,
) -> None:
    """Set up logging for this process; may be called again (a reload).

    Args:
        level: debug, info, warning or error.
        format: console, json, or auto (console on a terminal, else json).
        repeat_max: see ``RepeatLimiter``.
        repeat_window_s: see ``RepeatLimiter``.
        stream: where to write; None = standard error.
        monotonic: source of time for the limiter, seconds.
    """
    out = sys.stderr if stream is None else stream
    terminal = out.isatty()
    console = format == "console" or (format == "auto" and terminal)
    limiter = RepeatLimiter(repeat_max, window_s=repeat_window_s, monotonic=monotonic)
    filtering: type = structlog.make_filtering_bound_logger(LEVELS[level])
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
    ]
    render = _console(colors=terminal and not os.environ.get("NO_COLOR")) if console else _json()
    structlog.configure(
        processors=[*shared, *render],
        wrapper_class=type("Logger", (_Limited, filtering), {"limiter": limiter}),
        logger_factory=structlog.WriteLoggerFactory(file=out),
        # A cached logger would keep its level through a reload.
        cache_logger_on_first_use=False,
    )
    handler = _Handler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, limiter, *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *render],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    # Dependencies tell us of trouble only; their INFO is not about this broker.
    root.setLevel(max(LEVELS[level], logging.WARNING))


@final
class _Handler(logging.StreamHandler[TextIO]):
    """A stream handler that lets the processors drop a foreign record."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = self.format(record)
        except structlog.DropEvent:
            return
        self.stream.write(f"{text}{self.terminator}")
        self.flush()


def _console(*, colors: bool) -> list[structlog.typing.Processor]:
    return [
        _escape,
        structlog.dev.ConsoleRenderer(colors=colors, timestamp_key="time", sort_keys=False),
    ]


def _escape(
    _logger: object, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """What clients and files say is nothing that the terminal obeys, nor another line."""
    for name, value in event.items():
        if isinstance(value, str) and not value.isprintable() and name not in _OF_LINES:
            event[name] = printable(value)
    return event


def _json() -> list[structlog.typing.Processor]:
    return [structlog.processors.format_exc_info, _render_json]


_OF_LINES: Final = frozenset({"exception", "stack"})
"""Values of several lines, made by Python."""

_encode = msgspec.json.Encoder(enc_hook=str).encode


def _render_json(_logger: object, _method: str, event: MutableMapping[str, Any]) -> str:
    return printable_json(_encode(event).decode())
