"""Attacks on a TLS listener: handshakes that never end, and records of one byte."""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import ssl

from benchmarks.hostile import wire
from benchmarks.hostile.crowds import CROWD
from benchmarks.hostile.registry import attack
from benchmarks.hostile.wire import Attacker

_HELD = 1_000
_BYTES_A_WRITE = 4_096


def _hello() -> bytes:
    """The first flight of a client: a ClientHello."""
    outgoing = ssl.MemoryBIO()
    opened = _trusting().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        opened.do_handshake()
    return outgoing.read()


def _trusting() -> ssl.SSLContext:
    """A client that asks for no proof."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


@attack("tls-hellos", "ClientHellos, each on a new connection that is closed once it is answered")
def tls_hellos(attacker: Attacker) -> None:
    hello = _hello()
    while attacker.goes_on:
        held = []
        for _ in range(CROWD):
            with attacker.rounds():
                opened = attacker.open("tls")
                held.append(opened)
                opened.sendall(hello)
                attacker.done += 1
        for opened in held:
            with contextlib.suppress(OSError):
                opened.settimeout(0.2)
                opened.recv(4096)
            opened.close()


@attack("tls-half", "1,000 TLS handshakes that never end")
def tls_half(attacker: Attacker) -> None:
    hello = _hello()
    held: list[socket.socket] = []
    while attacker.goes_on:
        if len(held) == _HELD:
            attacker.wait()
            continue
        with attacker.rounds():
            opened = attacker.open("tls")
            held.append(opened)
            opened.sendall(hello)
            attacker.done += 1


@attack("tls-handshakes", "TLS handshakes that end, and nothing behind them")
def tls_handshakes(attacker: Attacker) -> None:
    context = _trusting()
    while attacker.goes_on:
        with attacker.rounds(), attacker.open("tls") as opened:
            context.wrap_socket(opened).close()
            attacker.done += 1


class _Dripping:
    """A TLS client whose records hold one byte each."""

    def __init__(self, attacker: Attacker, number: int) -> None:
        self.opened = attacker.open("tls")
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = _trusting().wrap_bio(self._incoming, self._outgoing)
        self._handshake()
        self._tls.write(wire.connect(f"drip-{os.getpid()}-{number}"))
        self._left = b""
        self.opened.setblocking(False)

    def _handshake(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
                return
            except ssl.SSLWantReadError:
                self.opened.sendall(self._outgoing.read())
                self._incoming.write(self.opened.recv(1 << 16))

    def send(self) -> int:
        """Send what is taken now; returns how many records were made for it."""
        made = 0
        if not self._left:
            for byte in wire.publish("drip/1", b"x" * 20) * (_BYTES_A_WRITE // 30):
                self._tls.write(bytes([byte]))
                made += 1
            self._left = self._outgoing.read()
        with contextlib.suppress(BlockingIOError):
            self._left = self._left[self.opened.send(self._left) :]
        return made


@attack("tls-records", "TLS records of one byte on 30 connections")
def tls_records(attacker: Attacker) -> None:
    with selectors.DefaultSelector() as chosen:
        for number in range(CROWD):
            with attacker.rounds():
                dripping = _Dripping(attacker, number)
                chosen.register(dripping.opened, selectors.EVENT_WRITE, dripping)
        while attacker.goes_on:
            for key, _ in chosen.select(0.1):
                with attacker.rounds():
                    attacker.done += key.data.send()
