"""Seeded simulations of the whole broker; ``make sim SEED=n`` repeats one and prints its trace.

The canaries prove that the checkers see: each plants one fault in the store or in a client, and a
run that does not fail is the failure.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, final

import pytest

from perdure.config.schema import Config, StorageConfig, SysConfig
from tests.support.plan import Plan
from tests.support.scenario import Report
from tests.support.simulation import Simulation
from tests.support.storage import FaultyDatabase

SEEDS = 50
CANARY_SEEDS = 12
REGRESSIONS = Path(__file__).with_name("regressions.txt")


def _seeds() -> list[Any]:
    """Those that found bugs, and the first ones; or the one that was asked for, and so many on."""
    if wanted := os.environ.get("PERDURE_SEED"):
        first, count = int(wanted), int(os.environ.get("PERDURE_SIM_SEEDS") or 1)
        return list(range(first, first + count))
    lines = REGRESSIONS.read_text().splitlines()
    found = [int(line.split()[0]) for line in lines if line and not line.startswith("#")]
    others = sorted({*range(SEEDS)} - {*found})
    return [*found, *(pytest.param(seed, marks=pytest.mark.sampled) for seed in others)]


@pytest.mark.parametrize("seed", _seeds())
def test_every_promise_is_kept(seed: int) -> None:
    report = Simulation(seed).run()
    print(*report.trace, *report.breaches, sep="\n")
    assert report.breaches == [], f"make sim SEED={seed}"
    assert report.published > 0


@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(8))
def test_the_os_level_survives_the_death_of_the_broker(seed: int) -> None:
    """Power cuts apart, nothing differs from ``fsync``."""
    config = Config(storage=StorageConfig(durability="os"), sys=SysConfig(interval_s=0))
    plan = Plan(power_cuts=False, storage_faults=False, config=config)
    report = Simulation(seed, plan=plan).run()
    print(*report.trace, *report.breaches, sep="\n")
    assert report.breaches == []
    assert report.crashes > 0


@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(16))
def test_every_promise_is_kept_by_a_broker_that_rests(seed: int) -> None:
    """What ends a rest, and what comes in one, meets crashes and faults of the disk."""
    interval_us = (500, 2_000, 20_000)[seed % 3]
    config = Config(
        storage=StorageConfig(commit_interval_us=interval_us), sys=SysConfig(interval_s=0)
    )
    report = Simulation(seed, plan=Plan(rests=True, suspends=seed % 2 == 1, config=config)).run()
    print(*report.trace, *report.breaches, sep="\n")
    assert report.breaches == []
    assert report.published > 0


def test_a_seed_decides_everything() -> None:
    first, second = Simulation(7).run(), Simulation(7).run()
    assert first == second
    assert Simulation(8).run().trace != first.trace


def _runs(store: type[FaultyDatabase], plan: Plan | None = None) -> Iterator[Report]:
    for seed in range(CANARY_SEEDS):
        yield Simulation(seed, plan=plan, store=store()).run()


@final
class Liar(FaultyDatabase):
    """Says that it has synced, and has not."""

    def sync(self) -> None:
        self.sync_count += 1


@final
class Lazy(FaultyDatabase):
    """Syncs only when one batch waits for it."""

    def sync(self) -> None:
        if self.inner.unsynced_count > 1:
            self.sync_count += 1
            return
        super().sync()


@pytest.mark.parametrize("store", [Liar, Lazy])
def test_canary_a_store_that_loses_what_it_synced(store: type[FaultyDatabase]) -> None:
    plan = Plan(storage_faults=False, generations=False)
    assert any("lost" in text for report in _runs(store, plan) for text in report.breaches)


def test_canary_a_broker_that_hands_qos_2_on_before_it_is_synced() -> None:
    """The broker's own level lets it dispatch at once; the listener's promises more."""
    config = Config(storage=StorageConfig(durability="os"), sys=SysConfig(interval_s=0))
    plan = Plan(
        steps=400, storage_faults=False, generations=False, config=config, durability="fsync"
    )
    reports = _runs(FaultyDatabase, plan)
    assert any("repeated" in text for report in reports for text in report.breaches)
