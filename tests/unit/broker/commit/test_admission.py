"""Who is read from while sessions are behind: those who are ready count, nobody waits for ever."""

from __future__ import annotations

from typing import final

import pytest

from perdure.broker.commit.admission import LOOK_US, Admission


@final
class Peer:
    """A publisher that sends as often as it is read from, ``each`` messages at a time."""

    def __init__(self, each: int) -> None:
        self.each = each
        self.paused = False
        self.sent = 0

    def commits_caught_up(self) -> None:
        self.paused = False


@final
class Session:
    """A subscriber: it is owed all that is taken, and acknowledges within a turn.

    Args:
        window: what may be sent to it and not acknowledged.
        rate: messages in a second that its client can take.
    """

    def __init__(self, window: int, rate: int) -> None:
        self.window, self.rate = window, rate
        self.served = 0
        self.behind: list[tuple[int, int]] = []
        """(time, messages) that it is still to be sent."""
        self.got = 0

    def owed(self) -> int:
        return sum(count for _, count in self.behind)

    def send(self, most: int) -> int:
        sent = 0
        while self.behind and sent < most:
            at_us, count = self.behind.pop(0)
            part = min(count, most - sent)
            sent += part
            if part < count:
                self.behind.insert(0, (at_us, count - part))
        self.got += sent
        return sent

    def lag_us(self, fence: int) -> int:
        return fence - self.behind[0][0] if self.behind else 0

    def took_all(self, served: int) -> bool:
        return served * 4 >= self.window * 3


@final
class Loop:
    """A saturated loop in virtual time: 3 us for a message that is taken, 2 us for one sent."""

    def __init__(self, peers: list[Peer], sessions: list[Session]) -> None:
        self.admission = Admission()
        self.peers, self.sessions = peers, sessions
        self.now_us = 1_000_000

    def turn(self) -> None:
        admission, began_us = self.admission, self.now_us
        for peer in self.peers:
            if not peer.paused:
                peer.sent += peer.each
                admission.taken += peer.each
                peer.paused = admission.published(peer)
        taken = admission.taken
        self.now_us += 50 + taken * 3
        for session in self.sessions:
            session.behind.append((self.now_us, taken))
            elapsed_us = self.now_us - began_us
            most = min(session.window, session.rate * elapsed_us // 1_000_000)
            count = session.send(most)
            self.now_us += count * 2
            if count and session.behind:
                admission.served(session, count)
        admission.end_turn(self.now_us, self.now_us)

    def run(self, us: int) -> None:
        until_us = self.now_us + us
        while self.now_us < until_us:
            self.turn()

    def taken(self) -> int:
        return sum(peer.sent for peer in self.peers)


def _publishers() -> list[Peer]:
    return [Peer(100) for _ in range(100)]


@pytest.mark.parametrize("count", [1, 10])
def test_who_is_ready_keeps_pace_with_what_is_taken(count: int) -> None:
    """100 publishers fill a turn with ten times the window of a session."""
    sessions = [Session(1_000, 10_000_000) for _ in range(count)]
    loop = Loop(_publishers(), sessions)
    loop.run(1_000_000)
    worst_us = 0
    for _ in range(2_000):
        loop.turn()
        worst_us = max(worst_us, *(session.lag_us(loop.now_us) for session in sessions))
    assert worst_us < 100_000
    assert all(session.got > loop.taken() * 0.95 for session in sessions)


@pytest.mark.parametrize(
    ("window", "rate"),
    [(1, 10_000_000), (20, 10_000_000), (1_000, 0), (1_000, 1_000)],
    ids=["window of one", "small window", "stuck", "slow"],
)
def test_who_is_behind_by_its_own_doing_slows_nobody(window: int, rate: int) -> None:
    alone = Loop(_publishers(), [])
    alone.run(3_000_000)
    beside = Loop(_publishers(), [Session(window, rate)])
    beside.run(3_000_000)
    assert beside.taken() > alone.taken() * 0.95
    assert not beside.admission.limit


def test_a_long_backlog_takes_its_share_and_leaves_one() -> None:
    session = Session(1_000, 10_000_000)
    session.behind.append((0, 1_000_000))
    loop = Loop(_publishers(), [session])
    loop.run(1_000_000)
    assert session.got > 200_000
    assert loop.taken() > 50_000
    loop.run(12_000_000)
    assert session.lag_us(loop.now_us) < 100_000


def test_all_are_read_from_in_turn() -> None:
    peers = _publishers()
    loop = Loop(peers, [Session(1_000, 10_000_000)])
    loop.run(2_000_000)
    assert max(peer.sent for peer in peers) < 2 * min(peer.sent for peer in peers)


def test_nobody_is_left_waiting_when_those_behind_are_gone() -> None:
    peers = _publishers()
    loop = Loop(peers, [Session(1_000, 10_000_000)])
    loop.run(500_000)
    assert loop.admission.limit
    assert any(peer.paused for peer in peers)
    loop.sessions = []
    for _ in range(200):
        loop.now_us += LOOK_US
        if not loop.admission.end_turn(loop.now_us, loop.now_us):
            break
    assert not any(peer.paused for peer in peers)
