"""Attacks before a client is connected, and those on HTTP."""

from __future__ import annotations

import contextlib
import os
import socket

from benchmarks.hostile import wire
from benchmarks.hostile.registry import attack
from benchmarks.hostile.wire import Attacker


def hold(attacker: Attacker, port: str, count: int, first: bytes, *, again: bytes = b"") -> None:
    """Keep connections open that have sent something, and send a little more now and then."""
    held: list[socket.socket] = []
    while attacker.goes_on:
        if len(held) < count:
            with attacker.rounds():
                opened = attacker.open(port, 0.5)
                held.append(opened)
                opened.sendall(first)
                attacker.done += 1
            continue
        attacker.wait()
        for opened in list(held):
            try:
                if again:
                    opened.sendall(again)
            except OSError:
                held.remove(opened)
                opened.close()


@attack("connect-bomb", "30 CONNECTs of 16 MB with 3 million empty user properties")
def connect_bomb(attacker: Attacker) -> None:
    properties = b"\x26\x00\x00\x00\x00" * 3_000_000
    piece = wire.connect("bomb", version=5, properties=properties)
    held: list[socket.socket] = []
    while attacker.goes_on:
        with attacker.rounds():
            opened = attacker.open()
            held.append(opened)
            attacker.done += 1
            opened.sendall(piece)
        while len(held) > 30:
            held.pop(0).close()


@attack("half-connect", "2,000 CONNECTs that never end")
def half_connect(attacker: Attacker) -> None:
    hold(attacker, "tcp", 2_000, wire.connect("half" * 1_000)[:2_000], again=b"x")


@attack("half-packets", "100 connections with half a packet of 16 MB each")
def half_packets(attacker: Attacker) -> None:
    held: list[socket.socket] = []
    part = wire.publish("half", bytes(15 << 20))[: 10 << 20]
    while attacker.goes_on:
        if len(held) < 100:
            with attacker.rounds():
                opened = attacker.client(name=f"half-{len(held)}")
                held.append(opened)
                opened.settimeout(0.5)
                opened.sendall(part)
                attacker.done += 1
        else:
            attacker.wait()


@attack("bytes", "packets in segments of one byte, on 50 connections")
def one_byte(attacker: Attacker) -> None:
    held: list[socket.socket] = []
    for number in range(50):
        with attacker.rounds():
            held.append(attacker.client(name=f"byte-{number}"))
    piece = wire.publish("slow/1", b"x" * 20)
    while attacker.goes_on and held:
        for byte in piece:
            for opened in list(held):
                try:
                    opened.send(bytes([byte]))
                    attacker.done += 1
                except OSError:
                    held.remove(opened)


@attack("churn", "connects and leaves")
def churn(attacker: Attacker) -> None:
    while attacker.goes_on:
        with attacker.rounds(), attacker.client() as opened:
            opened.sendall(wire.DISCONNECT)
            attacker.done += 1


@attack("takeover", "two clients with one client id")
def takeover(attacker: Attacker) -> None:
    hello = wire.connect("twins", clean=False)
    before: socket.socket | None = None
    while attacker.goes_on:
        with attacker.rounds():
            opened = attacker.client(hello)
            attacker.done += 1
            if before is not None:
                before.close()
            before = opened


@attack("sessions", "a durable session with a new client id each time")
def sessions(attacker: Attacker) -> None:
    while attacker.goes_on:
        with attacker.rounds():
            hello = wire.connect(f"stay-{os.getpid()}-{attacker.done}", clean=False)
            with attacker.client(hello) as opened:
                opened.sendall(wire.DISCONNECT)
                attacker.done += 1


@attack("passwords", "wrong passwords on 300 connections at once")
def passwords(attacker: Attacker) -> None:
    while attacker.goes_on:
        held: list[socket.socket] = []
        for number in range(300):
            with attacker.rounds():
                opened = attacker.open()
                held.append(opened)
                user = "fleet" if number % 2 else f"nobody-{number}"
                opened.sendall(
                    wire.connect(f"guess-{number}", user=user, password=f"guess{number}")
                )
                attacker.done += 1
        for opened in held:
            with contextlib.suppress(OSError):
                opened.settimeout(0.005)  # it does not wait for what is held back
                opened.recv(10)
            opened.close()


@attack("strangers", "HTTP, TLS and MQTT 3.1 on the MQTT port")
def strangers(attacker: Attacker) -> None:
    hellos = (
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        bytes.fromhex("16030100f8010000f40303") + bytes(200),
        wire.packet(0x10, wire.text("MQIsdp") + b"\x03\x02\x00\x3c" + wire.text("old")),
        wire.packet(0x10, wire.text("MQTT") + b"\x09\x02\x00\x3c" + wire.text("new")),
    )
    while attacker.goes_on:
        for hello in hellos:
            with attacker.rounds(), attacker.open() as opened:
                opened.sendall(hello)
                opened.recv(100)
                attacker.done += 1


def web_socket(attacker: Attacker, name: str = "") -> socket.socket:
    """A WebSocket on which CONNECT was answered."""
    opened = attacker.open("ws")
    opened.sendall(wire.upgrade())
    opened.recv(4096)
    opened.sendall(wire.masked(0x82, wire.connect(name or f"ws-{os.getpid()}")))
    opened.recv(100)
    return opened


@attack("ws-fragments", "a WebSocket message in fragments of one byte")
def ws_fragments(attacker: Attacker) -> None:
    piece = wire.masked(0x00, b"\x00") * 10_000
    while attacker.goes_on:
        with attacker.rounds(), web_socket(attacker) as opened:
            opened.sendall(wire.masked(0x02, b"\x30"))
            attacker.flood(opened, piece, 10_000)


@attack("ws-bytes", "WebSocket messages of one byte")
def ws_bytes(attacker: Attacker) -> None:
    piece = (wire.masked(0x82, b"\xc0") + wire.masked(0x82, b"\x00")) * 5_000
    while attacker.goes_on:
        with attacker.rounds(), web_socket(attacker) as opened:
            attacker.flood(opened, piece, 10_000)


@attack("ws-pings", "WebSocket pings whose answers are not read")
def ws_pings(attacker: Attacker) -> None:
    piece = wire.masked(0x89, b"x" * 100) * 1_000
    while attacker.goes_on:
        with attacker.rounds(), web_socket(attacker) as opened:
            attacker.flood(opened, piece, 1_000)


@attack("ws-handshakes", "malformed WebSocket handshakes, some with a Close frame behind")
def ws_handshakes(attacker: Attacker) -> None:
    hellos = (
        wire.upgrade() + wire.masked(0x88, b"\x03\xe8"),
        b"GET /mqtt HTTP/1.1\r\nUpgrade: websocket\r\n\r\n",
        b"\x00\x01\x02\x03\r\n\r\n",
        b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n",
        b"GET /mqtt HTTP/1.1\r\n" + b"A: b\r\n" * 2_000 + b"\r\n",
    )
    while attacker.goes_on:
        for hello in hellos:
            with attacker.rounds(), attacker.open("ws") as opened:
                opened.sendall(hello)
                opened.recv(4096)
                attacker.done += 1


@attack("http-hang", "600 HTTP connections with half a request")
def http_hang(attacker: Attacker) -> None:
    hold(attacker, "http", 600, b"GET /api/v1/readyz HTTP/1.1\r\nHost: x\r\nX-A: ", again=b"a")


@attack("metrics-hang", "600 connections to the metrics with half a request")
def metrics_hang(attacker: Attacker) -> None:
    hold(attacker, "metrics", 600, b"GET /metrics HTTP/1.1\r\nX-A: ", again=b"a")


@attack("scrapes", "scrapes as fast as they are answered")
def scrapes(attacker: Attacker) -> None:
    while attacker.goes_on:
        with attacker.rounds(), attacker.open("metrics", 1.0) as opened:
            opened.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            while opened.recv(1 << 16):
                pass
            attacker.done += 1
