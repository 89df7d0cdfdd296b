"""Attacks with exchanges of several packets, and with what packets carry beside their content."""

from __future__ import annotations

import base64
import json
import os
import struct
import threading

from benchmarks.hostile import wire
from benchmarks.hostile.crowds import crowd
from benchmarks.hostile.floods import answered, unread
from benchmarks.hostile.openings import hold, web_socket
from benchmarks.hostile.registry import attack
from benchmarks.hostile.wire import Attacker

_METHOD = b"\x15" + wire.text("SCRAM-SHA-256")


def _first(number: int) -> bytes:
    """The method and the first message of SCRAM."""
    return _METHOD + b"\x16" + wire.text(f"n,,n=nobody-{number},r=nonce{number}")


@attack("scram", "SCRAM exchanges on 30 connections that end after the first message, or wrongly")
def scram(attacker: Attacker) -> None:
    wrong = "c=biws,r=nonce,p=" + base64.b64encode(bytes(32)).decode()
    data = _METHOD + b"\x16" + wire.text(wrong)
    answer = wire.packet(0xF0, b"\x18" + wire.length(len(data)) + data)

    def run(member: int) -> None:
        number = member
        while attacker.goes_on:
            number += 30
            hello = wire.connect(f"scram-{number}", version=5, properties=_first(number))
            with attacker.rounds(), attacker.open() as opened:
                opened.sendall(hello)
                opened.recv(4096)
                if number % 4 > 1:
                    opened.sendall(answer)
                    opened.settimeout(0.2)
                    opened.recv(4096)
            attacker.done += 1

    members = [threading.Thread(target=run, args=(member,)) for member in range(30)]
    for member in members:
        member.start()
    for member in members:
        member.join()


@attack("auth", "AUTH packets of a client that has logged in without any method")
def auth(attacker: Attacker) -> None:
    data = _first(1)
    hello = wire.connect(f"auth-{os.getpid()}", version=5)
    unread(attacker, wire.packet(0xF0, b"\x19" + wire.length(len(data)) + data) * 100, 100, hello)


@attack("ws-control", "WebSocket fragments with pings and pongs between, on 30 connections")
def ws_control(attacker: Attacker) -> None:
    piece = (
        wire.masked(0x02, b"\xc0")
        + wire.masked(0x89, b"x" * 125)
        + wire.masked(0x00, b"\x00")
        + wire.masked(0x8A, b"y" * 125)
        + wire.masked(0x80, b"")
        + wire.masked(0x89, b"")
    ) * 1_000
    crowd(
        attacker,
        lambda number: web_socket(attacker, f"control-{os.getpid()}-{number}"),
        piece,
        6_000,
        reads=True,
    )


@attack("aliases", "PUBLISHes that each give an alias another topic")
def aliases(attacker: Attacker) -> None:
    piece = b"".join(
        wire.packet(
            0x30,
            wire.text(f"alias/{n}" + "/x" * 50)
            + b"\x03\x23"
            + struct.pack(">H", n % 128 + 1)
            + b"x",
        )
        for n in range(2_000)
    )
    answered(attacker, piece, 2_000, wire.connect(f"alias-{os.getpid()}", version=5))


def _properties(qos: int) -> bytes:
    pairs = (b"\x26" + wire.text("k") + wire.text("v")) * 1_000
    carried = wire.length(len(pairs)) + pairs
    return b"".join(
        wire.packet(
            0x30 | qos << 1,
            wire.text("pairs/1") + (struct.pack(">H", n + 1) if qos else b"") + carried,
        )
        for n in range(50)
    )


@attack("properties", "QoS 1 with 1,000 user properties of two letters, to ten subscribers")
def properties(attacker: Attacker) -> None:
    hello = wire.connect(f"pairs-{os.getpid()}", version=5)
    for number in range(10):
        crowded = attacker.client(wire.connect(f"pairs-{os.getpid()}-{number}", version=5))
        crowded.sendall(wire.subscribe(["pairs/#"], qos=1, version=5))
    answered(attacker, _properties(1), 50, hello)


@attack("expiries", "DISCONNECTs that change how long the session stays, by odd numbers")
def expiries(attacker: Attacker) -> None:
    numbers = (0, 1, 0x7FFF_FFFF, 0xFFFF_FFFE, 0xFFFF_FFFF)
    while attacker.goes_on:
        for given in numbers:
            for changed in numbers:
                hello = wire.connect(
                    f"odd-{os.getpid()}-{given}", version=5, properties=wire.expiry(given)
                )
                with attacker.rounds(), attacker.client(hello) as opened:
                    opened.sendall(wire.packet(0xE0, b"\x00\x05" + wire.expiry(changed)))
                    opened.recv(100)
                    attacker.done += 1


@attack("replays", "30 connections that read the log from long ago, again and again")
def replays(attacker: Attacker) -> None:
    with attacker.client(name="past") as opened:
        opened.settimeout(5.0)
        messages = (
            wire.publish(f"past/{n}", b"x" * 200, qos=1, packet_id=n + 1) for n in range(20_000)
        )
        opened.sendall(b"".join(messages) + wire.PINGREQ)
    piece = wire.subscribe(["$replay/0/past/#"])
    crowd(
        attacker,
        lambda number: attacker.client(name=f"past-{number}"),
        piece,
        1,
        reads=True,
    )


@attack("proxy-bytes", "600 PROXY headers that come byte by byte")
def proxy_bytes(attacker: Attacker) -> None:
    hold(attacker, "proxy", 600, b"PROXY TCP4 ", again=b"1")


@attack("proxy-headers", "PROXY headers, each with another address, and nothing behind them")
def proxy_headers(attacker: Attacker) -> None:
    while attacker.goes_on:
        number = attacker.done
        address = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
        with attacker.rounds(), attacker.open("proxy") as opened:
            opened.sendall(f"PROXY TCP4 {address} 10.0.0.1 {number % 60_000 + 1} 1883\r\n".encode())
            if number % 3:
                opened.sendall(wire.connect("guess", user="nobody", password="wrong"))
            attacker.done += 1


def _requests(attacker: Attacker, request: bytes) -> None:
    """HTTP requests on connections that stay open."""
    while attacker.goes_on:
        with attacker.rounds(), attacker.open("http", 2.0) as opened:
            while attacker.goes_on:
                opened.sendall(request)
                if not opened.recv(1 << 16):
                    break
                attacker.done += 1


@attack("api-tokens", "requests of the API, each with another wrong token")
def api_tokens(attacker: Attacker) -> None:
    request = (
        "GET /api/v1/sessions?limit=1000 HTTP/1.1\r\nHost: localhost\r\n"
        "Authorization: Bearer %s\r\n\r\n"
    )
    _requests(attacker, (request % ("x" * 64)).encode())


@attack("api-logins", "logins to the dashboard with wrong passwords")
def api_logins(attacker: Attacker) -> None:
    body = json.dumps({"username": "admin", "password": "wrong"})
    head = (
        "POST /api/v1/login HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    _requests(attacker, (head + body).encode())
