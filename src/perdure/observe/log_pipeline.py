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
from typing import Any, TextIO, final

import msgspec
import structlog

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
    """A structlog processor that drops an event repeated too often, and counts what it dropped.

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

    def __call__(
        self, _logger: object, _method: str, event: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        """Pass or drop one event."""
        if self._repeat_max == 0:
            return event
        key = (str(event.get("room", "")), str(event.get("event", "")))
        now = self._monotonic()
        start, count = self._seen.get(key, (now, 0))
        if now - start >= self._window_s:
            if count > self._repeat_max:
                event["suppressed"] = count - self._repeat_max
            start, count = now, 0
        if len(self._seen) >= REPEAT_KEYS_MAX and key not in self._seen:
            self._seen.clear()
        self._seen[key] = (start, count + 1)
        if count >= self._repeat_max:
            raise structlog.DropEvent
        return event


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
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        RepeatLimiter(repeat_max, window_s=repeat_window_s, monotonic=monotonic),
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
    ]
    render = _console(colors=terminal and not os.environ.get("NO_COLOR")) if console else _json()
    structlog.configure(
        processors=[*shared, *render],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(file=out),
        # A cached logger would keep its level through a reload.
        cache_logger_on_first_use=False,
    )
    handler = _Handler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],
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
    return [structlog.dev.ConsoleRenderer(colors=colors, timestamp_key="time", sort_keys=False)]


def _json() -> list[structlog.typing.Processor]:
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(_dumps)]


def _dumps(value: object, **_options: object) -> str:
    return msgspec.json.encode(value, enc_hook=str).decode()
