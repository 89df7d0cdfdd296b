"""Rounds and ratios, on stores that are not there."""

from __future__ import annotations

import pytest

from perdure.storebench import run
from perdure.storebench.contestants import Contestant, Servers, Stage
from perdure.storebench.run import Settings, compare, ratios
from tests.unit.storebench.fakes import FakeStore, comparison, row


def test_contestants_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    async def open_fake(self: Stage, contestant: Contestant, *, clients: int) -> FakeStore:
        seen.append(contestant.name)
        return FakeStore()

    monkeypatch.setattr(Stage, "open", open_fake)
    told: list[tuple[str, float]] = []
    settings = Settings(50, 8, 0.02, 2, shapes=("single",), contestants=("redis-sync", "compact"))
    found = compare(settings, Servers(), progress=lambda what, done: told.append((what, done)))
    one_durability = ["redis-sync", "compact", "compact", "redis-sync"]
    assert seen == [*one_durability, "redis-sync", "compact", *one_durability]
    assert [(each.durability, each.contestant) for each in found.rows] == [
        ("durable", "redis-sync"),
        ("durable", "compact"),
        ("relaxed", "redis-sync"),
        ("relaxed", "compact"),
    ]
    assert all(len(each.stretches) == 2 for each in found.rows)
    assert found.memory == {"redis-sync": 8, "compact": 8}
    assert told[0] == ("durable, single, round 1", 0.0)
    assert all(0 <= done < 1 for _, done in told)


def test_ratios_are_taken_by_round() -> None:
    rows = [row("redis-async", 500, 300, 600), row("redis-sync", 100, 50, 300)]
    [rate, cost] = ratios(rows, {})
    assert (rate.found, rate.low, rate.high, rate.wanted) == (5, 2, 6, 4.0)
    assert rate.is_met
    assert (cost.found, cost.wanted, cost.is_met) == (1.0, 0.0, True)


def test_bounds() -> None:
    found = {ratio.what: ratio for ratio in comparison().ratios}
    assert found["compact against redis-async, single, durable"].is_met
    assert not found["compact against redis-async, batched, durable"].is_met
    memory = found["memory of compact against tbmq, queued"]
    assert (memory.found, memory.is_met) == (0.25, True)


def test_the_seed_is_what_it_says() -> None:
    assert list(run.SEED.values()) == [30_000, 40_000, 60_000]
