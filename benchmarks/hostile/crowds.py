"""Attacks of one client with thirty connections at once."""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
from collections.abc import Callable

from benchmarks.hostile import wire
from benchmarks.hostile.openings import web_socket
from benchmarks.hostile.registry import attack
from benchmarks.hostile.wire import Attacker

CROWD = 30


class _Member:
    """One connection of a crowd: what it sends again and again, and how far it is."""

    def __init__(self, opened: socket.socket, piece: bytes) -> None:
        self.opened = opened
        self.view = memoryview(piece)
        self.sent = 0

    def send(self) -> bool:
        """Send what is taken now; whether a piece was finished."""
        with contextlib.suppress(BlockingIOError):
            self.sent += self.opened.send(self.view[self.sent :])
        if self.sent < len(self.view):
            return False
        self.sent = 0
        return True


def crowd(
    attacker: Attacker,
    opening: Callable[[int], socket.socket],
    piece: bytes,
    count: int,
    *,
    reads: bool = False,
) -> None:
    """Send one piece again and again on ``CROWD`` connections; who is closed comes again.

    Args:
        attacker: for how long, and where.
        opening: makes the connection of a member by its number.
        piece: what each sends.
        count: packets in it.
        reads: what is answered is taken.
    """
    events = selectors.EVENT_WRITE | (selectors.EVENT_READ if reads else 0)
    with selectors.DefaultSelector() as chosen:
        missing = list(range(CROWD))
        while attacker.goes_on:
            while missing and attacker.goes_on:
                with attacker.rounds():
                    opened = opening(missing[-1])
                    opened.setblocking(False)
                    chosen.register(opened, events, (missing.pop(), _Member(opened, piece)))
            for key, ready in chosen.select(0.1):
                number, member = key.data
                try:
                    if ready & selectors.EVENT_READ and not member.opened.recv(1 << 16):
                        raise ConnectionResetError
                    if ready & selectors.EVENT_WRITE and member.send():
                        attacker.done += count
                except BlockingIOError:
                    continue
                except OSError:
                    chosen.unregister(member.opened)
                    member.opened.close()
                    missing.append(number)


def _clients(attacker: Attacker) -> Callable[[int], socket.socket]:
    return lambda number: attacker.client(name=f"crowd-{number}")


@attack("connects-30", "30 x CONNECT of 128 KB with 1,024 properties, again and again")
def connects(attacker: Attacker) -> None:
    pair = b"\x26" + wire.text("k" * 60) + wire.text("v" * 62)
    pieces = [
        wire.connect(f"full-{os.getpid()}-{number}", version=5, properties=pair * count)
        # 1,024 are taken; one more is refused, and so are those that are too many bytes.
        for number, count in enumerate((1_020, 1_024, 1_025, 1_030))
    ]
    while attacker.goes_on:
        held = []
        for number in range(CROWD):
            with attacker.rounds():
                opened = attacker.open()
                held.append(opened)
                opened.settimeout(0.5)
                opened.sendall(pieces[number % len(pieces)])
                attacker.done += 1
        for opened in held:
            with contextlib.suppress(OSError):
                opened.recv(100)
            opened.close()


@attack("partial-30", "30 connections, each with a PUBLISH of up to 16 MB partly sent, then anew")
def partial(attacker: Attacker) -> None:
    whole = wire.publish("part", bytes(15 << 20))
    while attacker.goes_on:
        held = []
        for number in range(CROWD):
            with attacker.rounds():
                opened = attacker.client(name=f"part-{number}")
                held.append(opened)
                opened.settimeout(0.2)
                attacker.done += 1
                opened.sendall(whole[: (number % 15 + 1) << 20])
        for opened in held:
            opened.close()


@attack("pingreq-30", "PINGREQs on 30 connections, whose answers are not read")
def pingreq(attacker: Attacker) -> None:
    crowd(attacker, _clients(attacker), wire.PINGREQ * 20_000, 20_000)


@attack("pings-read-30", "PINGREQs on 30 connections as fast as they are answered")
def pingreq_read(attacker: Attacker) -> None:
    crowd(attacker, _clients(attacker), wire.PINGREQ * 20_000, 20_000, reads=True)


@attack("unsubscribe-30", "UNSUBSCRIBEs on 30 connections")
def unsubscribe(attacker: Attacker) -> None:
    piece = wire.unsubscribe(["a/b"]) * 2_000
    crowd(attacker, _clients(attacker), piece, 2_000, reads=True)


@attack("fragments-30", "WebSocket messages in fragments of one byte on 30 connections")
def fragments(attacker: Attacker) -> None:
    def opening(number: int) -> socket.socket:
        opened = web_socket(attacker, f"ws-{os.getpid()}-{number}")
        opened.sendall(wire.masked(0x02, b"\x30"))
        return opened

    crowd(attacker, opening, wire.masked(0x00, b"\x00") * 10_000, 10_000)


@attack("publish-30", "QoS 1 on 30 connections as fast as it is acknowledged")
def publish(attacker: Attacker) -> None:
    piece = b"".join(
        wire.publish("flood/1", b"x" * 100, qos=1, packet_id=number + 1) for number in range(1_000)
    )
    crowd(attacker, _clients(attacker), piece, 1_000, reads=True)


@attack("qos0-30", "QoS 0 on 30 connections as fast as it is taken")
def publish_qos0(attacker: Attacker) -> None:
    crowd(attacker, _clients(attacker), wire.publish("flood/0", b"x" * 20) * 2_000, 2_000)


def _fan_out(attacker: Attacker, count: int, qos: int) -> None:
    """One publisher at full speed to subscribers that read."""
    with selectors.DefaultSelector() as chosen:
        for number in range(count):
            with attacker.rounds():
                # No answer is waited for: a thousand of them would take all the time.
                opened = attacker.open()
                hello = wire.connect(f"fan-{os.getpid()}-{number}")
                opened.sendall(hello + wire.subscribe(["fan/#"], qos=qos))
                opened.setblocking(False)
                chosen.register(opened, selectors.EVENT_READ)
        flood = b"".join(
            wire.publish("fan/1", b"x" * 20, qos=qos, packet_id=number + 1 if qos else 0)
            for number in range(200)
        )
        publisher = attacker.client(name="fan")
        publisher.setblocking(False)
        member = _Member(publisher, flood)
        chosen.register(publisher, selectors.EVENT_READ | selectors.EVENT_WRITE)
        while attacker.goes_on:
            for key, ready in chosen.select(0.1):
                opened = key.fileobj
                assert isinstance(opened, socket.socket)
                try:
                    if ready & selectors.EVENT_READ and not opened.recv(1 << 16):
                        chosen.unregister(opened)
                        continue
                    if ready & selectors.EVENT_WRITE and member.send():
                        attacker.done += 200
                except BlockingIOError:
                    continue
                except OSError:
                    chosen.unregister(opened)


@attack("fan-out", "one publisher at full speed to 100 subscribers that read")
def fan_out(attacker: Attacker) -> None:
    _fan_out(attacker, 100, 0)


@attack("fan-out-1000", "one publisher at full speed to 1,000 subscribers that read")
def fan_out_1000(attacker: Attacker) -> None:
    _fan_out(attacker, 1_000, 0)


@attack("fan-out-unacked", "QoS 1 at full speed to 100 subscribers that do not acknowledge")
def fan_out_unacked(attacker: Attacker) -> None:
    _fan_out(attacker, 100, 1)


@attack("slow-readers", "QoS 1 at full speed to 500 subscribers that read 1 KB now and then")
def slow_readers(attacker: Attacker) -> None:
    held: list[socket.socket] = []
    for number in range(500):
        with attacker.rounds():
            opened = attacker.open()
            hello = wire.connect(f"slow-{os.getpid()}-{number}")
            opened.sendall(hello + wire.subscribe(["slow/#"], qos=1))
            opened.setblocking(False)
            held.append(opened)
    publisher = attacker.client(name="slow")
    publisher.setblocking(False)
    messages = (wire.publish("slow/1", b"x" * 1_000, qos=1, packet_id=n + 1) for n in range(200))
    member = _Member(publisher, b"".join(messages))
    while attacker.goes_on:
        with contextlib.suppress(OSError):
            if member.send():
                attacker.done += 200
            publisher.recv(1 << 16)
        for opened in held:
            with contextlib.suppress(OSError):
                opened.recv(1_000)
        attacker.wait(0.01)
