"""MQTT 5.0, sections 3.1 and 3.2: CONNECT and what the CONNACK says about it."""

from __future__ import annotations

import pytest

from tests.wire.harness import Broker
from tests.wire.packets import V5, Kind, Prop, Reason, Value, Will
from tests.wire.v5.samples import SAMPLE


@pytest.mark.spec("MQTT-3.2.0-1")
@pytest.mark.spec("MQTT-3.1.4-5")
def test_connack_is_the_first_packet(broker: Broker, name: str) -> None:
    """[MQTT-3.2.0-1] [MQTT-3.1.4-5]: even if packets follow the CONNECT in one segment."""
    peer = broker.peer()
    peer.send(V5.connect(name), V5.pingreq(), V5.subscribe((name, 0), packet_id=3))
    peer.expect_connack(0, session_present=False)
    peer.expect_packet(Kind.PINGRESP)
    peer.expect_packet(Kind.SUBACK, packet_id=3, reasons=(0,))


@pytest.mark.spec("MQTT-2.2.2-1")
@pytest.mark.spec("MQTT-3.2.2-1")
@pytest.mark.spec("MQTT-3.2.0-1")
@pytest.mark.parametrize("version", [4, 5])
def test_connack_has_the_layout_of_the_version(broker: Broker, name: str, version: int) -> None:
    """The strict reader takes it apart; 3.1.1's has no property field."""
    broker.connect(name, version=version)


CLIENT_IDS = [
    "a",
    "0123456789abcdefghijklm",
    "ABCDEFGHIJKLMNOPQRSTUVW",
    "with space",
    "with/slash",
    "with+plus#hash",
    "$dollar",
    "ünïcödé-日本-😀",
    "\ufeffbom",
    "%c%u",
    "x" * 24,
    "x" * 256,
    "x" * 1000,
]


@pytest.mark.spec("MQTT-3.1.3-2")
@pytest.mark.spec("MQTT-3.1.3-5")
@pytest.mark.parametrize("client_id", CLIENT_IDS, ids=lambda value: ascii(value)[1:20])
def test_client_id(broker: Broker, client_id: str) -> None:
    """1 to 23 characters of the named alphabet must be allowed; others may be, and are by us."""
    peer = broker.connect(client_id, expiry=30)
    assert peer.connack.get(Prop.ASSIGNED_CLIENT_ID) is None
    peer.disconnect()
    broker.connect(client_id, session_present=True, clean=False).disconnect()


@pytest.mark.spec("MQTT-1.5.4-3")
def test_byte_order_mark_is_part_of_the_client_id(broker: Broker, name: str) -> None:
    """U+FEFF is a character of the string, never skipped."""
    broker.connect(name, expiry=30).disconnect()
    broker.connect(f"\ufeff{name}", clean=False, session_present=False)


@pytest.mark.spec("MQTT-3.1.3-6")
@pytest.mark.spec("MQTT-3.1.3-7")
@pytest.mark.spec("MQTT-3.2.2-16")
def test_assigned_client_ids_are_unique(broker: Broker) -> None:
    peers = [broker.connect("") for _ in range(5)]
    assigned = [peer.connack.get(Prop.ASSIGNED_CLIENT_ID) for peer in peers]
    assert len(set(assigned)) == 5
    for client_id in assigned:
        assert isinstance(client_id, str)
        assert client_id
    for peer in peers:
        peer.expect_nothing()


@pytest.mark.spec("MQTT-3.1.3-7")
def test_assigned_client_id_can_be_used_again(broker: Broker) -> None:
    """3.1.3.1: the client is to use it as if it had named it, to resume too."""
    first = broker.connect("", expiry=30)
    client_id = first.connack.get(Prop.ASSIGNED_CLIENT_ID)
    assert isinstance(client_id, str)
    first.disconnect()
    broker.connect(client_id, clean=False, session_present=True)


@pytest.mark.spec("MQTT-3.1.3-6")
def test_empty_client_id_without_clean_start(broker: Broker) -> None:
    """5.0 has no rule that couples the two, unlike 3.1.1 [MQTT-3.1.3-8]."""
    peer = broker.connect("", clean=False, session_present=False)
    assert peer.connack.get(Prop.ASSIGNED_CLIENT_ID)


def test_reserved_capabilities_are_sane(broker: Broker, name: str) -> None:
    """3.2.2.3: values out of range or that state the default are refused by the reader or here."""
    connack = broker.connect(name).connack
    assert connack.get(Prop.RECEIVE_MAX) != 0
    assert connack.get(Prop.MAX_PACKET_SIZE) != 0
    assert connack.get(Prop.MAX_QOS) in (None, 0, 1)  # [MQTT-3.2.2-9]: absent when it is 2
    for flag in (
        Prop.RETAIN_AVAILABLE,
        Prop.WILDCARD_AVAILABLE,
        Prop.SUBSCRIPTION_ID_AVAILABLE,
        Prop.SHARED_AVAILABLE,
    ):
        assert connack.get(flag) in (None, 1)


@pytest.mark.spec("MQTT-3.1.2-28")
@pytest.mark.parametrize("asked", [None, 0])
def test_response_information_unless_asked(broker: Broker, name: str, asked: int | None) -> None:
    properties: list[tuple[int, Value]] = []
    if asked is not None:
        properties.append((Prop.REQUEST_RESPONSE_INFO, asked))
    connack = broker.connect(name, properties=properties).connack
    assert connack.get(Prop.RESPONSE_INFO) is None


def test_response_information_may_be_withheld(broker: Broker, name: str) -> None:
    """3.1.2.11.6: the server may leave it out even if asked; the connection works."""
    peer = broker.connect(name, properties=[(Prop.REQUEST_RESPONSE_INFO, 1)])
    peer.expect_nothing()


@pytest.mark.parametrize(
    "properties",
    [
        pytest.param([(Prop.SESSION_EXPIRY, 0)], id="session-expiry-0"),
        pytest.param([(Prop.SESSION_EXPIRY, 1)], id="session-expiry-1"),
        pytest.param([(Prop.SESSION_EXPIRY, 0xFFFFFFFE)], id="session-expiry-largest"),
        pytest.param([(Prop.SESSION_EXPIRY, 0xFFFFFFFF)], id="session-expiry-never"),
        pytest.param([(Prop.RECEIVE_MAX, 1)], id="receive-maximum-1"),
        pytest.param([(Prop.RECEIVE_MAX, 65_535)], id="receive-maximum-65535"),
        pytest.param([(Prop.MAX_PACKET_SIZE, 0xFFFFFFFF)], id="packet-size-largest"),
        pytest.param([(Prop.MAX_PACKET_SIZE, 268_435_460)], id="packet-size-of-the-protocol"),
        pytest.param([(Prop.TOPIC_ALIAS_MAX, 0)], id="topic-alias-maximum-0"),
        pytest.param([(Prop.TOPIC_ALIAS_MAX, 65_535)], id="topic-alias-maximum-65535"),
        pytest.param([(Prop.REQUEST_PROBLEM_INFO, 0)], id="problem-information-0"),
        pytest.param([(Prop.REQUEST_PROBLEM_INFO, 1)], id="problem-information-1"),
        pytest.param([(Prop.USER, ("", ""))], id="user-property-empty"),
        pytest.param([(Prop.USER, ("a", "1")), (Prop.USER, ("a", "1"))], id="user-property-twice"),
        pytest.param([(Prop.USER, (f"k{i}", "v")) for i in range(200)], id="user-properties-200"),
        pytest.param(
            [
                (Prop.USER, ("last", "first")),
                (Prop.MAX_PACKET_SIZE, 1000),
                (Prop.RECEIVE_MAX, 5),
                (Prop.SESSION_EXPIRY, 5),
            ],
            id="any-order",
        ),
    ],
)
def test_legal_properties(broker: Broker, name: str, properties: list[tuple[int, Value]]) -> None:
    peer = broker.connect(name, properties=properties)
    peer.expect_nothing()


@pytest.mark.parametrize("keep_alive", [0, 1, 10, 65_535])
def test_keep_alive_values(broker: Broker, name: str, keep_alive: int) -> None:
    peer = broker.connect(name, keep_alive=keep_alive)
    peer.expect_nothing()


@pytest.mark.spec("MQTT-3.1.2-8")
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("retain", [False, True])
def test_will_variants_are_accepted(broker: Broker, name: str, qos: int, retain: bool) -> None:
    peer = broker.connect(name, will=Will(topic=f"{name}/w", qos=qos, retain=retain))
    peer.disconnect()


def test_will_with_all_its_properties(broker: Broker, name: str) -> None:
    names = (
        Prop.WILL_DELAY,
        Prop.PAYLOAD_FORMAT,
        Prop.MESSAGE_EXPIRY,
        Prop.CONTENT_TYPE,
        Prop.RESPONSE_TOPIC,
        Prop.CORRELATION_DATA,
        Prop.USER,
    )
    properties = [(identifier, SAMPLE[identifier]) for identifier in names]
    peer = broker.connect(name, will=Will(topic=f"{name}/w", properties=properties))
    peer.disconnect()


@pytest.mark.spec("MQTT-3.1.4-3")
@pytest.mark.trap(42)
@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("expiry", [0, 60])
def test_takeover(broker: Broker, name: str, clean: bool, expiry: int) -> None:
    """The older connection is told 0x8E and closed, the newer one works."""
    first = broker.connect(name, expiry=expiry)
    second = broker.connect(name, expiry=expiry, clean=clean)
    first.expect_refusal(Reason.TAKEN_OVER)
    second.expect_nothing()


@pytest.mark.spec("MQTT-3.1.4-3")
@pytest.mark.trap(42)
def test_takeover_chain(broker: Broker, name: str) -> None:
    """Twenty connections in a row with one identifier: only the last one stays."""
    peers = [broker.connect(name, expiry=60) for _ in range(20)]
    for peer in peers[:-1]:
        peer.expect_refusal(Reason.TAKEN_OVER)
    peers[-1].expect_nothing()


@pytest.mark.spec("MQTT-3.1.4-3")
@pytest.mark.trap(42)
def test_takeover_by_concurrent_connects(broker: Broker, name: str) -> None:
    """Of ten CONNECTs under way at once exactly one connection is left, and it works."""
    peers = [broker.peer() for _ in range(10)]
    for peer in peers:
        peer.send(V5.connect(name))
    for peer in peers:
        peer.receive()  # by now all CONNECTs are taken in
    connected = 0
    for peer in peers:
        peer.send(V5.pingreq())
        found = peer.receive()
        while found is not None and found.kind is not Kind.PINGRESP:
            found = peer.receive()
        connected += found is not None
    assert connected == 1


@pytest.mark.spec("MQTT-3.1.4-3")
def test_takeover_across_versions(broker: Broker, name: str) -> None:
    """One name space of client identifiers for both versions."""
    old = broker.connect(name, version=4)
    new = broker.connect(name, version=5)
    old.expect_closed()
    newest = broker.connect(name, version=4)
    new.expect_refusal(Reason.TAKEN_OVER)
    newest.expect_nothing()


@pytest.mark.spec("MQTT-3.1.4-1")
@pytest.mark.spec("MQTT-3.1.4-3")
def test_a_refused_connect_does_not_take_over(broker: Broker, name: str) -> None:
    """[MQTT-3.1.4-1] comes before [MQTT-3.1.4-3]: only a valid CONNECT closes the other."""
    first = broker.connect(name)
    second = broker.peer()
    second.send(V5.connect(name, properties=[(Prop.RECEIVE_MAX, 0)]))
    second.expect_refused_connect(Reason.PROTOCOL_ERROR)
    first.expect_nothing()


@pytest.mark.spec("MQTT-3.1.2-16")
@pytest.mark.spec("MQTT-3.1.2-18")
@pytest.mark.parametrize(
    ("username", "password"),
    [("user", "secret"), ("user", None), (None, "secret"), ("", ""), ("ü", "p")],
)
def test_credentials_are_optional_and_independent(
    broker: Broker, name: str, username: str | None, password: str | None
) -> None:
    """3.1.2.9: 5.0 allows a password without a user name. No method is configured here.

    Whether unknown credentials are refused is the broker's policy; either way it is a CONNACK.
    """
    peer = broker.peer()
    peer.send(V5.connect(name, username=username, password=password))
    found = peer.expect_packet(Kind.CONNACK)
    assert found.reason in (0, Reason.BAD_CREDENTIALS, Reason.NOT_AUTHORIZED)


def test_connect_in_single_bytes(broker: Broker, name: str) -> None:
    will = Will(topic=f"{name}/w", payload=b"w" * 200, properties=[(Prop.WILL_DELAY, 5)])
    peer = broker.peer()
    peer.send_slowly(V5.connect(name, will=will, properties=[(Prop.USER, ("k", "v"))]))
    peer.expect_connack(0)
    peer.disconnect()


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16_383, 16_384, 65_535])
def test_will_payload_sizes(broker: Broker, name: str, size: int) -> None:
    """The will payload is binary data, up to 65,535 bytes."""
    watcher = broker.connect(f"{name}-watcher")
    watcher.subscribe(f"{name}/w")
    payload = bytes(i % 251 for i in range(size))
    broker.connect(name, will=Will(topic=f"{name}/w", payload=payload)).close()
    watcher.receive_publish(f"{name}/w", payload)


def test_password_is_binary(broker: Broker, name: str) -> None:
    """3.1.3.6: the password is binary data; bytes that are no UTF-8 are no malformed packet."""
    peer = broker.peer()
    peer.send(V5.connect(name, username="u", password=b"\xff\x00\xfe"))
    found = peer.expect_packet(Kind.CONNACK)
    assert found.reason in (0, Reason.BAD_CREDENTIALS, Reason.NOT_AUTHORIZED)


@pytest.mark.parametrize("client_id", ["a\x01", "\x7f", "\uffff"])
def test_client_id_with_a_control_character(broker: Broker, client_id: str) -> None:
    """1.5.4 lets a receiver refuse it; 3.1.3.1 names 0x85 for an identifier it does not take."""
    peer = broker.peer()
    peer.send(V5.connect(client_id))
    assert peer.expect_packet(Kind.CONNACK).reason == 0x85
    peer.expect_closed()


def test_two_connections_are_independent(broker: Broker, name: str) -> None:
    """[MQTT-4.2-1]: packet identifiers and subscriptions are those of one connection's session."""
    one, two = broker.connect(f"{name}1"), broker.connect(f"{name}2")
    one.subscribe(f"{name}/a")
    two.subscribe(f"{name}/b")
    one.send(V5.publish(f"{name}/b", b"to two", qos=1, packet_id=7))
    two.send(V5.publish(f"{name}/a", b"to one", qos=1, packet_id=7))
    one.take(Kind.PUBACK, 7)
    two.take(Kind.PUBACK, 7)
    one.receive_publish(f"{name}/a", b"to one", qos=1)
    two.receive_publish(f"{name}/b", b"to two", qos=1)


def test_client_id_at_the_protocol_limit(broker: Broker) -> None:
    """1.5.4: 65,535 bytes are the most that a string has; refusing it (0x85) is allowed."""
    peer = broker.peer()
    peer.send(V5.connect(b"x" * 65_535))
    found = peer.expect_packet(Kind.CONNACK)
    assert found.reason in (0, Reason.CLIENT_ID_INVALID)


def test_connect_of_one_field_more_is_not_read_as_the_next_packet(broker: Broker) -> None:
    """2.1.4: the remaining length, not the content, says where the packet ends."""
    peer = broker.peer()
    good = V5.connect("length")
    peer.send(good[:1] + bytes([good[1] + 2]) + good[2:] + V5.pingreq())
    peer.expect_refused_connect(Reason.MALFORMED, Reason.PROTOCOL_ERROR)
