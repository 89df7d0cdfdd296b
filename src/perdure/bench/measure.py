"""From settings and a broker to a result: one run, from its first connection to its record."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from perdure.bench import machine
from perdure.bench.result import Broker, Result
from perdure.bench.runner import Run
from perdure.bench.scenarios import SCENARIOS
from perdure.bench.settings import Settings
from perdure.bench.stopwatch import Progress
from perdure.bench.target import Target


def measure(
    settings: Settings,
    target: Target,
    *,
    broker: Broker,
    directory: Path,
    progress: Progress | None = None,
) -> Result:
    """Run a scenario once.

    Args:
        settings: what to do.
        target: whom to measure.
        broker: what the record says of it.
        directory: where its data are, as far as known.
        progress: is told how far the run is.

    Raises:
        BenchError: the broker refused or ended, or the scenario cannot be run on it.
    """
    started = datetime.now(UTC).isoformat(timespec="seconds")
    run = Run(settings, target) if progress is None else Run(settings, target, progress=progress)
    try:
        phases = SCENARIOS[settings.scenario](run)
        totals = run.totals()
    finally:
        run.close()
    return Result(
        settings=settings,
        broker=broker,
        machine=machine.describe(directory),
        started_at=started,
        phases=phases,
        totals=totals,
        warnings=run.warnings,
    )
