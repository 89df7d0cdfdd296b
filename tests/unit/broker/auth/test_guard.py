"""Failed logins: what is counted for whom, what is banned, and for how long."""

from __future__ import annotations

import pytest

from perdure.broker.auth import guard as guard_module
from perdure.broker.auth.guard import LoginBan, LoginGuard
from perdure.config.schema import AuthConfig

S = 1_000_000
CONFIG = AuthConfig(
    failures_max=3, failures_per_address_max=10, failures_window_s=60, failures_ban_s=30
)


class Attempts:
    """A guard, and who tries."""

    def __init__(self, config: AuthConfig = CONFIG) -> None:
        self.guard = LoginGuard(config)
        self.now_us = 0

    def fail(self, user: str, address: str, client_id: str = "x") -> LoginBan | None:
        return self.guard.failed(
            username=user, address=address, client_id=client_id, now_us=self.now_us
        )

    def succeed(self, user: str, address: str, client_id: str) -> None:
        self.guard.succeeded(
            username=user, address=address, client_id=client_id, now_us=self.now_us
        )

    def refused(self, user: str, address: str, client_id: str = "x") -> str:
        ban = self.guard.verdict(
            username=user, address=address, client_id=client_id, now_us=self.now_us
        )
        return "" if ban is None else ban.limit


def test_a_name_is_banned_from_one_address_for_a_while() -> None:
    attempts = Attempts()
    assert [attempts.fail("ada", "10.0.0.7") for _ in range(2)] == [None, None]
    ban = attempts.fail("ada", "10.0.0.7")
    assert ban is not None
    assert (ban.value, ban.failures) == ("ada@10.0.0.7", 3)
    assert attempts.refused("ada", "10.0.0.7") == "auth.failures_max"
    assert attempts.refused("ada", "10.0.0.8") == ""
    assert attempts.refused("bob", "10.0.0.7") == ""
    assert [found.value for found in attempts.guard.bans(0)] == ["ada@10.0.0.7"]
    attempts.now_us = 30 * S
    assert attempts.guard.bans(30 * S) == []
    assert attempts.refused("ada", "10.0.0.7") == ""


def test_failures_that_are_far_apart_do_not_add_up() -> None:
    attempts = Attempts()
    for step in range(20):
        attempts.now_us = step * 31 * S
        assert attempts.fail("ada", "10.0.0.7") is None


def test_an_address_is_banned_for_newcomers_after_many_names() -> None:
    attempts = Attempts()
    attempts.succeed("ann", "10.0.0.7", "c1")
    made = [attempts.fail(f"u{number}", "10.0.0.7") for number in range(10)]
    assert [ban.value for ban in made if ban is not None] == ["*@10.0.0.7"]
    assert attempts.refused("new", "10.0.0.7") == "auth.failures_per_address_max"
    assert attempts.refused("ann", "10.0.0.7", "c1") == ""
    assert attempts.refused("ann", "10.0.0.7", "c2") == "auth.failures_per_address_max"
    assert attempts.refused("new", "10.0.0.8") == ""


def test_a_client_that_has_logged_in_answers_for_its_own_failures_only() -> None:
    attempts = Attempts()
    attempts.succeed("ada", "10.0.0.7", "own")
    for _ in range(9):
        attempts.fail("ada", "10.0.0.7", "guesser")
    assert attempts.refused("ada", "10.0.0.7", "guesser")
    assert attempts.refused("ada", "10.0.0.7", "own") == ""
    for _ in range(3):
        attempts.fail("ada", "10.0.0.7", "own")
    assert attempts.refused("ada", "10.0.0.7", "own") == "auth.failures_max"


def test_addresses_of_one_site_count_as_one() -> None:
    attempts = Attempts()
    for host in range(3):
        attempts.fail("ada", f"2001:db8::{host}")
    assert attempts.refused("ada", "2001:db8::ffff")
    assert attempts.refused("ada", "2001:db8:0:1::1") == ""


def test_a_ban_is_lifted_with_its_failures() -> None:
    attempts = Attempts()
    for _ in range(3):
        attempts.fail("ada", "10.0.0.7")
    assert not attempts.guard.lift("ada@10.0.0.8")
    assert attempts.guard.lift("ada@10.0.0.7")
    assert attempts.refused("ada", "10.0.0.7") == ""
    assert attempts.fail("ada", "10.0.0.7") is None


def test_nothing_is_banned_where_that_is_off() -> None:
    attempts = Attempts(AuthConfig(failures_max=0, failures_per_address_max=0))
    assert {attempts.fail("ada", "a") for _ in range(1000)} == {None}


def test_tables_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard_module, "LOGINS_TRACKED_MAX", 4)
    attempts = Attempts()
    for number in range(50):
        attempts.succeed(f"u{number}", "a", "c")
        for _ in range(4):
            attempts.fail(f"u{number}", "b")
    guard = attempts.guard
    assert [len(guard._failures), len(guard._trusted), len(guard._bans)] <= [4, 4, 4]
    assert guard.is_trusted(username="u49", address="a", client_id="c")
    assert not guard.is_trusted(username="u0", address="a", client_id="c")


def test_an_address_is_suspect_while_many_failures_count() -> None:
    world = Attempts(AuthConfig(failures_max=0, failures_per_address_max=0))
    for number in range(9):
        world.fail(f"u{number}", "10.0.0.7")
    assert not world.guard.is_suspect("10.0.0.7", 0)
    world.fail("u9", "10.0.0.7")
    assert world.guard.is_suspect("10.0.0.7", 60 * S - 1)
    assert not world.guard.is_suspect("10.0.0.7", 60 * S)
    assert not world.guard.is_suspect("10.0.0.8", 0)
    assert world.guard.has_failed(username="u3", address="10.0.0.7", now_us=0)
    assert not world.guard.has_failed(username="u3", address="10.0.0.8", now_us=0)
    assert not world.guard.has_failed(username="u3", address="10.0.0.7", now_us=60 * S)


def test_an_address_that_is_banned_is_suspect() -> None:
    world = Attempts()
    for number in range(10):
        world.fail(f"u{number}", "10.0.0.7")
    assert world.guard.is_suspect("10.0.0.7", 30 * S - 1)
    assert not world.guard.is_suspect("10.0.0.7", 30 * S)
