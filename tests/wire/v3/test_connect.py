"""MQTT 3.1.1, sections 3.1 and 3.2: which CONNECTs are accepted, and the CONNACK."""

from __future__ import annotations

import string

import pytest

from tests.wire.clients import Clients
from tests.wire.packets import V3, Kind, Will, packet, text, u16
from tests.wire.v3.codes import BAD_IDENTIFIER, BAD_PROTOCOL, GRANTED

ACCEPTED = b"\x20\x02\x00\x00"


def is_legal(flags: int) -> bool:
    """Whether these connect flags keep every rule of section 3.1.2.3."""
    will, qos = flags & 0x04, flags >> 3 & 3
    if flags & 0x01:
        return False  # [MQTT-3.1.2-3] reserved
    if not will and (qos or flags & 0x20):
        return False  # [MQTT-3.1.2-11] [MQTT-3.1.2-13] [MQTT-3.1.2-15]
    if qos == 3:
        return False  # [MQTT-3.1.2-14]
    return bool(flags & 0x80) or not flags & 0x40  # [MQTT-3.1.2-22]


def connect_with_flags(client_id: str, flags: int) -> bytes:
    """A CONNECT with exactly the payload fields that the flags announce."""
    payload = text(client_id)
    if flags & 0x04:
        payload += text(f"{client_id}/will") + text(b"gone")
    if flags & 0x80:
        payload += text("user")
    if flags & 0x40:
        payload += text(b"secret")
    return packet(0x10, text("MQTT") + b"\x04" + bytes([flags]) + u16(60) + payload)


@pytest.mark.spec("MQTT-3.1.2-9@3.1.1")
@pytest.mark.spec("MQTT-3.1.2-19@3.1.1")
@pytest.mark.spec("MQTT-3.1.2-21@3.1.1")
@pytest.mark.spec("MQTT-3.1.3-1@3.1.1")
@pytest.mark.spec("MQTT-3.1.4-4@3.1.1")
@pytest.mark.parametrize(
    "flags", [*filter(is_legal, range(256))], ids=lambda value: f"{value:#04x}"
)
def test_legal_flags(clients: Clients, name: str, flags: int) -> None:
    """Each legal combination, with its fields in the order of 3.1.3."""
    peer = clients.peer()
    peer.send(connect_with_flags(name, flags))
    peer.expect(ACCEPTED)
    peer.expect_nothing()
    peer.disconnect()


@pytest.mark.spec("MQTT-3.1.2-3@3.1.1")
@pytest.mark.spec("MQTT-3.1.2-11@3.1.1")
@pytest.mark.spec("MQTT-3.1.2-13@3.1.1")
@pytest.mark.spec("MQTT-3.1.2-14@3.1.1")
@pytest.mark.spec("MQTT-3.1.2-15@3.1.1")
@pytest.mark.spec("MQTT-3.1.2-22@3.1.1")
@pytest.mark.spec("MQTT-3.1.4-1@3.1.1")
@pytest.mark.spec("MQTT-3.2.2-6@3.1.1")
@pytest.mark.parametrize(
    "flags",
    [flags for flags in range(256) if not is_legal(flags)],
    ids=lambda value: f"{value:#04x}",
)
def test_illegal_flags(clients: Clients, name: str, flags: int) -> None:
    """Closed without a CONNACK, although every announced field is there."""
    peer = clients.peer()
    peer.send(connect_with_flags(name, flags))
    peer.expect_closed()


CLIENT_IDS = {
    "digits": string.digits,
    "lower": string.ascii_lowercase[:23],
    "upper": string.ascii_uppercase[3:],
    "one": "Z",
    "23": "q" * 23,
    "24": "q" * 24,
    "256": "r" * 256,
    "longest": "s" * 65535,
    "space": "two words",
    "slash": "a/b",
    "wildcards": "a+b#c",
    "dollar": "$SYS",
    "quotes": "'\";--",
    "two-byte": "ÄÖÜ",
    "three-byte": "日本",
    "four-byte": "😀",
    "combining": "e\u0301",
    "bom": "\ufefftail",
    "replacement": "\ufffd",
}


@pytest.mark.spec("MQTT-3.1.3-2@3.1.1")
@pytest.mark.spec("MQTT-3.1.3-3@3.1.1")
@pytest.mark.spec("MQTT-3.1.3-4@3.1.1")
@pytest.mark.spec("MQTT-3.1.3-5@3.1.1")
@pytest.mark.parametrize("client_id", CLIENT_IDS.values(), ids=CLIENT_IDS.keys())
def test_client_id_names_a_session(clients: Clients, client_id: str) -> None:
    """1 to 23 characters of 0-9a-zA-Z must be allowed; the rest may be, and is."""
    clients.join(client_id, clean=False, present=False).disconnect()
    clients.join(client_id, clean=False, present=True).disconnect()
    clients.join(client_id, clean=True, present=False).disconnect()


@pytest.mark.spec("MQTT-3.1.3-2@3.1.1")
@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param("case", "CASE", id="case"),
        pytest.param("trail", "trail ", id="trailing-space"),
        pytest.param("bom", "\ufeffbom", id="byte-order-mark"),
        pytest.param("\u00e9", "e\u0301", id="normal-forms"),
        pytest.param("plumless", "buckeroo", id="same-crc32"),
        pytest.param("a/b", "a", id="prefix"),
        pytest.param("n1", "n10", id="longer"),
    ],
)
@pytest.mark.trap(49)
def test_similar_client_ids_are_two_clients(clients: Clients, one: str, other: str) -> None:
    """[MQTT-1.5.3-3] too: no normalisation, no stripping, no hash in place of the name."""
    first = clients.join(one, clean=False, present=False)
    first.subscribe("similar/one")
    second = clients.join(other, clean=False, present=False)
    second.publish("similar/one", b"x", qos=1)
    second.expect_nothing()
    first.receive_publish("similar/one", b"x", qos=1)
    first.disconnect()
    second.disconnect()
    for client_id in (one, other):
        clients.join(client_id, clean=False, present=True).disconnect()
        clients.join(client_id, clean=True).disconnect()


@pytest.mark.spec("MQTT-3.1.3-6@3.1.1")
@pytest.mark.spec("MQTT-3.1.3-7@3.1.1")
def test_empty_client_ids_are_unique(clients: Clients, name: str) -> None:
    """Each gets an identifier of its own, so none takes another over."""
    peers = [clients.join("", clean=True, present=False) for _ in range(5)]
    for peer in peers:
        peer.subscribe(name)
    peers[0].publish(name, b"x", qos=1)
    for peer in peers:
        peer.receive_publish(name, b"x", qos=1)
        peer.expect_nothing()


@pytest.mark.spec("MQTT-3.1.3-8@3.1.1")
@pytest.mark.spec("MQTT-3.2.2-4@3.1.1")
@pytest.mark.spec("MQTT-3.2.2-5@3.1.1")
@pytest.mark.parametrize("with_will", [False, True])
def test_empty_client_id_without_clean_session(
    clients: Clients, name: str, with_will: bool
) -> None:
    """Return code 0x02, then the close."""
    peer = clients.peer()
    will = Will(topic=name, payload=b"gone") if with_will else None
    peer.send(V3.connect("", clean=False, will=will))
    peer.expect(b"\x20\x02\x00\x02")
    peer.expect_closed()


@pytest.mark.spec("MQTT-3.1.4-5@3.1.1")
@pytest.mark.parametrize(
    ("connect", "code"),
    [
        pytest.param(V3.connect("", clean=False), BAD_IDENTIFIER, id="identifier"),
        pytest.param(V3.connect("c", level=3), BAD_PROTOCOL, id="level"),
    ],
)
def test_nothing_behind_a_refused_connect_is_processed(
    clients: Clients, name: str, connect: bytes, code: int
) -> None:
    """Packets in the same segment as the refused CONNECT have no effect."""
    watcher = clients.join(name)
    watcher.subscribe(name)
    peer = clients.peer()
    peer.send(connect, V3.publish(name, b"leaked"), V3.subscribe((name, 0)))
    peer.expect_connack(code)
    peer.expect_closed()
    watcher.expect_nothing()


@pytest.mark.spec("MQTT-3.1.2-2@3.1.1")
@pytest.mark.parametrize("level", [0, 1, 2, 3, 6, 7, 64, 127, 255])
def test_unknown_protocol_level(clients: Clients, name: str, level: int) -> None:
    """Return code 0x01, then the close; 3 belongs to the name MQIsdp."""
    peer = clients.peer()
    peer.send(V3.connect(name, level=level))
    peer.expect(b"\x20\x02\x00\x01")
    peer.expect_closed()


@pytest.mark.parametrize("level", [3, 0x83])
def test_mqtt_3_1(clients: Clients, name: str, level: int) -> None:
    """Its clients know return code 0x01: another version is spoken here."""
    peer = clients.peer()
    peer.send(V3.connect(name, protocol="MQIsdp", level=level))
    peer.expect(b"\x20\x02\x00\x01")
    peer.expect_closed()


@pytest.mark.spec("MQTT-3.1.2-1@3.1.1")
@pytest.mark.parametrize(
    "protocol",
    ["", "M", "MQT", "MQTTT", "mqtt", "MQTt", "MQTT ", "\ufeffMQTT", "MQIsdpX", "HTTP", "A" * 300],
)
def test_unknown_protocol_name(clients: Clients, name: str, protocol: str) -> None:
    """The rest of the packet must not be processed by these rules: no acceptance, but a close."""
    peer = clients.peer()
    peer.send(V3.connect(name, protocol=protocol))
    found = peer.receive()
    if found is not None:
        assert (found.kind, found.reason) == (Kind.CONNACK, BAD_PROTOCOL)
        peer.expect_closed()


@pytest.mark.spec("MQTT-3.2.0-1@3.1.1")
def test_connack_comes_first(clients: Clients, name: str) -> None:
    """Packets may follow a CONNECT without waiting; their answers follow the CONNACK in order."""
    peer = clients.peer()
    peer.send(
        V3.connect(name),
        V3.subscribe((name, 1), packet_id=10),
        V3.publish(name, b"early", qos=1, packet_id=11),
        V3.pingreq(),
    )
    peer.expect_connack(GRANTED, session_present=False)
    peer.expect(b"\x90\x03\x00\x0a\x01")
    peer.take(Kind.PUBACK, 11)
    peer.take(Kind.PINGRESP)
    peer.receive_publish(name, b"early", qos=1)


@pytest.mark.spec("MQTT-3.1.0-2@3.1.1")
@pytest.mark.parametrize("in_one_segment", [False, True])
@pytest.mark.parametrize("same_id", [False, True])
def test_second_connect(clients: Clients, name: str, in_one_segment: bool, same_id: bool) -> None:
    """A protocol violation: the client is disconnected, and its will is published."""
    watcher = clients.join(f"{name}-watcher")
    watcher.subscribe(f"{name}/will")
    connect = V3.connect(name, will=Will(topic=f"{name}/will", payload=b"gone"))
    again = connect if same_id else V3.connect(f"{name}-other")
    peer = clients.peer()
    if in_one_segment:
        peer.send(connect, again)
        peer.expect_connack(GRANTED)
    else:
        peer.send(connect)
        peer.expect_connack(GRANTED)
        peer.send(again)
    peer.expect_closed()
    watcher.receive_publish(f"{name}/will", b"gone")
    watcher.expect_nothing()


@pytest.mark.parametrize("keep_alive", [0, 1, 0x00FF, 0xFF00, 0xFFFF])
def test_keep_alive_is_accepted(clients: Clients, name: str, keep_alive: int) -> None:
    clients.join(name, keep_alive=keep_alive).expect_nothing()


@pytest.mark.parametrize(
    ("username", "password"),
    [
        pytest.param("", None, id="empty-username"),
        pytest.param("", b"", id="both-empty"),
        pytest.param("user", b"", id="empty-password"),
        pytest.param("user", bytes(range(256)), id="binary-password"),
        pytest.param("user\ufeff", b"\xff\xfe\x00", id="not-utf-8-password"),
        pytest.param("u" * 65535, b"p" * 65535, id="longest"),
        pytest.param("üser 日本 😀", b"p", id="unicode-username"),
    ],
)
def test_credentials_of_any_shape(
    clients: Clients, name: str, username: str, password: bytes | None
) -> None:
    """3.1.3.5: a password is binary; both may be empty. Anonymous access is open here."""
    clients.join(name, username=username, password=password).expect_nothing()


@pytest.mark.parametrize("topic", ["w", "a/b/c", "/", "//", "with space", "ünï/日本", "x" * 65535])
@pytest.mark.parametrize("size", [0, 1, 127, 65535])
def test_will_of_any_shape(clients: Clients, name: str, topic: str, size: int) -> None:
    """3.1.3.2, 3.1.3.3: any topic name; zero to 65,535 bytes of message."""
    will = Will(topic=topic, payload=b"\x00" * size, qos=1)
    clients.join(name, will=will).disconnect()


@pytest.mark.spec("MQTT-3.1.0-1@3.1.1")
@pytest.mark.parametrize(
    "first",
    [
        pytest.param(V3.publish("t", b"x"), id="PUBLISH"),
        pytest.param(V3.publish("t", b"x", qos=1), id="PUBLISH-1"),
        pytest.param(V3.puback(1), id="PUBACK"),
        pytest.param(V3.pubrec(1), id="PUBREC"),
        pytest.param(V3.pubrel(1), id="PUBREL"),
        pytest.param(V3.pubcomp(1), id="PUBCOMP"),
        pytest.param(V3.subscribe(("t", 0)), id="SUBSCRIBE"),
        pytest.param(V3.unsubscribe("t"), id="UNSUBSCRIBE"),
        pytest.param(V3.pingreq(), id="PINGREQ"),
        pytest.param(V3.disconnect(), id="DISCONNECT"),
        pytest.param(b"\x20\x02\x00\x00", id="CONNACK"),
        pytest.param(b"\x90\x03\x00\x01\x00", id="SUBACK"),
        pytest.param(b"\xb0\x02\x00\x01", id="UNSUBACK"),
        pytest.param(b"\xd0\x00", id="PINGRESP"),
        pytest.param(b"\xf0\x00", id="type-15"),
        pytest.param(b"\x00\x00", id="type-0"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="HTTP"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", id="TLS"),
    ],
)
def test_first_packet_is_not_a_connect(clients: Clients, name: str, first: bytes) -> None:
    """Closed without an answer; a CONNECT that comes too late changes nothing."""
    peer = clients.peer()
    peer.send(first, V3.connect(name))
    peer.expect_closed()


def test_connections_that_say_nothing_do_no_harm(clients: Clients, name: str) -> None:
    """Opened and closed, closed inside a CONNECT, or reset: others are served."""
    for cut in (0, 1, 2, 9):
        peer = clients.peer()
        peer.send(V3.connect(name)[:cut])
        peer.close()
        peer = clients.peer()
        peer.send(V3.connect(name)[:cut])
        peer.abort()
    clients.join(name).expect_nothing()
