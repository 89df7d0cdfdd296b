"""What `pipeline run` tells Prometheus; values are read from its state at scrape time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, Protocol, final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

_PREFIX: Final = "perdure_pipeline_"
_GAUGES: Final = {
    "behind_seconds": "From what the archive has to the end of the log; -1 = not looked at yet.",
    "behind_messages": "Messages of the log that the archive has not; -1 = not looked at yet.",
    "lease_held": "1 = this process works on the archive, 0 = it stands by.",
}
_COUNTERS: Final = {
    "rows": "Messages that were added to tables.",
    "files": "Files that were added to tables.",
    "misfits": "Values that have no column of their type; they are in the payload.",
    "gaps": "Ranges of messages that were dropped before they were archived.",
}
_OF_JOBS: Final = {
    "job_runs": "Runs of a job.",
    "job_failures": "Runs that ended with an error.",
}
_GAUGES_OF_JOBS: Final = {
    "job_unreachable": "1 = it waits for a catalog, a store or a log that cannot be reached.",
    "job_succeeded_timestamp_seconds": "When a job last ended well; 0 = never.",
    "job_duration_seconds": "How long the last run took.",
}


_JOB: Final = "pipeline_job"
"""The label. Prometheus puts a label ``job`` of its own on all that it scrapes."""


class JobLike(Protocol):
    """What is told of a job."""

    runs: int
    failures: int
    succeeded_at_us: int
    seconds: float
    unreachable_since_us: int


class StateLike(Protocol):
    """What is told."""

    rows: int
    files: int
    misfits: int
    gaps: int
    behind_us: int
    behind_messages: int

    @property
    def jobs(self) -> Mapping[str, JobLike]:
        """By name."""
        ...


@final
class PipelineCollector:
    """Reads the state when it is asked.

    Args:
        state: as it is now.
        has_lease: whether this process works.
    """

    def __init__(self, state: Callable[[], StateLike], has_lease: Callable[[], bool]) -> None:
        self._state, self._has_lease = state, has_lease

    def collect(self) -> Iterator[Metric]:
        """Every metric."""
        state = self._state()
        seconds = state.behind_us / 1e6 if state.behind_us >= 0 else -1.0
        values = (seconds, float(state.behind_messages), float(self._has_lease()))
        for (name, text), value in zip(_GAUGES.items(), values, strict=True):
            yield GaugeMetricFamily(_PREFIX + name, text, value=value)
        for name, text in _COUNTERS.items():
            yield CounterMetricFamily(_PREFIX + name, text, value=getattr(state, name))
        jobs = dict(state.jobs)
        for (name, text), field in zip(_OF_JOBS.items(), ("runs", "failures"), strict=True):
            counters = CounterMetricFamily(_PREFIX + name, text, labels=[_JOB])
            for job, each in jobs.items():
                counters.add_metric([job], getattr(each, field))
            yield counters
        unreachable, succeeded, duration = (
            GaugeMetricFamily(_PREFIX + name, text, labels=[_JOB])
            for name, text in _GAUGES_OF_JOBS.items()
        )
        for job, each in jobs.items():
            unreachable.add_metric([job], float(each.unreachable_since_us > 0))
            succeeded.add_metric([job], each.succeeded_at_us / 1e6)
            duration.add_metric([job], each.seconds)
        yield from (unreachable, succeeded, duration)


def pipeline_registry(
    state: Callable[[], StateLike], has_lease: Callable[[], bool]
) -> CollectorRegistry:
    """A registry with these metrics and the process's own."""
    from prometheus_client import ProcessCollector

    registry = CollectorRegistry()
    registry.register(PipelineCollector(state, has_lease))
    ProcessCollector(registry=registry)
    return registry
