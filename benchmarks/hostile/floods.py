"""Attacks of a client that is connected."""

from __future__ import annotations

import contextlib
import os
import socket
import threading

from benchmarks.hostile import wire
from benchmarks.hostile.registry import attack
from benchmarks.hostile.wire import Attacker


def unread(attacker: Attacker, piece: bytes, count: int, hello: bytes | None = None) -> None:
    """Send packets and read no answer, on a new connection when one is closed."""
    while attacker.goes_on:
        with attacker.rounds(), attacker.client(hello) as opened:
            attacker.flood(opened, piece, count)


def drain(opened: socket.socket) -> None:
    """Read what comes, beside."""

    def read() -> None:
        with contextlib.suppress(OSError):
            while opened.recv(1 << 16):
                pass

    threading.Thread(target=read, daemon=True).start()


def answered(attacker: Attacker, piece: bytes, count: int, hello: bytes | None = None) -> None:
    """The same, and another thread reads what comes."""
    while attacker.goes_on:
        with attacker.rounds(), attacker.client(hello) as opened:
            drain(opened)
            attacker.flood(opened, piece, count)


@attack("pingreq", "PINGREQs whose answers are not read")
def pingreq(attacker: Attacker) -> None:
    unread(attacker, wire.PINGREQ * 20_000, 20_000)


@attack("pingreq-read", "PINGREQs as fast as they are answered")
def pingreq_read(attacker: Attacker) -> None:
    answered(attacker, wire.PINGREQ * 5_000, 5_000)


@attack("unsubscribe", "UNSUBSCRIBEs of filters it does not have")
def unsubscribe(attacker: Attacker) -> None:
    answered(attacker, wire.unsubscribe(["a/b"]) * 2_000, 2_000)


@attack("subscribe", "SUBSCRIBEs, each with a new filter")
def subscribe(attacker: Attacker) -> None:
    piece = b"".join(wire.subscribe([f"s/{number}/+"]) for number in range(2_000))
    answered(attacker, piece, 2_000)


@attack("subscribe-again", "SUBSCRIBEs and UNSUBSCRIBEs of one filter by turns")
def subscribe_again(attacker: Attacker) -> None:
    piece = (wire.subscribe(["t/+"], qos=1) + wire.unsubscribe(["t/+"])) * 1_000
    answered(attacker, piece, 2_000)


@attack("many-filters", "SUBSCRIBEs with 4 million filters each")
def many_filters(attacker: Attacker) -> None:
    piece = wire.subscribe((wire.text("a") + b"\x00") * 4_000_000)
    unread(attacker, piece, 1)


@attack("some-filters", "SUBSCRIBEs with 100,000 different filters each")
def some_filters(attacker: Attacker) -> None:
    piece = wire.subscribe([f"f/{number}" for number in range(100_000)])
    unread(attacker, piece, 1)


@attack("replay-digits", "filters below $replay/ with 4,301 digits")
def replay_digits(attacker: Attacker) -> None:
    topic = "$replay/" + "9" * 4_301 + "/#"
    while attacker.goes_on:
        for piece in (wire.subscribe([topic]), wire.unsubscribe([topic])):
            with attacker.rounds(), attacker.client() as opened:
                opened.sendall(piece)
                opened.recv(100)
                attacker.done += 1


@attack("replay", "replays everything from the beginning, again and again, unread")
def replay(attacker: Attacker) -> None:
    piece = b"".join(wire.subscribe(["$replay/0/#"]) for _ in range(100))
    unread(attacker, piece, 100)


@attack("acks", "acknowledgements of nothing")
def acks(attacker: Attacker) -> None:
    kinds = (0x40, 0x50, 0x62, 0x70)
    piece = b"".join(bytes([kind, 2, 1, number]) for number in range(256) for kind in kinds)
    unread(attacker, piece * 10, 10_240)


@attack("qos0", "QoS 0 to a subscriber that does not read")
def qos0(attacker: Attacker) -> None:
    with attacker.open() as deaf:
        deaf.sendall(wire.connect(f"deaf-{os.getpid()}") + wire.subscribe(["deaf/#"]))
        deaf.recv(100)
        unread(attacker, wire.publish("deaf/1", b"x" * 1000) * 200, 200)


@attack("qos1", "QoS 1 as fast as it is taken, its PUBACKs unread")
def qos1(attacker: Attacker) -> None:
    piece = b"".join(
        wire.publish("flood/1", b"x" * 100, qos=1, packet_id=number + 1) for number in range(1_000)
    )
    unread(attacker, piece, 1_000)


@attack("qos1-read", "QoS 1 as fast as it is acknowledged")
def qos1_read(attacker: Attacker) -> None:
    piece = b"".join(
        wire.publish("flood/1", b"x" * 100, qos=1, packet_id=number + 1) for number in range(1_000)
    )
    answered(attacker, piece, 1_000)


@attack("qos2-open", "QoS 2 that is never released")
def qos2_open(attacker: Attacker) -> None:
    piece = b"".join(
        wire.publish("flood/2", b"x", qos=2, packet_id=number + 1) for number in range(65_535)
    )
    unread(attacker, piece, 65_535)


@attack("large", "messages of 8 MiB")
def large(attacker: Attacker) -> None:
    answered(attacker, wire.publish("flood/3", bytes(8 << 20)), 1)


@attack("retained", "a retained message on a new topic each time")
def retained(attacker: Attacker) -> None:
    batch = 0
    while attacker.goes_on:
        with attacker.rounds(), attacker.client() as opened:
            opened.settimeout(1.0)
            while attacker.goes_on:
                batch += 1
                opened.sendall(
                    b"".join(
                        wire.publish(f"r/{batch}/{number}", b"x" * 100, first=1)
                        for number in range(500)
                    )
                )
                attacker.done += 500


@attack("amplify", "1,000 subscriptions to everything, unread")
def amplify(attacker: Attacker) -> None:
    held: list[socket.socket] = []
    while attacker.goes_on and len(held) < 1_000:
        with attacker.rounds():
            opened = attacker.open()
            held.append(opened)
            opened.sendall(
                wire.connect(f"amplify-{os.getpid()}-{len(held)}") + wire.subscribe(["#"], qos=0)
            )
            attacker.done += 1
    while attacker.goes_on:
        attacker.wait()
