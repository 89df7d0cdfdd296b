"""What one forwarder has done since the start of the process."""

from __future__ import annotations

from typing import final

from perdure.observe.instruments import add
from perdure.observe.metrics import Metrics


@final
class Counts:
    """Counters of one forwarder, kept in the broker's metrics under its name.

    Args:
        metrics: of the broker.
        name: of the forwarder.
    """

    __slots__ = ("_metrics", "_name")

    def __init__(self, metrics: Metrics, name: str) -> None:
        self._metrics = metrics
        self._name = name

    def forwarded(self, count: int) -> None:
        """Messages are safe at the target."""
        add(self._metrics.forwarder_messages, (self._name, "out"), count)

    def received(self, count: int) -> None:
        """Messages came from the target and are in the log."""
        add(self._metrics.forwarder_messages, (self._name, "in"), count)

    def dropped(self, reason: str, count: int = 1) -> None:
        """Messages were passed over: ``expired``, ``refused``, ``loop`` or ``invalid``."""
        add(self._metrics.forwarder_dropped, (self._name, reason), count)

    def gap(self) -> None:
        """Retention has dropped what was not forwarded yet."""
        self.dropped("lost")

    def failed(self) -> None:
        """The connection to the target ended, or could not be made."""
        add(self._metrics.forwarder_failures, (self._name,))

    def lag(self, messages: int, seconds: int, *, running: bool) -> None:
        """How far it is behind, and whether its target is there."""
        self._metrics.forwarder_lag_messages[self._name,] = messages
        self._metrics.forwarder_lag_seconds[self._name,] = seconds
        self._metrics.forwarder_up[self._name,] = int(running)

    def forget(self) -> None:
        """The forwarder has gone: its gauges go too."""
        for gauge in (
            self._metrics.forwarder_lag_messages,
            self._metrics.forwarder_lag_seconds,
            self._metrics.forwarder_up,
        ):
            gauge.pop((self._name,), None)

    def row(self) -> dict[str, int]:
        """The counters for people."""
        metrics, name = self._metrics, self._name
        dropped = {
            reason: count
            for (whose, reason), count in metrics.forwarder_dropped.items()
            if whose == name
        }
        return {
            "forwarded": metrics.forwarder_messages.get((name, "out"), 0),
            "received": metrics.forwarder_messages.get((name, "in"), 0),
            "refused": dropped.get("refused", 0),
            "expired": dropped.get("expired", 0),
            "loops": dropped.get("loop", 0),
            "invalid": dropped.get("invalid", 0),
            "gaps": dropped.get("lost", 0),
            "failures": metrics.forwarder_failures.get((name,), 0),
        }
