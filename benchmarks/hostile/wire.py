"""Packets as an attacker writes them: byte by byte, valid or not, with no check of anything."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import time
from collections.abc import Iterator

PINGREQ = b"\xc0\x00"
DISCONNECT = b"\xe0\x00"
RETRY_S = 0.005
"""Pause of an attacker whom nobody answers; without one it would only burn its own core."""


def length(value: int) -> bytes:
    """A variable byte integer."""
    out = bytearray()
    while True:
        value, low = divmod(value, 128)
        out.append(low | (0x80 if value else 0))
        if not value:
            return bytes(out)


def text(value: str | bytes) -> bytes:
    """A string with its length."""
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack(">H", len(raw)) + raw


def packet(first: int, body: bytes) -> bytes:
    """A packet by its first byte."""
    return bytes([first]) + length(len(body)) + body


def connect(
    client_id: str,
    *,
    version: int = 4,
    clean: bool = True,
    user: str | None = None,
    password: str = "",
    properties: bytes = b"",
    keep_alive: int = 600,
    will: bytes = b"",
) -> bytes:
    """CONNECT; ``will`` is what ``will()`` gives."""
    flags = (2 if clean else 0) | (0xC0 if user is not None else 0) | (4 if will else 0)
    body = text("MQTT") + bytes([version, flags]) + struct.pack(">H", keep_alive)
    if version == 5:
        body += length(len(properties)) + properties
    body += text(client_id) + will
    if user is not None:
        body += text(user) + text(password)
    return packet(0x10, body)


def will(topic: str, payload: bytes, *, delay_s: int) -> bytes:
    """A will of 5.0 within CONNECT."""
    properties = b"\x18" + struct.pack(">I", delay_s)
    return length(len(properties)) + properties + text(topic) + text(payload)


def expiry(seconds: int) -> bytes:
    """The property of CONNECT: how long the session stays."""
    return b"\x11" + struct.pack(">I", seconds)


def publish(
    topic: str, payload: bytes, *, qos: int = 0, packet_id: int = 0, first: int = 0
) -> bytes:
    """PUBLISH of 3.1.1; ``first`` has further flags."""
    body = text(topic) + (struct.pack(">H", packet_id) if qos else b"") + payload
    return packet(0x30 | qos << 1 | first, body)


def subscribe(filters: list[str] | bytes, *, qos: int = 0, version: int = 4) -> bytes:
    """SUBSCRIBE; ``filters`` may be the encoded list."""
    if isinstance(filters, bytes):
        encoded = filters
    else:
        encoded = b"".join(text(one) + bytes([qos]) for one in filters)
    return packet(0x82, b"\x00\x07" + (b"\x00" if version == 5 else b"") + encoded)


def unsubscribe(filters: list[str]) -> bytes:
    """UNSUBSCRIBE of 3.1.1."""
    return packet(0xA2, b"\x00\x08" + b"".join(text(one) for one in filters))


def masked(first: int, payload: bytes, mask: bytes = b"\x01\x02\x03\x04") -> bytes:
    """A short WebSocket frame of a client."""
    assert len(payload) < 126
    body = bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))
    return bytes([first, 0x80 | len(payload)]) + mask + body


def upgrade(path: str = "/mqtt") -> bytes:
    """The request that opens a WebSocket."""
    return (
        f"GET {path} HTTP/1.1\r\nHost: broker\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: MDEyMzQ1Njc4OTAxMjM0NQ==\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Protocol: mqtt\r\n\r\n"
    ).encode()


class Attacker:
    """One attacker: where the broker is, until when, and how much it did.

    Args:
        host: of the broker.
        ports: by listener: ``tcp``, ``ws``, ``tls``, ``http``, ``metrics``.
        seconds: how long.

    Attributes:
        done: what it counts: packets, connections, requests.
    """

    def __init__(self, host: str, ports: dict[str, int], seconds: float) -> None:
        self.host = host
        self.ports = ports
        self.done = 0
        self._until = time.monotonic() + seconds

    @property
    def goes_on(self) -> bool:
        """Whether there is time left."""
        return time.monotonic() < self._until

    def open(self, port: str = "tcp", timeout_s: float = 5.0) -> socket.socket:
        """A connection; tries again while there is time."""
        while True:
            try:
                opened = socket.create_connection((self.host, self.ports[port]), timeout=timeout_s)
            except OSError:
                if not self.goes_on:
                    raise
                time.sleep(RETRY_S)
                continue
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return opened

    def client(self, hello: bytes | None = None, *, name: str = "attacker") -> socket.socket:
        """A connection on which CONNECT was answered."""
        opened = self.open()
        opened.sendall(hello or connect(f"{name}-{os.getpid()}"))
        opened.recv(4096)
        return opened

    @contextlib.contextmanager
    def rounds(self) -> Iterator[None]:
        """What the broker does to a connection (resets, time-outs) is no fault of the attack."""
        try:
            yield
        except OSError:
            time.sleep(RETRY_S)

    def flood(self, opened: socket.socket, piece: bytes, count: int) -> None:
        """Send one piece again and again and read nothing; ``count`` packets are in it."""
        opened.settimeout(0.2)
        view = memoryview(piece)
        while self.goes_on:
            sent = 0
            while sent < len(piece) and self.goes_on:
                # A broker that has stopped reading is what it should be.
                with contextlib.suppress(TimeoutError):
                    sent += opened.send(view[sent:])
            self.done += count

    def wait(self, seconds: float = 0.05) -> None:
        """Hold what is open."""
        time.sleep(seconds)
