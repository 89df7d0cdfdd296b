"""What a message adds to what a node of a cluster takes at rest."""

from __future__ import annotations

import pytest

from perdure.bench.result import Phase
from perdure.bench.scenarios.cluster import tell_added


@pytest.mark.parametrize(
    ("used_us", "rest_us", "added_us"),
    [(3.5, 4_000.0, 2.7), (3.5, 0.0, 3.5), (0.5, 10_000.0, 0.0)],
)
def test_rest_is_taken_off_each_message(used_us: float, rest_us: float, added_us: float) -> None:
    """40,000 messages in 8 s: of each 1 ms/s of rest, 0.2 us are a message's."""
    rest = Phase(name="rest", seconds=5.0, done=5, done_per_s=1.0)
    rest.extra = {"node2_cpu_us": rest_us}
    phase = Phase(name="local", seconds=8.0, done=40_000, done_per_s=5_000.0)
    phase.extra = {"node2_cpu_us": used_us}
    tell_added(phase, rest)
    assert phase.extra == {"node2_cpu_us": used_us, "node2_added_us": pytest.approx(added_us)}


def test_a_phase_in_which_nothing_was_done_tells_nothing_of_a_message() -> None:
    rest = Phase(name="rest", seconds=5.0, done=5, done_per_s=1.0, extra={"node1_cpu_us": 1_000.0})
    phase = Phase(
        name="local", seconds=8.0, done=0, done_per_s=0.0, extra={"node1_cpu_us": 9_000.0}
    )
    tell_added(phase, rest)
    assert phase.extra["node1_added_us"] == pytest.approx(1_000.0)
