"""The loggers of the shells; pure rooms do not log.

An event is a constant ``noun.verb``, what varies is a keyword: no payloads, no secrets. A logger
is cheap to make, may be kept for good and follows a later change of the level. Loading structlog
is put off until something is logged.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, TextIO, cast, final

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

_on_use: Final[dict[str, Any]] = {}
"""What ``configure_on_use`` was told and has not been done yet."""

_bound: Final[dict[str, Any]] = {}
"""structlog's logger of each room, until logging is configured anew: to make one for each event
would take longer than to write it."""


@final
class _LazyLogger:
    """Stands for structlog's logger until it is used."""

    __slots__ = ("_room",)

    def __init__(self, room: str) -> None:
        self._room = room

    def __getattr__(self, name: str) -> Any:
        logger = _bound.get(self._room)
        if logger is None:
            _configure_now()
            import structlog

            logger = _bound[self._room] = structlog.get_logger(room=self._room).bind()
        return getattr(logger, name)


def get_logger(room: str) -> FilteringBoundLogger:
    """A logger that puts ``room`` into each event."""
    return cast("FilteringBoundLogger", _LazyLogger(room))


def configure(
    *,
    level: str,
    format: str,  # noqa: A002 - the name of the setting
    repeat_max: int = 0,
    repeat_window_s: int = 10,
    stream: TextIO | None = None,
) -> None:
    """Set up logging for this process; may be called again (a reload).

    Args:
        level: debug, info, warning or error.
        format: console, json, or auto (console on a terminal, else json).
        repeat_max: times that one event is written in a window; 0 = no limit.
        repeat_window_s: the window, seconds.
        stream: where to write; None = standard error.
    """
    from perdure.observe import log_pipeline

    _on_use.clear()
    _bound.clear()
    log_pipeline.configure(
        level=level,
        format=format,
        repeat_max=repeat_max,
        repeat_window_s=repeat_window_s,
        stream=stream,
    )


def configure_on_use(*, level: str, format: str) -> None:  # noqa: A002 - the setting's name
    """Set up logging once something is logged, unless ``configure`` is called before."""
    _on_use.update(level=level, format=format)
    _bound.clear()


def _configure_now() -> None:
    if _on_use:
        configure(**_on_use)


def is_debug() -> bool:
    """Whether DEBUG is written; guard what is costly to compute."""
    _configure_now()
    import structlog

    return bool(structlog.get_logger().is_enabled_for(logging.DEBUG))
