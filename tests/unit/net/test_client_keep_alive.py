"""The keep alive of a client, on a clock that stands still."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import final

import pytest

from perdure.net import client_keep_alive
from perdure.net.client_keep_alive import KeepAlive


@final
class Timer:
    def __init__(self, at_s: float, call: Callable[[], None]) -> None:
        self.at_s = at_s
        self.call = call
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


@final
class Loop:
    """As much of an event loop as a keep alive uses."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.timers: list[Timer] = []

    def time(self) -> float:
        return self.now_s

    def call_at(self, at_s: float, call: Callable[[], None]) -> Timer:
        timer = Timer(at_s, call)
        self.timers.append(timer)
        return timer

    def advance(self, to_s: float) -> None:
        self.now_s = to_s
        due = [timer for timer in self.timers if timer.at_s <= to_s and not timer.is_cancelled]
        self.timers = [timer for timer in self.timers if timer not in due]
        for timer in due:
            timer.call()

    @property
    def waiting(self) -> list[float]:
        return [timer.at_s for timer in self.timers if not timer.is_cancelled]


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    loop = Loop()
    fake = SimpleNamespace(get_running_loop=lambda: loop)
    monkeypatch.setattr(client_keep_alive, "asyncio", fake)
    return loop


def test_an_idle_client_pings_and_a_silent_server_is_given_up(loop: Loop) -> None:
    said: list[str] = []

    def ping() -> None:
        said.append("ping")
        keep_alive.sent()

    keep_alive = KeepAlive(ping, lambda: said.append("give up"))
    keep_alive.sent()
    keep_alive.start(100)
    assert loop.waiting == [75.0]
    loop.advance(75)
    keep_alive.answered()
    loop.advance(150)
    assert said == ["ping", "ping"]
    loop.advance(225)
    assert said == ["ping", "ping", "give up"]
    assert loop.waiting == []
    assert not keep_alive.is_running


def test_a_busy_client_does_not_ping(loop: Loop) -> None:
    said: list[str] = []
    keep_alive = KeepAlive(lambda: said.append("ping"), lambda: said.append("give up"))
    keep_alive.start(100)
    loop.advance(70)
    keep_alive.sent()
    loop.advance(75)
    assert said == []
    assert loop.waiting == [145.0]


def test_the_next_connection_owes_no_answer_of_the_last(loop: Loop) -> None:
    said: list[str] = []
    keep_alive = KeepAlive(lambda: said.append("ping"), lambda: said.append("give up"))
    keep_alive.start(100)
    loop.advance(75)
    keep_alive.stop()
    assert loop.waiting == []
    keep_alive.sent()
    keep_alive.start(100)
    loop.advance(150)
    assert said == ["ping", "ping"]


def test_none_is_kept_where_none_was_agreed(loop: Loop) -> None:
    keep_alive = KeepAlive(lambda: None, lambda: None)
    keep_alive.start(0)
    assert not keep_alive.is_running
    assert loop.waiting == []


def test_a_connection_that_ends_by_the_ping_is_not_watched_on(loop: Loop) -> None:
    keep_alive = KeepAlive(lambda: keep_alive.stop(), lambda: None)
    keep_alive.start(100)
    loop.advance(75)
    assert not keep_alive.is_running
    assert loop.waiting == []
