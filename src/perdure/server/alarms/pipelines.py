"""What is looked at for the alarm of pipelines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

from perdure.config.schema.alarms import AlarmsConfig
from perdure.server.alarms.book import Reading
from perdure.server.pipeline_watch import PipelineWatch


@final
class PipelineReadings:
    """Looks at what pipelines have told.

    Args:
        watch: looks at them.
    """

    def __init__(self, watch: PipelineWatch) -> None:
        self._watch = watch

    def look(self, alarms: AlarmsConfig) -> Iterator[tuple[str, Reading]]:
        """By name of the alarm."""
        watch = self._watch
        yield "pipeline", Reading(watch.worst_s, alarms.pipeline_late_s, watch.problem)
