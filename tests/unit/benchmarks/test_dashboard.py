"""What the rounds of the dashboard's benchmark amount to."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("httpx")

from benchmarks.dashboard import pages
from benchmarks.dashboard.measure import checks_of
from benchmarks.dashboard.tabs import PAGES, page_path, paths, typed


def stretch(times: float, cpu: float) -> dict[str, Any]:
    return {
        **{
            f"{what}_{share}": 2.0 * times
            for what in ("ack", "delivery")
            for share in ("p50", "p99")
        },
        "broker_cpu": 20.0 + cpu,
        "http_cpu": cpu,
    }


def test_each_stretch_is_compared_with_the_one_without_tabs_of_its_round() -> None:
    rounds = [
        {"without": stretch(machine, 0.0), "replayed": stretch(machine * more, 1.5)}
        for machine, more in ((1.0, 1.05), (5.0, 1.2), (1.0, 1.0))
    ]
    found = {check.what: check for check in checks_of(rounds)}
    ratio = found["publish to PUBACK, p99, five tabs, their requests alone: times that without"]
    assert (ratio.found, ratio.low, ratio.high) == (1.05, 1.0, 1.2)
    assert ratio.is_met
    assert ratio.must == "<= 1.1 x"
    assert found["CPU of the broker for five tabs, their requests alone"].found == 1.5
    assert not any("Chromium" in what for what in found), "there was none"
    slow = [{"without": stretch(1.0, 0.0), "replayed": stretch(1.2, 0.0)}]
    assert sum(not check.is_met for check in checks_of(slow)) == 2


def test_pages_are_those_of_a_client_whatever_its_name() -> None:
    assert paths("a/b")["session"] == "/ui/sessions/a%2Fb"
    assert typed("z", 101) == "z01"


def test_a_page_costs_what_all_three_spend_beyond_a_stretch_without() -> None:
    without = {"broker": 7.0, "http": 0.2, "browser": 0.1}
    rounds = [
        {pages.NONE: without, "session": {"broker": 7.1, "http": 0.3, "browser": browser}}
        for browser in (0.5, 0.6, 2.1)
    ]
    (found,) = pages.checks_of(rounds)
    assert found.what == "an open tab, session"
    assert (found.found, found.low, found.high) == (0.7, 0.6, 2.2)
    assert found.is_met


def test_a_page_is_opened_by_its_name() -> None:
    assert page_path("session", "z00", "a/b") == "/ui/sessions/a%2Fb"
    assert page_path("sleeper", "z00", "a/b") == "/ui/sessions/z0000000"
    assert page_path("overview", "z", "a") == "/ui/"
    assert page_path("slow", "z", "a") == "/ui/slow"
    assert len(set(PAGES)) == len(PAGES)
