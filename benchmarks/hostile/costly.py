"""Attacks of a client whose messages cost more than they look: by what they match, or by names."""

from __future__ import annotations

import os
import random
import socket

from benchmarks.hostile import wire
from benchmarks.hostile.crowds import crowd
from benchmarks.hostile.floods import answered, drain
from benchmarks.hostile.registry import attack
from benchmarks.hostile.wire import Attacker

_LEVELS = "abcdefghijklmn"
_FILTERS = 10_000


def _subscriber(attacker: Attacker, name: str, filters: list[str]) -> None:
    """A client with many subscriptions, which reads what it is sent."""
    opened = attacker.client(name=name)
    drain(opened)
    for topic_filter in filters:
        opened.sendall(wire.subscribe([topic_filter]))
        attacker.done += 1


def _overlapping() -> list[str]:
    """Filters that all match one topic."""
    return [
        "/".join("+" if mask >> at & 1 else level for at, level in enumerate(_LEVELS))
        for mask in range(_FILTERS)
    ]


@attack("overlap", "QoS 1 to a topic that 10,000 filters of one session match")
def overlap(attacker: Attacker) -> None:
    _subscriber(attacker, "overlap", _overlapping())
    topic = "/".join(_LEVELS)
    piece = b"".join(wire.publish(topic, b"x", qos=1, packet_id=n + 1) for n in range(500))
    answered(attacker, piece, 500)


@attack("groups", "QoS 1 to a topic that 5,000 shared groups want")
def groups(attacker: Attacker) -> None:
    _subscriber(attacker, "groups", [f"$share/g{number}/groups/#" for number in range(5_000)])
    piece = b"".join(wire.publish("groups/1", b"x", qos=1, packet_id=n + 1) for n in range(200))
    answered(attacker, piece, 200)


@attack("wildcards", "new topics of 40 levels beside 10,000 filters of all shapes")
def wildcards(attacker: Attacker) -> None:
    chance = random.Random(1)
    _subscriber(
        attacker,
        "wildcards",
        [
            "/".join(chance.choice("+ab") for _ in range(chance.randint(3, 40)))
            for _ in range(_FILTERS)
        ],
    )
    while attacker.goes_on:
        with attacker.rounds(), attacker.client() as opened:
            drain(opened)
            while attacker.goes_on:
                opened.sendall(
                    b"".join(
                        wire.publish(
                            "/".join(chance.choice("ab") for _ in range(40)),
                            b"x",
                            qos=1,
                            packet_id=number + 1,
                        )
                        for number in range(500)
                    )
                )
                attacker.done += 500


@attack("long-topics", "QoS 0 on new topics of 60,000 bytes")
def long_topics(attacker: Attacker) -> None:
    batch = 0
    while attacker.goes_on:
        with attacker.rounds(), attacker.client() as opened:
            while attacker.goes_on:
                batch += 1
                opened.sendall(
                    b"".join(
                        wire.publish("t" * 60_000 + f"/{batch}/{number}", b"x")
                        for number in range(50)
                    )
                )
                attacker.done += 50


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
