"""What is looked at for the alarms of forwarders."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

from perdure.config.schema.alarms import AlarmsConfig
from perdure.forwarders.forwarder import STOPPED
from perdure.forwarders.service import ForwarderService
from perdure.server.alarms.book import Reading

GAP_US: Final = 3_600_000_000
"""How long a gap is told of: it lasts, but somebody has to see it."""


@final
class ForwarderReadings:
    """Looks at forwarders; those that are paused or another node's are well.

    Args:
        service: runs them.
    """

    def __init__(self, service: ForwarderService) -> None:
        self._service = service

    def look(self, alarms: AlarmsConfig, now_us: int) -> Iterator[tuple[str, Reading]]:
        """By name of the alarm.

        Args:
            alarms: thresholds.
            now_us: monotonic.
        """
        running = self._service.running()
        worst, text = 0, ""
        for name, forwarder in running.items():
            value = forwarder.lag()[1]
            if forwarder.state == STOPPED:
                value = max(value, alarms.forwarder_lag_s)
            if value > worst:
                what = f"is {forwarder.state}" if forwarder.error else f"is {value} s behind"
                why = f": {forwarder.error}" if forwarder.error else ""
                worst = value
                text = f"forwarder {name} {what}{why} (perdure forwarders show {name})"
        yield "forwarder_lag", Reading(worst, alarms.forwarder_lag_s, text)
        gaps = [
            name
            for name, forwarder in running.items()
            if forwarder.gap_at_us and now_us - forwarder.gap_at_us < GAP_US
        ]
        text = f"messages were dropped before {', '.join(gaps)} had forwarded them"
        yield "forwarder_gaps", Reading(len(gaps), alarms.forwarder_gaps, text)
