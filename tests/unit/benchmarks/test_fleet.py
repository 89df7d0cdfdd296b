"""What the loads of a fleet say of their runs, and how what is missing is counted."""

from __future__ import annotations

import pytest
from benchmarks import fleet

from perdure.bench.meter import Meter
from perdure.bench.runner import Run
from perdure.bench.settings import Settings
from perdure.bench.subscriber import Subscriber
from perdure.bench.target import Target


def found(broker: str, delivered_per_s: float, *, missing: int = 0) -> fleet.Found:
    return fleet.Found(broker, delivered_per_s, 1.0, 2.0, 3.0, 4.0, missing, 0.0)


def test_rounds_are_compared_with_their_own_and_slower_is_missed() -> None:
    runs = [
        *(found("perdure", 200), found("mosquitto", 100)),
        *(found("mosquitto", 400), found("perdure", 200, missing=1)),
        *(found("perdure", 90), found("mosquitto", 100)),
    ]
    checks = {each.what.split(": ")[1]: each for each in fleet.checks_of({"ten": runs})}
    against = checks["against Mosquitto"]
    assert (against.low, against.found, against.high, against.is_met) == (0.5, 0.9, 2.0, False)
    assert checks["delivered"].found == 200
    assert (checks["missing"].high, checks["missing"].is_met) == (1, True)


@pytest.mark.parametrize("name", fleet.SCENARIOS)
def test_each_has_its_settings(name: str) -> None:
    text, settings, scenario = fleet.SCENARIOS[name]
    assert text
    assert settings.scenario == "fanin"
    assert callable(scenario)


def test_what_members_have_together_is_not_missing() -> None:
    run = Run(Settings(scenario="fanin", publishers=2), Target("127.0.0.1", 1))
    try:
        load = fleet.Fleet(run)
        members = load.group("g", 2)
        slow = load.reader("slow", load.ledgers[0], share="g", aside=True)
        clients = [link.client for link in (*members, slow)]
        assert all(isinstance(client, Subscriber) for client in clients)
        assert {client.filters for client in clients} == {((f"$share/g/{load.root}/+", 1),)}
        assert isinstance(slow.client, Subscriber)
        assert isinstance(slow.client.meter, Meter)
        assert slow.client.meter is load.aside
        for stream in load.streams:
            stream.frame(1, run.settings.tag, 0)
        assert load.missing() == 2
        load.ledgers[0].note(load.streams[0].number, 0)
        assert load.missing() == 1
    finally:
        run.close()
