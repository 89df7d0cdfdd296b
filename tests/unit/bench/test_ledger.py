"""The ledger against a list of everything that came."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from perdure.bench.ledger import Ledger


@given(st.lists(st.tuples(st.integers(1, 2), st.integers(0, 12)), max_size=60))
def test_the_verdicts_are_those_of_a_full_record(arrivals: list[tuple[int, int]]) -> None:
    ledger = Ledger()
    seen: dict[int, list[int]] = {1: [], 2: []}
    repeated = out_of_order = 0
    for stream, counter in arrivals:
        is_new = counter not in seen[stream]
        if not is_new:
            repeated += 1
        elif seen[stream] and counter < max(seen[stream]):
            out_of_order += 1
        seen[stream].append(counter)
        assert ledger.note(stream, counter) is is_new
    assert (ledger.repeated, ledger.out_of_order) == (repeated, out_of_order)
    for stream, counters in seen.items():
        assert ledger.distinct(stream) == len(set(counters))
        assert ledger.missing(stream, 13) == 13 - len(set(counters))
