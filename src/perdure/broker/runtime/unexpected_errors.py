"""What nobody expected: an exception in a step that belongs to one client.

Such a step (a packet, a timer of a session, a message given to one subscriber, a catch-up) costs
its connection and nothing else. It is counted and logged here with all that is known of it; each
place is shown with its traceback once in a while, so that who causes it again and again does not
fill the log. What belongs to all clients (the commit, the dispatcher's own order) is not caught:
there the broker stops, rather than go on with what may be wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from perdure.observe.instruments import add

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from perdure.clock import Clock
    from perdure.observe.metrics import Metrics

TRACEBACK_INTERVAL_US: Final = 60_000_000
"""How often one place of failure is shown with its traceback; in between it is one line."""
PLACES_MAX: Final = 256
"""Places that are remembered; there are not that many mistakes in one program."""


@final
class UnexpectedErrors:
    """Counts and reports unexpected exceptions.

    Args:
        metrics: counts them.
        log: where they are told.
        clock: spaces tracebacks.
    """

    def __init__(self, metrics: Metrics, log: FilteringBoundLogger, clock: Clock) -> None:
        self._metrics = metrics
        self._log = log
        self._clock = clock
        self._shown_us: dict[str, int] = {}

    def report(self, error: BaseException, where: str, **about: object) -> None:
        """Tell of an exception that has cost one connection, or one step of the background.

        Args:
            error: what was raised.
            where: kind of step, a word of the metric's label.
            about: whose it was: client id, user, address, listener, packet.
        """
        add(self._metrics.unexpected_errors, (where,))
        place = f"{where} {_place(error)}"
        now_us = self._clock.monotonic_us()
        shown_us = self._shown_us.get(place)
        values = {name: value for name, value in about.items() if value not in (None, "")}
        text = f"{type(error).__name__}: {error}"[:500]
        if shown_us is not None and now_us - shown_us < TRACEBACK_INTERVAL_US:
            self._log.error("connection.failed", where=where, error=text, **values)
            return
        if len(self._shown_us) >= PLACES_MAX:
            self._shown_us.clear()
        self._shown_us[place] = now_us
        self._log.error(
            "connection.failed",
            where=where,
            error=text,
            hint="a defect of the broker: please report it; only this connection was closed",
            exc_info=error,
            **values,
        )


def _place(error: BaseException) -> str:
    """Type of an exception and the line that raised it."""
    trace = error.__traceback__
    if trace is None:
        return type(error).__name__
    while trace.tb_next is not None:
        trace = trace.tb_next
    return f"{type(error).__name__} {trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
