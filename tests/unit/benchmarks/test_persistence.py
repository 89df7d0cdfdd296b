"""The record of a comparison of stores."""

from __future__ import annotations

from benchmarks import persistence

from tests.unit.storebench.fakes import comparison


def test_checks() -> None:
    found = {check.what: check for check in persistence.checks(comparison())}
    kept = found["compact against redis-async, single, durable"]
    assert (kept.found, kept.low, kept.high) == (3.0, 2.5, 5.0)
    assert (kept.must, kept.is_met) == (">= 2.5 x", True)
    assert not found["compact against redis-async, batched, durable"].is_met
    assert found["postgres-unbatched against redis-sync, single, durable"].must == ""
    assert found["redis-async, single, durable"].unit == "cycles/s"
    assert "15 us of CPU" in found["redis-async, single, durable"].note
    size = found["compact: a message, 10 queued for each client"]
    assert (size.found, size.unit, size.note) == (110, "B", "memory of the server")
