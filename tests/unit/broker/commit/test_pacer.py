"""Commits keep a distance where it costs no messages, and none where clients wait for them."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.broker.commit.pacer import IDLE_US, CommitPacer

INTERVAL_US = 2_000
SYNC_US = 300
IDLE_STEP_US = 50
START_US = 50 * IDLE_US


class Load:
    """What brings messages, and a store that commits as a pace says.

    Attributes:
        fan_out: deliveries of each message.
        window: messages that a session which drains is sent for its acknowledgements, once for
            each look at the sockets.
    """

    def __init__(self) -> None:
        self.pacer = CommitPacer(INTERVAL_US)
        self.now_us = START_US
        self.spaced_us = 0
        self.delivered = 0
        self.fan_out = 1
        self.window = 0
        self.sync_us = SYNC_US

    def commit(self, messages: int) -> None:
        self.pacer.written(messages, self.delivered, self.now_us)
        took_us = INTERVAL_US if self.pacer.spaced else self.sync_us
        self.spaced_us += took_us if self.pacer.spaced else 0
        self.now_us += took_us
        self.delivered += messages * self.fan_out
        self._drain(SYNC_US)

    def _drain(self, looks_us: int) -> None:
        """One look at the sockets, or several in so much time if none is put off."""
        self.delivered += self.window * looks_us // IDLE_STEP_US

    def closed(self, seconds: int, *, clients: int) -> float:
        """Each client sends its next message when it has the acknowledgement of its last."""
        return self.run(seconds, lambda: clients)

    def open(self, seconds: int, *, rate: int) -> float:
        """So many messages come in a second, whatever is acknowledged."""
        begun_us, sent = self.now_us, 0

        def come() -> int:
            nonlocal sent
            new = (self.now_us - begun_us) * rate // 1_000_000 - sent
            sent += new
            return new

        return self.run(seconds, come)

    def run(self, seconds: int, come: Callable[[], int]) -> float:
        """Returns the share of time in which commits were spaced."""
        begun_us, self.spaced_us = self.now_us, 0
        while self.now_us < begun_us + seconds * 1_000_000:
            messages = come()
            if messages:
                self.commit(messages)
            else:
                self.now_us += IDLE_STEP_US
                self._drain(IDLE_STEP_US)
        return self.spaced_us / (self.now_us - begun_us)


@settings(max_examples=20)
@given(clients=st.integers(1, 500))
def test_who_waits_is_not_made_to_wait(clients: int) -> None:
    load = Load()
    load.closed(1, clients=clients)
    assert load.closed(10, clients=clients) < 0.05


@settings(max_examples=20)
@given(rate=st.integers(2_000, 200_000))
def test_what_comes_by_itself_is_gathered(rate: int) -> None:
    load = Load()
    load.open(1, rate=rate)
    assert load.open(10, rate=rate) > 0.95


def test_a_sixth_more_is_worth_it() -> None:
    """What clients that wait get without a distance where commits take long themselves."""
    load = Load()
    load.sync_us = INTERVAL_US * 6 // 7
    load.closed(1, clients=1_600)
    assert load.closed(10, clients=1_600) < 0.1


@settings(max_examples=20)
@given(rate=st.integers(5_000, 50_000), seed=st.integers(0, 2**32))
def test_chance_is_no_gain(rate: int, seed: int) -> None:
    """Messages come by themselves, and as it happens more or fewer of them."""
    load = Load()
    random = Random(seed)
    mean = rate * IDLE_STEP_US / 1_000_000
    since_us, held = START_US, 0.0

    def come() -> int:
        nonlocal since_us, held
        steps = (load.now_us - since_us) // IDLE_STEP_US
        since_us += steps * IDLE_STEP_US
        held += max(0.0, random.gauss(mean * steps, (mean * steps) ** 0.5))
        came, held = divmod(held, 1)
        return int(came)

    load.run(1, come)
    # With 100 messages in a window chance takes a third of the time from one seed in a hundred.
    assert load.run(10, come) > 0.5


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
    assert load.pacer.spaced
    load.pacer.written(1, load.delivered, load.now_us + IDLE_US + 1)
    assert not load.pacer.spaced
    fresh = CommitPacer(INTERVAL_US)
    fresh.written(1, 0, START_US)
    assert not fresh.spaced


def test_deliveries_that_come_by_themselves_change_nothing() -> None:
    load = Load()
    load.fan_out = 50
    load.open(1, rate=5_000)
    assert load.open(10, rate=5_000) > 0.95


def test_a_session_that_drains_is_not_slowed() -> None:
    """It has what it asks for in each look at the sockets, and in a distance there is one."""
    load = Load()
    load.open(5, rate=5_000)
    assert load.open(1, rate=5_000) > 0.95
    load.window = 20
    load.open(5, rate=5_000)  # until a trial shows it
    assert load.open(10, rate=5_000) < 0.2
    load.window = 0
    load.open(5, rate=5_000)
    assert load.open(10, rate=5_000) > 0.8


def test_what_was_delivered_before_a_pause_does_not_count() -> None:
    """Else a trial would seem to bring so much less than the time before it."""
    load = Load()
    load.open(1, rate=5_000)
    load.delivered += 10_000_000
    load.now_us += 2 * IDLE_US
    load.open(1, rate=5_000)
    assert load.open(1, rate=5_000) > 0.95


@pytest.mark.parametrize(("rate", "rests"), [(300, False), (800, False), (1_500, True)])
def test_it_rests_where_commits_gather(rate: int, rests: bool) -> None:
    """What is delivered gathers nothing: it is for those that come."""
    load = Load()
    load.fan_out = 100
    load.open(3, rate=rate)
    assert load.pacer.lingers == rests
    load.pacer.written(1, load.delivered, load.now_us + IDLE_US + 1)
    assert not load.pacer.lingers
