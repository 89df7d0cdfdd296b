"""How long the state machines of a session run."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

MACHINE = settings(
    max_examples=120,
    stateful_step_count=40,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
