"""Why a benchmark could not be run."""

from __future__ import annotations

from typing import final

from perdure.errors import PerdureError


@final
class BenchError(PerdureError):
    """The broker refused, ended, or cannot do what the scenario needs."""

    code = "bench_failed"
