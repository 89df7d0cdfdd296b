"""Long names take no more memory than short ones, and are told apart."""

from __future__ import annotations

import sys

from perdure.broker.auth.flapping import Flapping
from perdure.broker.auth.guard import LoginGuard
from perdure.broker.auth.remembered import NAME_LENGTH_MAX, remembered
from perdure.config.schema import AuthConfig, LimitsConfig

LONG = "n" * 60_000


def test_short_names_are_as_they_are() -> None:
    for name in ("", "ada", "x" * NAME_LENGTH_MAX):
        assert remembered(name) == name
    assert len(remembered(LONG)) < NAME_LENGTH_MAX
    assert remembered(LONG + "1") != remembered(LONG + "2")
    assert remembered(LONG) == remembered("n" * 60_000)


def test_guessers_with_long_names_fill_nothing_and_are_kept_out() -> None:
    guard = LoginGuard(AuthConfig(failures_max=3, failures_per_address_max=0))
    for number in range(100):
        name = f"{LONG}{number}"
        for _ in range(3):
            guard.failed(username=name, address="10.0.0.1", client_id=name, now_us=1)
        guard.succeeded(username=name, address="10.0.0.2", client_id=name, now_us=1)
        assert guard.verdict(username=name, address="10.0.0.1", client_id="c", now_us=2)
        assert guard.is_trusted(username=name, address="10.0.0.2", client_id=name)
    assert not guard.verdict(username=LONG, address="10.0.0.1", client_id="c", now_us=2)
    held = [part for key in guard._trusted for part in key] + [ban.value for ban in guard.bans(2)]
    assert sum(map(sys.getsizeof, held)) < 200_000
    assert guard.lift(guard.bans(2)[0].value)


def test_long_client_ids_that_flap() -> None:
    flapping = Flapping()
    limits = LimitsConfig(flapping_max=2)
    assert flapping.flapped(LONG, limits, 1) is None
    assert flapping.flapped(LONG, limits, 2) is not None
    assert flapping.refuses(LONG, 3)
    assert not flapping.refuses(LONG + "x", 3)
    assert sum(len(client_id) for client_id in (*flapping._flaps, *flapping._bans)) < 1_000
    assert flapping.lift(LONG)
    assert not flapping.refuses(LONG, 4)
