"""InboundFrames: large packets have room in all, and nobody keeps others from it for good."""

from __future__ import annotations

import random

from perdure.broker.connection.inbound_frames import GRACE_US, PACE_BYTES, InboundFrames
from tests.support.clock import VirtualClock
from tests.support.scheduler import VirtualLoop, VirtualScheduler


class Post:
    def __init__(self, room_bytes: int) -> None:
        clock = VirtualClock()
        self.loop = VirtualLoop(clock)
        self.parcels = InboundFrames(
            room_bytes, VirtualScheduler(self.loop, random.Random(0)), clock
        )

    def sender(self) -> Sender:
        return Sender(self)


class Sender:
    def __init__(self, post: Post) -> None:
        self.post = post
        self.kept_bytes = 0
        self.told: list[str] = []

    def has_room(self) -> None:
        self.told.append("room")

    def too_slow(self) -> None:
        self.told.append("slow")
        self.post.parcels.give_back(self)


def test_who_has_no_room_waits_in_order() -> None:
    post = Post(100)
    one, other, third, fourth = (post.sender() for _ in range(4))
    assert post.parcels.take(one, 60)
    assert not post.parcels.take(other, 50)
    assert not post.parcels.take(third, 10)  # it would fit, but it is not its turn
    assert not post.parcels.take(fourth, 50)
    post.parcels.give_back(one)
    assert (other.told, third.told, fourth.told) == (["room"], ["room"], [])
    assert post.parcels.taken_bytes == 60
    post.parcels.give_back(third)
    assert fourth.told == ["room"]


def test_one_packet_is_let_in_whatever_its_size() -> None:
    post = Post(100)
    one, other = post.sender(), post.sender()
    assert post.parcels.take(one, 1000)
    assert not post.parcels.take(other, 1)
    post.parcels.give_back(one)
    assert other.told == ["room"]


def test_who_goes_while_it_waits_leaves_nothing() -> None:
    post = Post(100)
    one, other = post.sender(), post.sender()
    post.parcels.take(one, 100)
    post.parcels.take(other, 100)
    post.parcels.give_back(other)
    post.parcels.give_back(other)
    assert post.parcels.waiting_count == 0
    post.parcels.give_back(one)
    assert other.told == []
    assert post.parcels.taken_bytes == 0


def test_a_slow_packet_is_given_up_only_while_somebody_waits() -> None:
    post = Post(100)
    slow, other = post.sender(), post.sender()
    post.parcels.take(slow, 100)
    post.loop.run_for(100 * GRACE_US)
    assert slow.told == []
    post.parcels.take(other, 100)
    post.loop.run_for(2_000_000)
    assert slow.told == ["slow"]
    assert other.told == ["room"]


def test_a_packet_that_comes_at_a_pace_is_not_given_up() -> None:
    post = Post(100)
    steady, other = post.sender(), post.sender()
    post.parcels.take(steady, 100)
    post.parcels.take(other, 100)
    for _ in range(60):
        steady.kept_bytes += PACE_BYTES
        post.loop.run_for(1_000_000)
    assert steady.told == []
    post.loop.run_for(GRACE_US + 2_000_000)
    assert steady.told == ["slow"]
