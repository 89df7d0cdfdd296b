"""Commits keep a distance where it costs no messages, and none where clients wait for them."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.broker.pace import IDLE_US, Pace

INTERVAL_US = 2_000
SYNC_US = 300
START_US = 50 * IDLE_US


class Load:
    """What brings messages, and a store that commits as a pace says."""

    def __init__(self) -> None:
        self.pace = Pace(INTERVAL_US)
        self.now_us = START_US
        self.spaced_us = 0
        self.delivered = 0

    def commit(self, messages: int) -> None:
        self.pace.written(messages, self.delivered, self.now_us)
        took_us = INTERVAL_US if self.pace.spaced else SYNC_US
        self.spaced_us += took_us if self.pace.spaced else 0
        self.now_us += took_us

    def closed(self, seconds: int, *, clients: int) -> float:
        """Each client sends its next message when it has the acknowledgement of its last."""
        return self._run(seconds, lambda: clients)

    def open(self, seconds: int, *, rate: int) -> float:
        """So many messages come in a second, whatever is acknowledged."""
        begun_us, sent = self.now_us, 0

        def come() -> int:
            nonlocal sent
            new = (self.now_us - begun_us) * rate // 1_000_000 - sent
            sent += new
            return new

        return self._run(seconds, come)

    def _run(self, seconds: int, come: object) -> float:
        """Returns the share of time in which commits were spaced."""
        begun_us, self.spaced_us = self.now_us, 0
        while self.now_us < begun_us + seconds * 1_000_000:
            messages = come()  # type: ignore[operator]
            if messages:
                self.commit(messages)
            else:
                self.now_us += 50
        return self.spaced_us / (self.now_us - begun_us)


@settings(max_examples=20, deadline=None)
@given(clients=st.integers(1, 500))
def test_who_waits_is_not_made_to_wait(clients: int) -> None:
    load = Load()
    load.closed(1, clients=clients)
    assert load.closed(10, clients=clients) < 0.05


@settings(max_examples=20, deadline=None)
@given(rate=st.integers(2_000, 200_000))
def test_what_comes_by_itself_is_gathered(rate: int) -> None:
    load = Load()
    load.open(1, rate=rate)
    assert load.open(10, rate=rate) > 0.95


def test_it_learns_anew_when_the_load_changes() -> None:
    load = Load()
    for _ in range(2):
        load.closed(5, clients=3)
        assert load.closed(5, clients=3) < 0.2
        load.open(5, rate=10_000)
        assert load.open(5, rate=10_000) > 0.8


def test_a_lone_message_after_a_pause_does_not_wait() -> None:
    load = Load()
    load.open(5, rate=10_000)
    assert load.pace.spaced
    load.pace.written(1, load.delivered, load.now_us + IDLE_US + 1)
    assert not load.pace.spaced
    fresh = Pace(INTERVAL_US)
    fresh.written(1, 0, START_US)
    assert not fresh.spaced
