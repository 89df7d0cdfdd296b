"""MQTT 3.1.1: each defect of a CONNECT ends the connection without a CONNACK.

[MQTT-3.1.4-1], [MQTT-3.2.2-6]. The flags are in ``test_connect``, the strings in ``test_utf8``.
"""

from __future__ import annotations

import pytest

from tests.wire.clients import Clients
from tests.wire.packets import V3, Will, packet, text, u16

HEAD = text("MQTT") + b"\x04"
FULL = V3.connect(
    "client", will=Will(topic="will", payload=b"gone"), username="user", password=b"secret"
)


@pytest.mark.spec("MQTT-3.1.4-1@3.1.1")
@pytest.mark.parametrize("length", range(len(FULL) - 2))
def test_every_truncation(clients: Clients, length: int) -> None:
    """A CONNECT whose remaining length ends it inside each of its fields."""
    peer = clients.peer()
    peer.send(packet(0x10, FULL[2 : 2 + length]))
    peer.expect_closed()


@pytest.mark.spec("MQTT-2.2.2-1@3.1.1")
@pytest.mark.spec("MQTT-2.2.2-2@3.1.1")
@pytest.mark.parametrize("flags", range(1, 16))
def test_fixed_header_flags(clients: Clients, name: str, flags: int) -> None:
    peer = clients.peer()
    peer.send(V3.connect(name, first=0x10 | flags))
    peer.expect_closed()


@pytest.mark.spec("MQTT-3.1.4-1@3.1.1")
@pytest.mark.spec("MQTT-3.1.2-18@3.1.1")
@pytest.mark.spec("MQTT-3.1.2-20@3.1.1")
@pytest.mark.spec("MQTT-3.1.2-11@3.1.1")
@pytest.mark.parametrize(
    ("flags", "payload"),
    [
        pytest.param(0x02, text("c") + b"\x00", id="one-byte-too-many"),
        pytest.param(0x02, text("c") + text("user"), id="username-not-announced"),
        pytest.param(0x82, text("c") + text("user") + text(b"pw"), id="password-not-announced"),
        pytest.param(0x02, text("c") + text("will") + text(b"w"), id="will-not-announced"),
        pytest.param(0x82, text("c"), id="username-missing"),
        pytest.param(0xC2, text("c") + text("user"), id="password-missing"),
        pytest.param(0x06, text("c"), id="will-missing"),
        pytest.param(0x06, text("c") + text("will"), id="will-message-missing"),
        pytest.param(0x02, b"", id="client-id-missing"),
        pytest.param(0x02, b"\x00\x05abc", id="client-id-longer-than-the-packet"),
        pytest.param(0x02, b"\xff\xffabc", id="client-id-of-65535-bytes-not-there"),
    ],
)
def test_fields_do_not_match_the_flags(clients: Clients, flags: int, payload: bytes) -> None:
    peer = clients.peer()
    peer.send(packet(0x10, HEAD + bytes([flags]) + u16(60) + payload))
    peer.expect_closed()


@pytest.mark.spec("MQTT-3.3.2-2@3.1.1")
@pytest.mark.spec("MQTT-4.7.1-1@3.1.1")
@pytest.mark.spec("MQTT-4.7.3-1@3.1.1")
@pytest.mark.parametrize("topic", ["", "#", "+", "a/#", "a/+/b", "a#", "+a", "a/b+"])
def test_will_topic_is_no_topic_name(clients: Clients, name: str, topic: str) -> None:
    """A will is published under its topic, so wildcards and emptiness are refused here."""
    peer = clients.peer()
    peer.send(V3.connect(name, will=Will(topic=topic, payload=b"w")))
    peer.expect_closed()
    clients.join(name, clean=False, present=False)


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"\x10\xff\xff\xff\xff\x7f", id="five-bytes"),
        pytest.param(b"\x10\x80\x80\x80\x80\x01", id="five-bytes-small"),
        pytest.param(b"\x10\xff\xff\xff\xff\xff", id="endless"),
        pytest.param(b"\x10\x80\x80\x80\x80\x00", id="padded"),
    ],
)
def test_remaining_length_of_more_than_four_bytes(clients: Clients, raw: bytes) -> None:
    """2.2.3: at most four bytes; told from the first five, without waiting for more."""
    peer = clients.peer()
    peer.send(raw)
    peer.expect_closed()


@pytest.mark.parametrize("in_pieces", [False, True])
def test_refused_connect_leaves_no_trace(clients: Clients, name: str, in_pieces: bool) -> None:
    """Neither a session nor a takeover comes of a CONNECT that breaks the rules."""
    first = clients.join(name)
    malformed = packet(0x10, V3.connect(name, clean=False)[2:] + b"\x00")
    peer = clients.peer()
    if in_pieces:
        peer.send_slowly(malformed)
    else:
        peer.send(malformed)
    peer.expect_closed()
    first.expect_nothing()
    first.disconnect()
    clients.join(name, clean=False, present=False)
