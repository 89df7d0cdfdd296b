"""What a broker tells of pipelines without being asked: metrics, and an alarm.

A pipeline that is gone tells nothing any more, its own metrics included; its broker remembers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final, final

from perdure.admin.records.pipeline import Pipeline, PipelineJob
from perdure.errors import StorageUnavailable
from perdure.observe.metrics import Metrics
from perdure.server.pipelines import load_pipelines, pipeline_of

LOOK_S: Final = 15.0
"""Between two looks at what pipelines have told; they tell it as often."""


@final
class PipelineWatch:
    """Looks at what pipelines have told of themselves.

    Args:
        metrics: that are told.
        data: the data directory.
        end: the last offset of the log.
        now_us: wall time.

    Attributes:
        worst_s: how long the job that is worst off has not worked; 0 = all are well.
        problem: which one, and why.
    """

    def __init__(
        self, metrics: Metrics, data: Path, *, end: Callable[[], int], now_us: Callable[[], int]
    ) -> None:
        self._metrics, self._data = metrics, data
        self._end, self._now_us = end, now_us
        self.worst_s: int = 0
        self.problem: str = ""
        self._failing: dict[tuple[str, ...], int] = {}
        """When jobs that have never ended well were first seen to have failed."""

    async def run(self) -> None:
        """Look again and again, for ever."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        """Bring metrics and alarm up to date."""
        try:
            cursors, runs = await asyncio.to_thread(load_pipelines, self._data)
        except StorageUnavailable:
            return
        end, now_us = self._end(), self._now_us()
        self._tell(
            [
                pipeline_of(*key, cursors.get(key), runs.get(key), end=end, now_us=now_us)
                for key in sorted({*cursors, *runs})
            ],
            now_us,
        )

    def _tell(self, pipelines: list[Pipeline], now_us: int) -> None:
        behind: dict[tuple[str, ...], int] = {}
        silent: dict[tuple[str, ...], int] = {}
        late: dict[tuple[str, ...], int] = {}
        worst, text = 0, ""
        for each in pipelines:
            key = each.name, each.place
            if each.behind_s is not None:
                behind[key] = int(each.behind_s)
            if each.seen_at_us is not None:
                silent[key] = _seconds(now_us - each.seen_at_us)
            for job in each.jobs:
                since_us = self._late_since_us(each, job, now_us)
                late_s = late[*key, job.name] = _seconds(now_us - since_us)
                if late_s > worst:
                    worst = late_s
                    why = job.last_error or "nothing is heard of it"
                    text = (
                        f"{job.name} of the pipeline {each.name} to {each.place} has not worked "
                        f"for {late_s} s: {why} (perdure pipeline jobs)"
                    )
        metrics = self._metrics
        metrics.pipelines_behind_seconds = behind
        metrics.pipelines_silent_seconds = silent
        metrics.pipelines_late_seconds = late
        self.worst_s, self.problem = worst, text

    def _late_since_us(self, pipeline: Pipeline, job: PipelineJob, now_us: int) -> int:
        """Since when a job has not done what it should; now = it is well."""
        key = pipeline.name, pipeline.place, job.name
        if job.state == "off" or not (job.last_error or job.state == "overdue"):
            self._failing.pop(key, None)
            return now_us
        if job.unreachable_since_us is not None:
            return job.unreachable_since_us
        if job.last_error:
            # It may run just now, and fail again: it is well when it has ended well.
            first_us = self._failing.setdefault(key, now_us)
            return job.succeeded_at_us or first_us
        is_begun = (job.started_at_us or 0) > (job.ended_at_us or 0)
        return (pipeline.seen_at_us if is_begun else job.due_at_us) or now_us


def _seconds(us: int) -> int:
    return max(0, us // 1_000_000)
