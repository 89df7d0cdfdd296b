"""Attacks of a client whose messages cost more than they look: by what they match, or by names."""

from __future__ import annotations

import itertools
import os
import random
import socket
from collections.abc import Callable

from benchmarks.hostile import wire
from benchmarks.hostile.crowds import crowd
from benchmarks.hostile.floods import answered, drain
from benchmarks.hostile.registry import attack
from benchmarks.hostile.wire import Attacker

LEVELS = "abcdefghijklmn"
"""Of a topic that up to 16,384 different filters match."""
_FILTERS = 10_000


def _subscriber(attacker: Attacker, name: str, filters: list[str]) -> None:
    """A client with many subscriptions, which reads what it is sent."""
    opened = attacker.client(name=name)
    drain(opened)
    for topic_filter in filters:
        opened.sendall(wire.subscribe([topic_filter]))
        attacker.done += 1


def overlapping(count: int) -> list[str]:
    """Filters that all match the topic of ``LEVELS``."""
    return [
        "/".join("+" if mask >> at & 1 else level for at, level in enumerate(LEVELS))
        for mask in range(count)
    ]


@attack("overlap", "QoS 1 to a topic that 10,000 filters of one session match")
def overlap(attacker: Attacker) -> None:
    _subscriber(attacker, "overlap", overlapping(_FILTERS))
    topic = "/".join(LEVELS)
    piece = b"".join(wire.publish(topic, b"x", qos=1, packet_id=n + 1) for n in range(500))
    answered(attacker, piece, 500)


@attack("overlap-0", "QoS 0 to a topic that 10,000 filters of one session match")
def overlap_qos0(attacker: Attacker) -> None:
    _subscriber(attacker, "overlap-0", overlapping(_FILTERS))
    answered(attacker, wire.publish("/".join(LEVELS), b"x") * 500, 500)


@attack("groups", "QoS 1 to a topic that 5,000 shared groups want")
def groups(attacker: Attacker) -> None:
    _subscriber(attacker, "groups", [f"$share/g{number}/groups/#" for number in range(5_000)])
    piece = b"".join(wire.publish("groups/1", b"x", qos=1, packet_id=n + 1) for n in range(200))
    answered(attacker, piece, 200)


def _new_topics(
    attacker: Attacker, topic: Callable[[int], str], count: int, *, qos: int = 1
) -> None:
    """Publish to another topic each time; ``topic`` makes one by its number."""
    made = itertools.count()
    while attacker.goes_on:
        with attacker.rounds(), attacker.client() as opened:
            drain(opened)
            while attacker.goes_on:
                opened.sendall(
                    b"".join(
                        wire.publish(topic(next(made)), b"x", qos=qos, packet_id=number + 1)
                        for number in range(count)
                    )
                )
                attacker.done += count


def _among_filters(attacker: Attacker, name: str, levels: int) -> None:
    """New topics beside filters of all shapes up to so many levels."""
    chance = random.Random(1)
    filters = [
        "/".join(chance.choices("+ab", k=chance.randint(3, levels))) for _ in range(_FILTERS)
    ]
    _subscriber(attacker, name, filters)
    _new_topics(attacker, lambda _: "/".join(chance.choices("ab", k=levels)), 500)


@attack("wildcards", "new topics of 40 levels beside 10,000 filters of all shapes")
def wildcards(attacker: Attacker) -> None:
    _among_filters(attacker, "wildcards", 40)


@attack("deep", "new topics of 190 levels beside 10,000 filters of all shapes")
def deep(attacker: Attacker) -> None:
    _among_filters(attacker, "deep", 190)


@attack("branches", "new topics that part at each of 190 levels, each another way")
def branches(attacker: Attacker) -> None:
    def topic(number: int) -> str:
        apart = number % 190
        return "/".join(["s"] * apart + [f"{number}"] + ["t"] * (189 - apart))

    _new_topics(attacker, topic, 500)


@attack("long-topics", "QoS 0 on new topics of 60,000 bytes")
def long_topics(attacker: Attacker) -> None:
    _new_topics(attacker, lambda number: "t" * 60_000 + f"/{number}", 50, qos=0)


@attack("long-topics-1", "QoS 1 on new topics of 60,000 bytes")
def long_topics_qos1(attacker: Attacker) -> None:
    _new_topics(attacker, lambda number: "t" * 60_000 + f"/{number}", 50)


@attack("long-levels", "QoS 1 on new topics of four levels of 13,000 bytes")
def long_levels(attacker: Attacker) -> None:
    def topic(number: int) -> str:
        return "/".join(f"{number}{level}".ljust(13_000, "x") for level in range(4))

    _new_topics(attacker, topic, 50)


@attack("retained-large", "retained messages of 1 MB, QoS 1, on ten topics")
def retained_large(attacker: Attacker) -> None:
    piece = b"".join(
        wire.publish(f"large/{n}", bytes(1 << 20), qos=1, packet_id=n + 1, first=1)
        for n in range(10)
    )
    answered(attacker, piece, 10)


@attack(
    "retained-again", "SUBSCRIBEs to 20,000 retained messages on 30 connections, again and again"
)
def retained_again(attacker: Attacker) -> None:
    with attacker.client() as opened:
        opened.settimeout(10.0)
        messages = (wire.publish(f"again/{n}", b"x" * 200, first=1) for n in range(20_000))
        opened.sendall(b"".join(messages) + wire.PINGREQ)
        opened.recv(10)

    def opening(number: int) -> socket.socket:
        return attacker.client(name=f"again-{os.getpid()}-{number}")

    crowd(attacker, opening, wire.subscribe(["again/#"]), 1, reads=True)
