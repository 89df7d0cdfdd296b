"""MQTT 3.1.1, section 1.5.3: UTF-8 encoded strings, in every field that is one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.wire.clients import Clients
from tests.wire.packets import V3, Kind, Will

ILL_FORMED = {
    "lone-continuation": b"a\x80b",
    "lone-start": b"a\xc3",
    "start-then-ascii": b"\xc3a",
    "two-of-three": b"\xe6\x97",
    "three-of-four": b"\xf0\x9f\x98",
    "fe": b"\xfe",
    "ff": b"\xff\xff",
    "over-long-slash": b"\xc0\xaf",
    "over-long-nul": b"\xc0\x80",
    "over-long-three": b"\xe0\x80\xaf",
    "over-long-four": b"\xf0\x80\x80\xaf",
    "five-byte-form": b"\xf8\x88\x80\x80\x80",
    "beyond-10ffff": b"\xf4\x90\x80\x80",
    "latin-1": "é".encode("latin-1"),
}
SURROGATES = {
    "d800": b"\xed\xa0\x80",
    "dbff": b"\xed\xaf\xbf",
    "dc00": b"\xed\xb0\x80",
    "dfff": b"\xed\xbf\xbf",
    "pair": b"\xed\xa0\xbd\xed\xb8\x80",
}
NUL = {"nul": b"\x00", "nul-inside": b"a\x00b", "nul-last": b"ab\x00"}

FIELDS: dict[str, Callable[[bytes], bytes]] = {
    "client-id": lambda raw: V3.connect(raw),
    "username": lambda raw: V3.connect("utf8", username=raw),
    "will-topic": lambda raw: V3.connect("utf8", will=Will(topic=raw, payload=b"w")),
    "protocol-name": lambda raw: V3.connect("utf8", protocol=raw),
    "publish-0": lambda raw: V3.publish(raw, b"x"),
    "publish-1": lambda raw: V3.publish(raw, b"x", qos=1),
    "publish-2": lambda raw: V3.publish(raw, b"x", qos=2),
    "subscribe": lambda raw: V3.subscribe((raw, 0)),
    "subscribe-last": lambda raw: V3.subscribe(("good", 0), (raw, 0)),
    "unsubscribe": lambda raw: V3.unsubscribe(raw),
}


def refuse(clients: Clients, name: str, field: str, raw: bytes) -> None:
    """The field with these bytes closes the connection."""
    if field in ("client-id", "username", "will-topic", "protocol-name"):
        peer = clients.peer()
    else:
        peer = clients.join(name)
    peer.send(FIELDS[field](raw))
    peer.expect_closed()


@pytest.mark.spec("MQTT-1.5.3-1@3.1.1")
@pytest.mark.spec("MQTT-3.1.3-4@3.1.1")
@pytest.mark.spec("MQTT-3.1.3-10@3.1.1")
@pytest.mark.spec("MQTT-3.1.3-11@3.1.1")
@pytest.mark.spec("MQTT-3.3.2-1@3.1.1")
@pytest.mark.spec("MQTT-3.8.3-1@3.1.1")
@pytest.mark.spec("MQTT-3.10.3-1@3.1.1")
@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("raw", ILL_FORMED.values(), ids=ILL_FORMED.keys())
def test_ill_formed(clients: Clients, name: str, field: str, raw: bytes) -> None:
    refuse(clients, name, field, raw)


@pytest.mark.spec("MQTT-1.5.3-1@3.1.1")
@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("raw", SURROGATES.values(), ids=SURROGATES.keys())
def test_surrogates(clients: Clients, name: str, field: str, raw: bytes) -> None:
    """Code points D800 to DFFF must not be encoded, not even as a pair."""
    refuse(clients, name, field, raw)


@pytest.mark.spec("MQTT-1.5.3-2@3.1.1")
@pytest.mark.spec("MQTT-4.7.3-2@3.1.1")
@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("raw", NUL.values(), ids=NUL.keys())
def test_nul(clients: Clients, name: str, field: str, raw: bytes) -> None:
    refuse(clients, name, field, raw)


WELL_FORMED = {
    "bom-first": "\ufeffa",
    "bom-alone": "\ufeff",
    "bom-inside": "a\ufeffb",
    "two-bytes": "\u00a1\u07ff",
    "three-bytes": "\u0800\ud7ff\ue000\ufffd",
    "four-bytes": "\U00010000\U0010fffd",
    "emoji": "👩‍👩‍👧‍👦",
    "combining": "e\u0301",
    "composed": "\u00e9",
    "right-to-left": "\u202eabc",
    "zero-width": "a\u200bb",
    "space": " ",
    "replacement": "\ufffd",
}


@pytest.mark.spec("MQTT-1.5.3-3@3.1.1")
@pytest.mark.spec("MQTT-4.7.3-4@3.1.1")
@pytest.mark.parametrize("value", WELL_FORMED.values(), ids=WELL_FORMED.keys())
def test_topic_keeps_its_bytes(clients: Clients, name: str, value: str) -> None:
    """Names and filters are compared and delivered as they are, a byte order mark included."""
    topic = f"{value}/{name}/{value}"
    peer = clients.join(name)
    peer.subscribe(topic)
    peer.publish(topic, b"x", qos=1)
    found = peer.expect_packet(Kind.PUBLISH, topic=topic)
    assert topic.encode() in found.raw


@pytest.mark.spec("MQTT-1.5.3-3@3.1.1")
@pytest.mark.spec("MQTT-3.10.4-1@3.1.1")
@pytest.mark.spec("MQTT-4.7.3-4@3.1.1")
@pytest.mark.parametrize(
    ("topic", "topic_filter"),
    [
        pytest.param("a", "\ufeffa", id="bom-in-filter"),
        pytest.param("\ufeffa", "a", id="bom-in-topic"),
        pytest.param("a\ufeff", "a", id="bom-last"),
        pytest.param("\u00e9", "e\u0301", id="composed"),
        pytest.param("e\u0301", "\u00e9", id="combining"),
        pytest.param("\u212b", "\u00c5", id="angstrom"),
        pytest.param("ﬁ", "fi", id="ligature"),
        pytest.param("A", "a", id="case"),
        pytest.param("İ", "i", id="turkish-case"),
        pytest.param("ß", "ss", id="sharp-s"),
        pytest.param("a", "a ", id="trailing-space"),
        pytest.param(" a", "a", id="leading-space"),
        pytest.param("a\u200b", "a", id="zero-width"),
        pytest.param("%41", "A", id="percent"),
    ],
)
def test_nothing_is_normalised(clients: Clients, name: str, topic: str, topic_filter: str) -> None:
    """Similar is not equal, neither for matching nor for UNSUBSCRIBE."""
    peer = clients.join(name)
    peer.subscribe(f"{name}/{topic_filter}")
    peer.publish(f"{name}/{topic}", b"other")
    peer.expect_nothing()
    peer.unsubscribe(f"{name}/{topic}")
    peer.publish(f"{name}/{topic_filter}", b"mine")
    peer.receive_publish(f"{name}/{topic_filter}", b"mine")


@pytest.mark.parametrize(
    "character",
    ["\u0001", "\u001f", "\u007f", "\u0085", "\u009f", "\ufdd0", "\ufffe", "\uffff", "\U0010ffff"],
    ids=ascii,
)
def test_discouraged_code_points(clients: Clients, name: str, character: str) -> None:
    """1.5.3: control characters and non-characters SHOULD NOT be sent and MAY be refused.

    Perdure lets them pass unchanged; a broker that closes the connection is within its rights.
    """
    topic = f"{name}/{character}"
    peer = clients.join(name)
    peer.send(V3.subscribe((topic, 1), packet_id=1), V3.publish(topic, b"x", qos=1, packet_id=2))
    found = peer.receive()
    if found is None:
        return
    assert found.raw == b"\x90\x03\x00\x01\x01"
    peer.take(Kind.PUBACK, 2)
    peer.receive_publish(topic, b"x", qos=1)


@pytest.mark.parametrize("size", [65534, 65535])
def test_longest_strings(clients: Clients, name: str, size: int) -> None:
    """[MQTT-4.7.3-3]: 65,535 bytes, counted in bytes and not in characters."""
    topic = (name + "/" + "é" * 33000).encode()[:size]
    if size % 2 == len(name + "/") % 2:
        value = topic.decode()
    else:
        value = topic[:-1].decode() + "x"
    assert len(value.encode()) == size
    peer = clients.join(name)
    peer.subscribe(value)
    peer.publish(value, b"x", qos=1)
    peer.receive_publish(value, b"x", qos=1)
