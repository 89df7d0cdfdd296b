"""Bytes as a client could send them that knows every grammar of the broker, and breaks them.

Packets are mostly well formed, and what is written in them (times, shares, filters, properties,
expiries, SCRAM messages) lies at the edges; some are mutated, cut or repeated afterwards. With one
seed the same bytes come again. Nothing here may import the broker's encoder: it would refuse to
write most of this.
"""

from __future__ import annotations

import random
import struct

DIGITS = ("0", "1", "9" * 18, "9" * 19, "1" + "0" * 63, "9" * 4301, "0" * 5000 + "1", "-1", "1e9")
TIMES = (
    "2026-11-20T08:00:00Z",
    "2026-11-20T08:00:00+23:59",
    "0001-01-01T00:00:00+23:59",
    "9999-12-31T23:59:59-23:59",
    "2026-11-20",
    "20261120T080000Z",
    "2026-W47-5",
    "now",
    "٣",
    "²",
    "1_000",
    " 1",
    "",
)
LEVELS = ("a", "+", "#", "", "$SYS", "$share", "$replay", "a+", "#a", "ü", "\U0001f600", "a" * 300)
GROUPS = ("g", "", "+", "#", "g" * 70, "$share", "ü")
NAMES = ("replay-from", "perdure-dropped", "", "a", "content-filter", "where", "a" * 1000)
TEXTS = (
    "{}",
    "[" * 500,
    '{"a":' * 100,
    '{"$gt": 1e999}',
    '{"a": 1' + "0" * 5000 + "}",
    "null",
    "é",
)
SCRAM = (
    b"n,,n=user,r=abc",
    b"y,a=user,n=user,r=" + b"x" * 5000,
    b"p=tls,,n=u,r=a",
    b"n,,n==2C=3D=,r=a",
    b"c=biws,r=abc,p=AAAA",
    b",,,,,,",
    b"\xff\xfe",
    b"",
    "n,,n=\u0340\u200b\ufffe,r=a".encode(),
)


def text(value: str | bytes) -> bytes:
    """A string in wire form."""
    raw = value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass")
    return struct.pack(">H", len(raw[:65535])) + raw[:65535]


def varint(value: int) -> bytes:
    """A variable byte integer."""
    out = bytearray()
    while True:
        value, low = value >> 7, value & 0x7F
        out.append(low | (0x80 if value else 0))
        if not value:
            return bytes(out)


class Noise:
    """One client's bytes.

    Args:
        chance: where its choices come from.
        version: 4 or 5.
        is_polite: every packet is well formed, so that what is written in it comes to be read.
    """

    def __init__(self, chance: random.Random, version: int, *, is_polite: bool = False) -> None:
        self._chance = chance
        self._version = version
        self._is_polite = is_polite

    # Grammars.

    def topic(self) -> str:
        """Something like a topic name."""
        if self._is_polite:
            return "/".join(self._chance.choices(("a", "b", "ü", ""), k=3))
        return "/".join(self._chance.choices(LEVELS, k=self._chance.choice((1, 2, 3, 250))))

    def topic_filter(self) -> str:
        """Something like a filter, perhaps a share or a replay, or one in the other."""
        chance = self._chance
        made = chance.choice((self.topic(), "a/+", "#", "+/+", "$SYS/#"))
        if self._is_polite:
            time = chance.choice(DIGITS + TIMES)
            return chance.choice(
                (
                    made,
                    f"$replay/{time}/{made}",
                    f"$share/g/{made}",
                    f"$replay/{time}/$share/g/{made}",
                )
            )
        for _ in range(chance.choice((0, 0, 1, 1, 2))):
            if chance.random() < 0.5:
                made = f"$replay/{chance.choice(DIGITS + TIMES)}/{made}"
            else:
                made = f"$share/{chance.choice(GROUPS)}/{made}"
        return made if chance.random() < 0.95 else made[: chance.randrange(len(made) + 1)]

    def properties(self, *wanted: int) -> bytes:
        """A property block with some of the wanted ones, and user properties; empty in 3.1.1."""
        if self._version < 5:
            return b""
        chance = self._chance
        out = b""
        for identifier in () if self._is_polite else wanted:
            if chance.random() < 0.3:
                out += bytes((identifier,)) + self._value(identifier)
        for _ in range(chance.choice((0, 0, 0, 1, 2, 40, 40 if self._is_polite else 1500))):
            value = chance.choice(DIGITS + TIMES + TEXTS)
            out += b"\x26" + text(chance.choice(NAMES)) + text(value[:100] if out else value)
        if chance.random() < 0.05 and not self._is_polite:
            out += chance.randbytes(5)
        return varint(len(out)) + out

    def _value(self, identifier: int) -> bytes:
        chance = self._chance
        if identifier in (0x02, 0x11, 0x18, 0x27):
            return struct.pack(">I", chance.choice((0, 1, 5, 2**31, 2**32 - 1)))
        if identifier in (0x21, 0x22, 0x23):
            return struct.pack(">H", chance.choice((0, 1, 128, 65_535)))
        if identifier == 0x0B:
            return varint(chance.choice((0, 1, 268_435_455)))
        if identifier in (0x01, 0x17, 0x19):
            return bytes((chance.choice((0, 1, 2)),))
        if identifier == 0x16:
            return text(chance.choice(SCRAM))
        if identifier == 0x15:
            return text(chance.choice(("SCRAM-SHA-256", "SCRAM-SHA-256", "PLAIN", "")))
        return text(chance.choice((self.topic(), "x", b"\xff")))

    # Packets.

    def connect(self, client_id: str) -> bytes:
        """CONNECT, mostly a good one."""
        chance = self._chance
        flags = 0x02 if chance.random() < 0.5 else 0
        body = struct.pack(">H", chance.choice((0, 0, 1, 65_535)))
        body += self.properties(0x11, 0x21, 0x22, 0x27, 0x17, 0x19, *self._auth())
        body += text(client_id)
        if chance.random() < 0.4:
            qos = chance.choice((0, 8, 16, 16 if self._is_polite else 24))
            flags |= 0x04 | qos | chance.choice((0, 32))
            body += self.properties(0x18, 0x02, 0x01, 0x08)
            body += text(chance.choice((self.topic(), "a/b"))) + text(chance.randbytes(5))
        if chance.random() < 0.2 and not self._is_polite:
            flags |= 0xC0
            body += text(chance.choice(("user", "", "ü"))) + text(chance.choice(SCRAM))
        return packet(0x10, text("MQTT") + bytes((self._version, flags)) + body)

    def _auth(self) -> tuple[int, ...]:
        return (0x15, 0x16) if self._chance.random() < 0.2 else ()

    def packet(self) -> bytes:
        """Any packet that may come after CONNECT, and some that may not."""
        chance = self._chance
        packet_id = struct.pack(">H", chance.choice((1 if self._is_polite else 0, 1, 2, 3, 65_535)))
        kind = chance.randrange(6 if self._is_polite else 9)
        if kind < 2:
            body = packet_id + self.properties(0x0B)
            for _ in range(chance.choice((1, 1, 2, 70, 5000 if chance.random() < 0.1 else 3))):
                options = chance.choice((0, 1, 2, 0x2D, 0x10, 0xFF))
                is_odd = chance.random() < 0.3 and not self._is_polite
                body += text(self.topic_filter()) + bytes((options if is_odd else 1,))
            return packet(0x82, body)
        if kind == 2:
            body = packet_id + self.properties()
            for _ in range(chance.choice((1, 2, 70))):
                body += text(self.topic_filter())
            return packet(0xA2, body)
        if kind < 5:
            qos = chance.randrange(3)
            body = text(chance.choice((self.topic(), "a/b", "a", "a" if self._is_polite else "")))
            body += packet_id if qos else b""
            body += self.properties(0x01, 0x02, 0x03, 0x08, 0x09, 0x23, 0x0B)
            body += chance.choice((b"", b"x", *(each.encode() for each in TEXTS)))
            dup = 0 if self._is_polite else chance.choice((0, 0, 8))
            return packet(0x30 | qos << 1 | chance.randrange(2) | dup, body)
        if kind == 5:
            first = chance.choice((0x40, 0x50, 0x62, 0x70))
            more = b"" if self._is_polite else chance.choice((b"", b"\0", b"\x92", b"\0\0"))
            return packet(first, packet_id + more)
        if kind == 6:
            return packet(
                0xF0, bytes((chance.choice((0x18, 0x19, 0)),)) + self.properties(0x15, 0x16)
            )
        if kind == 7:
            reason = bytes((chance.choice((0, 4, 0x80)),)) if self._version == 5 else b""
            return packet(0xE0, reason + (self.properties(0x11, 0x1F) if reason else b""))
        return chance.choice((b"\xc0\x00", chance.randbytes(chance.randrange(1, 40))))

    def mutated(self, data: bytes) -> bytes:
        """The same, now and then with some bytes changed, cut out or repeated."""
        chance = self._chance
        if self._is_polite or chance.random() < 0.8 or not data:
            return data
        changed = bytearray(data)
        for _ in range(chance.randrange(1, 4)):
            at = chance.randrange(len(changed) or 1)
            choice = chance.randrange(3)
            if choice == 0 and changed:
                changed[at] = chance.randrange(256)
            elif choice == 1:
                del changed[at : at + chance.randrange(1, 9)]
            else:
                changed[at:at] = changed[at : at + chance.randrange(1, 9)]
        return bytes(changed)


def packet(first: int, body: bytes) -> bytes:
    """A packet with its fixed header."""
    return bytes((first,)) + varint(len(body)) + body
