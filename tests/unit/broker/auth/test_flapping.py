"""Takeover storms and connections that are cut again and again."""

from __future__ import annotations

import pytest

from perdure.broker.auth import flapping as flapping_module
from perdure.broker.auth.flapping import Flapping
from perdure.config.schema import Config, LimitsConfig
from tests.unit.broker.harness import QUIET, Client, make_sim

S = 1_000_000
LIMITS = LimitsConfig(flapping_max=3, flapping_window_s=10, flapping_ban_s=60)


def test_what_comes_fast_is_banned_for_a_while() -> None:
    flapping = Flapping()
    assert [flapping.flapped("c", LIMITS, at) for at in (0, S)] == [None, None]
    ban = flapping.flapped("c", LIMITS, 2 * S)
    assert ban is not None
    assert (ban.client_id, ban.flaps, ban.until_us) == ("c", 3, 62 * S)
    assert flapping.refuses("c", 61 * S)
    assert not flapping.refuses("d", 61 * S)
    assert not flapping.refuses("c", 62 * S)
    assert flapping.bans(62 * S) == []


def test_what_comes_slowly_is_not() -> None:
    flapping = Flapping()
    for step in range(100):
        assert flapping.flapped("c", LIMITS, step * 6 * S) is None
    assert flapping.flapped("c", LimitsConfig(flapping_max=0), 0) is None


def test_tables_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flapping_module, "TRACKED_MAX", 5)
    flapping = Flapping()
    for number in range(50):
        for _ in range(3):
            flapping.flapped(f"c{number}", LIMITS, number)
        flapping.flapped(f"d{number}", LIMITS, number)
    assert len(flapping.bans(0)) == 5
    assert len(flapping._flaps) == 5


def test_two_clients_with_one_identifier() -> None:
    """The third takeover bans the identifier: who has the session keeps it, the next is refused
    before it takes anything, and the bans can be seen and lifted."""
    sim = make_sim(config=Config(sys=QUIET, limits=LIMITS))
    services = sim.live.services
    one, other = Client(sim, "same"), Client(sim, "same")
    assert one.connect().reason == 0
    for client in (other, one, other):
        assert client.connect().reason == 0
    assert one.connect().reason == 0x8A
    assert not other.is_lost
    assert services.metrics.sessions_taken_over == 3
    assert services.metrics.limit_refusals == {("limits.flapping_max",): 1}
    assert [event for event, _ in sim.events].count("client.flapping") == 1
    assert [(ban.kind, ban.value) for ban in services.ban_enforcer.temporary()] == [
        ("client_id", "same")
    ]
    assert services.ban_enforcer.lift("client_id", "same")
    assert one.connect().reason == 0


def test_who_says_goodbye_may_come_as_often_as_it_likes() -> None:
    sim = make_sim(config=Config(sys=QUIET, limits=LIMITS))
    client = Client(sim, "c")
    for _ in range(10):
        assert client.connect().reason == 0
        client.disconnect()
    for _ in range(2):
        assert client.connect().reason == 0
        client.cut()
    assert client.connect().reason == 0
    client.cut()
    assert client.connect().reason == 0x8A
