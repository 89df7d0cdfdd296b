"""When a breaker opens, tries and closes."""

from __future__ import annotations

from perdure.broker.auth.breaker import Breaker


def opened() -> Breaker:
    breaker = Breaker(failures_max=3, open_us=10)
    for _ in range(3):
        assert breaker.may_ask(100)
        breaker.failed(100)
    return breaker


def test_failures_in_a_row_open_it() -> None:
    breaker = Breaker(failures_max=3, open_us=10)
    for _ in range(2):
        breaker.failed(0)
    breaker.succeeded()
    for _ in range(2):
        breaker.failed(0)
    assert not breaker.is_open
    assert breaker.may_ask(0)
    breaker.failed(0)
    assert breaker.is_open
    assert not breaker.may_ask(9)


def test_one_tries_and_closes_it() -> None:
    breaker = opened()
    assert not breaker.may_ask(109)
    assert breaker.may_ask(110)
    assert not breaker.may_ask(110)
    breaker.succeeded()
    assert breaker.may_ask(110)
    assert not breaker.is_open


def test_a_failure_of_the_one_opens_it_again() -> None:
    breaker = opened()
    assert breaker.may_ask(110)
    breaker.failed(112)
    assert not breaker.may_ask(121)
    assert breaker.may_ask(122)


def test_one_that_has_gone_lets_another_try() -> None:
    breaker = opened()
    assert breaker.may_ask(110)
    breaker.given_up()
    assert breaker.may_ask(110)
