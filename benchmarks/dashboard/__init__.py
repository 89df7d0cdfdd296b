"""What open pages of the dashboard cost those who publish: ``python -m benchmarks dashboard``."""

from benchmarks.dashboard.measure import run

__all__ = ["run"]
