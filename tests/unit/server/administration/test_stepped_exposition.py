"""The text for Prometheus is that of the whole registry; clients are served while it is made."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram

from perdure.observe.metrics import Metrics
from perdure.observe.metrics_text import MetricsText
from perdure.server import turns
from perdure.server.administration.stepped_exposition import KEPT_US, SteppedExposition


def registry_of(count: int) -> CollectorRegistry:
    registry = CollectorRegistry()
    for number in range(count):
        counter = Counter(f"c{number}", "Counted.", ["of"], registry=registry)
        counter.labels('a "b" \n').inc(number)
    Histogram("h_seconds", "Took.", registry=registry).observe(0.3)
    return registry


def text_of(registry: CollectorRegistry) -> MetricsText:
    return MetricsText(Metrics(), version="1", backend="memory", registry=registry)


async def test_it_is_the_whole_text() -> None:
    text = text_of(registry_of(20))
    found = await SteppedExposition(text, lambda: 0).text()
    assert found == "".join(text.families())
    assert "c19_total" in found


async def test_others_have_turns_between_families(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "STEP_NS", 0)
    made = asyncio.create_task(SteppedExposition(text_of(registry_of(20)), lambda: 0).text())
    taken = 0
    while not made.done():
        await asyncio.sleep(0)
        taken += 1
    assert taken > 100


async def test_a_text_is_made_once_in_a_second_for_all_who_ask() -> None:
    registry, now_us = CollectorRegistry(), 5 * KEPT_US
    counter = Counter("asked", "Counted.", registry=registry)
    exposition = SteppedExposition(text_of(registry), lambda: now_us)
    first, second = await asyncio.gather(exposition.text(), exposition.text())
    assert first is second
    counter.inc()
    assert await exposition.text() is first
    now_us += KEPT_US
    assert "asked_total 1.0" in await exposition.text()
