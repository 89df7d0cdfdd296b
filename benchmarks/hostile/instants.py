"""Attacks that make much due at one instant, or undo at once what took long to make."""

from __future__ import annotations

import itertools
import os
import socket
import struct

from benchmarks.hostile import wire
from benchmarks.hostile.floods import answered, drain
from benchmarks.hostile.registry import attack
from benchmarks.hostile.wire import Attacker

_DUE_S = 2
"""When it is due: an attack lasts some seconds."""


def _all_at_once(attacker: Attacker, count: int, will: bytes, *, stays_s: int) -> None:
    """Sessions that connect, and leave at one instant without DISCONNECT; again and again."""
    names = itertools.count()
    while attacker.goes_on:
        held: list[socket.socket] = []
        for _ in range(count):
            if not attacker.goes_on:
                break
            with attacker.rounds():
                opened = attacker.open()
                held.append(opened)
                name = f"due-{os.getpid()}-{next(names)}"
                properties = wire.expiry(stays_s)
                hello = wire.connect(name, version=5, properties=properties, will=will)
                opened.sendall(hello + wire.subscribe([f"due/{name}"], qos=1, version=5))
                attacker.done += 1
        for opened in held:
            opened.close()


@attack("wills", "1,000 wills at once, due at one instant, again and again")
def wills(attacker: Attacker) -> None:
    _all_at_once(attacker, 1_000, wire.will("due/will", b"x", delay_s=_DUE_S), stays_s=600)


@attack("wills-large", "1,000 wills of 60,000 bytes each, due at one instant, again and again")
def wills_large(attacker: Attacker) -> None:
    will = wire.will("due/will", bytes(60_000), delay_s=_DUE_S)
    _all_at_once(attacker, 1_000, will, stays_s=600)


@attack("expiring", "1,000 durable sessions that expire at one instant, again and again")
def expiring(attacker: Attacker) -> None:
    _all_at_once(attacker, 1_000, b"", stays_s=_DUE_S)


@attack("retained-expiring", "retained messages on new topics that expire two seconds later")
def retained_expiring(attacker: Attacker) -> None:
    batches = itertools.count()
    properties = b"\x02" + struct.pack(">I", _DUE_S)
    while attacker.goes_on:
        hello = wire.connect(f"fades-{os.getpid()}", version=5)
        with attacker.rounds(), attacker.client(hello) as opened:
            opened.settimeout(1.0)
            while attacker.goes_on:
                batch = next(batches)
                opened.sendall(
                    b"".join(
                        wire.packet(
                            0x31, wire.text(f"fades/{batch}/{n}") + b"\x05" + properties + b"x"
                        )
                        for n in range(500)
                    )
                )
                attacker.done += 500


@attack("discards", "a durable session that is sent 5,000 messages and is begun anew, in a loop")
def discards(attacker: Attacker) -> None:
    name = f"anew-{os.getpid()}"
    messages = b"".join(
        wire.publish("anew/1", b"x" * 100, qos=1, packet_id=n + 1) for n in range(5_000)
    )
    while attacker.goes_on:
        with attacker.rounds():
            for clean in (True, False):
                with attacker.client(wire.connect(name, clean=clean)) as opened:
                    filters = [f"anew/{level}/#" for level in range(1_000)]
                    opened.sendall(wire.subscribe(["anew/#", *filters], qos=1))
                    opened.recv(4096)
            with attacker.client(name="anew-writer") as opened:
                drain(opened)
                opened.settimeout(2.0)
                opened.sendall(messages + wire.PINGREQ)
                attacker.done += 5_000


_MANY_FILTERS = 10_000
"""As many as one session may have."""
_IN_ONE_PACKET = 500


def _with_filters(attacker: Attacker, opened: socket.socket, name: str) -> None:
    """Let a session have as many filters as it may, and wait until it has them."""
    waiting = 0
    for first in range(0, _MANY_FILTERS, _IN_ONE_PACKET):
        numbers = range(first, first + _IN_ONE_PACKET)
        opened.sendall(wire.subscribe([f"{name}/{number}/+/#" for number in numbers], qos=1))
        waiting += _IN_ONE_PACKET + 5
    while attacker.goes_on and waiting > 0:
        waiting -= len(opened.recv(65_536))


@attack("filters-resume", "a durable session with 10,000 filters that comes and goes, in a loop")
def filters_resume(attacker: Attacker) -> None:
    name = f"resume-{os.getpid()}"
    with attacker.client(wire.connect(name, clean=False)) as opened:
        _with_filters(attacker, opened, name)
    while attacker.goes_on:
        with attacker.rounds(), attacker.client(wire.connect(name, clean=False)) as opened:
            opened.settimeout(2.0)
            opened.sendall(wire.PINGREQ)
            opened.recv(16)
            attacker.done += 1


@attack("filters-leave", "5 sessions with 10,000 filters that are lost at one instant")
def filters_leave(attacker: Attacker) -> None:
    rounds = itertools.count()
    while attacker.goes_on:
        held: list[socket.socket] = []
        with attacker.rounds():
            at = next(rounds)
            for number in range(5):
                name = f"leave-{os.getpid()}-{at}-{number}"
                held.append(attacker.client(wire.connect(name)))
                held[-1].settimeout(2.0)
                _with_filters(attacker, held[-1], name)
                attacker.done += 1
        for opened in held:
            opened.close()


@attack("group-flaps", "500 members of a shared group, of which each leaves and comes in turn")
def group_flaps(attacker: Attacker) -> None:
    held: list[socket.socket | None] = [None] * 500
    writer = attacker.client(name="flaps")
    drain(writer)
    writer.settimeout(0.2)
    piece = b"".join(wire.publish("flaps/1", b"x", qos=1, packet_id=n + 1) for n in range(20))
    for at in itertools.cycle(range(len(held))):
        if not attacker.goes_on:
            return
        before = held[at]
        if before is not None:
            before.close()
        with attacker.rounds():
            opened = attacker.open()
            held[at] = opened
            hello = wire.connect(f"flaps-{os.getpid()}-{at}", clean=False)
            opened.sendall(hello + wire.subscribe(["$share/flaps/flaps/#"], qos=1))
            writer.sendall(piece)
            attacker.done += 1


@attack("durable-filter", "SUBSCRIBEs and UNSUBSCRIBEs of one filter of a durable session")
def durable_filter(attacker: Attacker) -> None:
    piece = (wire.subscribe(["t/+"], qos=1) + wire.unsubscribe(["t/+"])) * 1_000
    hello = wire.connect(f"durable-{os.getpid()}", clean=False)
    answered(attacker, piece, 2_000, hello)
