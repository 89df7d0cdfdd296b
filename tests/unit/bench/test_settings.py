"""Settings refuse what cannot be run, and survive being written."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from perdure.bench.settings import Settings
from perdure.errors import UsageError


@pytest.mark.parametrize(
    "wrong",
    [
        {"version": 3},
        {"qos": 3},
        {"size": 23},
        {"window": 0},
        {"window": 65_536},
        {"publishers": 0},
    ],
)
def test_what_cannot_be_run_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Settings(scenario="p2p", **wrong)


def test_a_record_keeps_them() -> None:
    settings = Settings(scenario="p2p", rate=5.0, seed=7)
    assert msgspec.json.decode(msgspec.json.encode(settings), type=Settings) == settings


def test_the_seed_names_topics_and_clients() -> None:
    assert Settings(scenario="p2p", seed=255).root == "bench-000000ff"
    assert Settings(scenario="p2p", seed=255).tag == 255


def test_the_load_in_words() -> None:
    assert Settings(scenario="p2p").loop == "closed loop, window 16"
    assert Settings(scenario="p2p", rate=10.0).loop == "open loop, 10/s"
    assert Settings(scenario="p2p", window=5).window_open == 1000
