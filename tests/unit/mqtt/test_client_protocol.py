"""The client against a scripted server: what goes out, what is reported, what survives."""

from __future__ import annotations

import pytest

from perdure.errors import MqttError, UsageError
from perdure.model import Will
from perdure.mqtt import packets as p
from perdure.mqtt.client_events import (
    ClientEvent,
    Connected,
    Disconnected,
    Failed,
    Ponged,
    Published,
    Reauthenticated,
    Received,
    Refused,
    Subscribed,
    Unsubscribed,
)
from perdure.mqtt.client_protocol import CONNECTED, CONNECTING, IDLE, ClientProtocol
from perdure.mqtt.decode import Decoder
from perdure.mqtt.encode import encode
from perdure.mqtt.errors import ProtocolViolation
from perdure.mqtt.packets import (
    EMPTY,
    Ack,
    Auth,
    Connack,
    Connect,
    Packet,
    Properties,
    Publish,
    SubscribeFilter,
)


class Peer:
    """The other end: reads what the client sends, answers what the test says."""

    def __init__(self, client: ClientProtocol) -> None:
        self.client = client
        self.decoder = self._new_decoder()

    @staticmethod
    def _new_decoder() -> Decoder:
        return Decoder(server_side=True, packet_size_max=1 << 20)

    def sent(self) -> list[Packet]:
        """What the client has sent since the last call; it must be legal."""
        packets = self.decoder.feed(self.client.data_to_send())
        assert self.decoder.failure is None
        return packets

    def say(self, *packets: Packet) -> list[ClientEvent]:
        """Send packets to the client, byte by byte; returns its events."""
        raw = b"".join(encode(packet, self.client.version) for packet in packets)
        events: list[ClientEvent] = []
        for byte in raw:
            events += self.client.receive(bytes((byte,)))
        return events

    def accept(self, *, session_present: bool = False, properties: Properties = EMPTY) -> Connect:
        """Connect, and let the server accept."""
        self.decoder = self._new_decoder()
        self.client.connect()
        (connect,) = self.sent()
        assert isinstance(connect, Connect)
        events = self.say(Connack(session_present, 0, properties))
        assert Connected(session_present, properties) in events
        return connect

    def cut(self) -> None:
        """The transport breaks."""
        self.client.connection_lost()


def _connected(version: int = 5, properties: Properties = EMPTY) -> tuple[ClientProtocol, Peer]:
    client = ClientProtocol(version, "c")
    peer = Peer(client)
    peer.accept(properties=properties)
    return client, peer


def _durable(version: int) -> tuple[ClientProtocol, Peer]:
    client = ClientProtocol(version, "c", clean_start=False)
    peer = Peer(client)
    peer.accept()
    return client, peer


both = pytest.mark.parametrize("version", [4, 5])


@both
def test_connect_says_what_it_was_given(version: int) -> None:
    will = Will("w", b"bye", 1, True)
    client = ClientProtocol(
        version, "c", clean_start=False, keep_alive=7, username="u", password=b"p", will=will
    )
    assert client.state == IDLE
    assert client.data_to_send() == b""
    client.connect()
    assert client.state == CONNECTING
    assert Peer(client).sent() == [Connect(version, False, 7, "c", "u", b"p", will)]
    with pytest.raises(UsageError):
        client.connect()


@pytest.mark.spec("MQTT-3.2.2-16")
@pytest.mark.spec("MQTT-3.1.2-21")
def test_the_server_assigns_and_overrides() -> None:
    client = ClientProtocol(5, "", keep_alive=60)
    peer = Peer(client)
    peer.accept(properties=Properties(assigned_client_identifier="x", server_keep_alive=9))
    assert (client.client_id, client.keep_alive, client.state) == ("x", 9, CONNECTED)
    peer.cut()
    again = peer.accept()
    assert (again.client_id, again.keep_alive) == ("x", 60)


@both
def test_refused(version: int) -> None:
    client = ClientProtocol(version, "c")
    client.connect()
    reason, text = (5, "Not authorized") if version == 4 else (0x87, "Not authorized")
    assert Peer(client).say(Connack(False, reason)) == [Refused(reason, text, EMPTY)]
    assert client.state == IDLE


@both
def test_qos_0_goes_out_at_once_and_only_with_a_connection(version: int) -> None:
    client, peer = _connected(version)
    assert client.publish("a", b"x", 0, True) == 0
    assert peer.sent() == [Publish("a", b"x", 0, True)]
    peer.cut()
    with pytest.raises(UsageError):
        client.publish("a", b"x")


@both
@pytest.mark.spec("MQTT-4.3.2-1")
def test_qos_1(version: int) -> None:
    client, peer = _connected(version)
    handle = client.publish("a", b"x", 1)
    assert peer.sent() == [Publish("a", b"x", 1, packet_id=1)]
    assert client.unsettled_count == 1
    assert peer.say(Ack(p.PUBACK, 1)) == [Published(handle, 0, EMPTY)]
    assert client.unsettled_count == 0
    assert peer.say(Ack(p.PUBACK, 1)) == []  # a stray one is ignored


@both
@pytest.mark.spec("MQTT-4.3.3-1")
def test_qos_2(version: int) -> None:
    client, peer = _connected(version)
    handle = client.publish("a", b"x", 2)
    assert peer.sent() == [Publish("a", b"x", 2, packet_id=1)]
    assert peer.say(Ack(p.PUBREC, 1)) == []
    assert peer.sent() == [Ack(p.PUBREL, 1)]
    assert peer.say(Ack(p.PUBREC, 1)) == []  # repeated: released again
    assert peer.sent() == [Ack(p.PUBREL, 1)]
    assert peer.say(Ack(p.PUBCOMP, 1)) == [Published(handle, 0, EMPTY)]
    assert peer.say(Ack(p.PUBCOMP, 1)) == []


@pytest.mark.spec("MQTT-4.3.3-4")
def test_a_failing_pubrec_ends_the_exchange() -> None:
    client, peer = _connected()
    handle = client.publish("a", b"x", 2)
    peer.sent()
    why = Properties(reason_string="full")
    assert peer.say(Ack(p.PUBREC, 1, 0x97, why)) == [Published(handle, 0x97, why)]
    assert peer.sent() == []


@both
def test_a_stray_pubrec_is_answered(version: int) -> None:
    _, peer = _connected(version)
    assert peer.say(Ack(p.PUBREC, 9)) == []
    assert peer.sent() == [Ack(p.PUBREL, 9, 0x92 if version == 5 else 0)]


@pytest.mark.parametrize(
    ("qos", "kind"), [(2, p.PUBACK), (1, p.PUBREC), (1, p.PUBCOMP), (2, p.PUBCOMP)]
)
def test_an_acknowledgement_that_does_not_fit(qos: int, kind: int) -> None:
    client, peer = _connected()
    client.publish("a", b"x", qos)
    (event,) = peer.say(Ack(kind, 1))
    assert isinstance(event, Failed)
    assert event.error.reason_code == 0x82
    assert client.unsettled_count == 1


@pytest.mark.spec("MQTT-3.3.4-7")
def test_the_window_is_the_server_s_receive_maximum() -> None:
    client, peer = _connected(properties=Properties(receive_maximum=2))
    handles = [client.publish("a", b"%d" % n, 1 + n % 2) for n in range(5)]
    assert [(q.payload, q.packet_id) for q in peer.sent() if isinstance(q, Publish)] == [
        (b"0", 1),
        (b"1", 2),
    ]
    assert peer.say(Ack(p.PUBREC, 2)) == []  # still takes its place
    assert peer.sent() == [Ack(p.PUBREL, 2)]
    assert peer.say(Ack(p.PUBCOMP, 2)) == [Published(handles[1], 0, EMPTY)]
    assert [(q.payload, q.packet_id) for q in peer.sent() if isinstance(q, Publish)] == [(b"2", 3)]
    assert peer.say(Ack(p.PUBACK, 3), Ack(p.PUBACK, 1)) == [
        Published(handles[2], 0, EMPTY),
        Published(handles[0], 0, EMPTY),
    ]
    assert [(q.payload, q.packet_id) for q in peer.sent() if isinstance(q, Publish)] == [
        (b"3", 4),
        (b"4", 5),
    ]


def test_our_own_window_is_a_bound_too() -> None:
    client = ClientProtocol(4, "c", inflight_max=1)
    peer = Peer(client)
    peer.accept()
    client.publish("a", b"0", 1)
    client.publish("a", b"1", 1)
    assert len(peer.sent()) == 1


@pytest.mark.slow
@pytest.mark.spec("MQTT-2.2.1-3")
def test_packet_identifiers_wrap_and_skip_those_in_use() -> None:
    client, peer = _connected(4)
    slow = client.publish("slow", b"", 1)
    for number in range(65_534):
        client.publish("a", b"", 1)
        assert client.receive(encode(Ack(p.PUBACK, number + 2), 4)) != []
    client.data_to_send()
    peer.decoder = Decoder(server_side=True, packet_size_max=1000)
    peer.decoder.feed(encode(Connect(4, True, 0, "c"), 4))
    client.publish("a", b"", 1)
    assert [q.packet_id for q in peer.sent() if isinstance(q, Publish)] == [2]
    assert peer.say(Ack(p.PUBACK, 1)) == [Published(slow, 0, EMPTY)]


@both
@pytest.mark.spec("MQTT-4.4.0-1")
@pytest.mark.spec("MQTT-4.6.0-1")
def test_a_resumed_session_resends_in_order_with_dup(version: int) -> None:
    client, peer = _durable(version)
    handles = [client.publish("a", b"%d" % n, qos) for n, qos in enumerate((1, 2, 2, 1))]
    peer.sent()
    peer.say(Ack(p.PUBREC, 2), Ack(p.PUBACK, 4))
    peer.cut()
    late = client.publish("a", b"late", 1)
    assert client.data_to_send() == b""
    peer.accept(session_present=True)
    assert peer.sent() == [
        Publish("a", b"0", 1, dup=True, packet_id=1),
        Ack(p.PUBREL, 2),
        Publish("a", b"2", 2, dup=True, packet_id=3),
        Publish("a", b"late", 1, packet_id=5),
    ]
    events = peer.say(Ack(p.PUBACK, 1), Ack(p.PUBCOMP, 2), Ack(p.PUBREC, 3), Ack(p.PUBACK, 5))
    assert [e.handle for e in events if isinstance(e, Published)] == [handles[0], handles[1], late]
    assert client.unsettled_count == 1


@pytest.mark.spec("MQTT-3.2.2-5")
def test_a_lost_session_publishes_anew_what_the_server_had_not_taken() -> None:
    client, peer = _durable(5)
    first = client.publish("a", b"0", 2)
    second = client.publish("a", b"1", 2)
    peer.sent()
    peer.say(Ack(p.PUBREC, 1))
    peer.cut()
    client.connect()
    client.data_to_send()
    assert peer.say(Connack(False, 0)) == [Connected(False, EMPTY), Published(first, 0, EMPTY)]
    peer.decoder = Decoder(server_side=True, packet_size_max=1000)
    peer.decoder.feed(encode(Connect(5, True, 0, "c"), 5))
    assert peer.sent() == [Publish("a", b"1", 2, packet_id=3)]
    peer.say(Ack(p.PUBREC, 3))
    assert peer.say(Ack(p.PUBCOMP, 3)) == [Published(second, 0, EMPTY)]


def test_a_resumed_window_may_be_smaller() -> None:
    client, peer = _durable(5)
    for n in range(3):
        client.publish("a", b"%d" % n, 1)
    peer.sent()
    peer.cut()
    peer.accept(session_present=True, properties=Properties(receive_maximum=1))
    assert [q.packet_id for q in peer.sent() if isinstance(q, Publish)] == [1]
    # The server acknowledges from before the cut what has not gone out again yet.
    peer.say(Ack(p.PUBACK, 2))
    assert peer.sent() == []
    peer.say(Ack(p.PUBACK, 1))
    assert [q.packet_id for q in peer.sent() if isinstance(q, Publish)] == [3]


def test_messages_given_before_the_connection_wait_for_it() -> None:
    client = ClientProtocol(5, "c")
    client.publish("a", b"x", 1)
    peer = Peer(client)
    peer.accept()
    assert peer.sent() == [Publish("a", b"x", 1, packet_id=1)]


@both
def test_inbound_with_automatic_acknowledgements(version: int) -> None:
    client, peer = _connected(version)
    zero, one, two = (
        Publish("a", b"0"),
        Publish("a", b"1", 1, packet_id=1),
        Publish("a", b"2", 2, packet_id=1),
    )
    assert peer.say(zero) == [Received(zero)]
    assert peer.sent() == []
    assert peer.say(one) == [Received(one)]
    assert peer.sent() == [Ack(p.PUBACK, 1)]
    assert peer.say(two) == [Received(two)]
    assert peer.sent() == [Ack(p.PUBREC, 1)]
    assert peer.say(Publish("a", b"2", 2, dup=True, packet_id=1)) == []
    assert peer.sent() == [Ack(p.PUBREC, 1)]
    assert peer.say(Ack(p.PUBREL, 1)) == []
    assert peer.sent() == [Ack(p.PUBCOMP, 1)]
    assert peer.say(Ack(p.PUBREL, 1)) == []
    assert peer.sent() == [Ack(p.PUBCOMP, 1, 0x92 if version == 5 else 0)]
    assert peer.say(two) == [Received(two)]  # the identifier is free again
    assert client.state == CONNECTED


@both
@pytest.mark.spec("MQTT-4.3.3-10")
def test_inbound_qos_2_across_a_resumed_connection(version: int) -> None:
    _, peer = _durable(version)
    message = Publish("a", b"2", 2, packet_id=7)
    assert peer.say(message) == [Received(message)]
    peer.cut()
    peer.accept(session_present=True)
    assert peer.say(Publish("a", b"2", 2, dup=True, packet_id=7)) == []
    assert peer.sent() == [Ack(p.PUBREC, 7)]
    peer.cut()
    peer.accept(session_present=False)
    assert peer.say(message) == [Received(message)]


def test_manual_acknowledgements() -> None:
    client = ClientProtocol(5, "c", clean_start=False, manual_acks=True)
    peer = Peer(client)
    peer.accept()
    one, two = Publish("a", b"", 1, packet_id=1), Publish("a", b"", 2, packet_id=2)
    assert peer.say(one, two) == [Received(one), Received(two)]
    assert peer.say(Publish("a", b"", 2, dup=True, packet_id=2)) == []
    assert peer.sent() == []
    assert client.ack(two)
    assert client.ack(one, 0x80)
    assert not client.ack(one)
    assert peer.sent() == [Ack(p.PUBREC, 2), Ack(p.PUBACK, 1, 0x80)]
    refused = Publish("a", b"", 2, packet_id=3)
    peer.say(refused)
    assert client.ack(refused, 0x83)
    peer.sent()
    assert peer.say(refused) == [Received(refused)]  # the exchange had ended
    peer.cut()
    assert not client.ack(refused)
    peer.accept(session_present=True)
    again = Publish("a", b"", 2, dup=True, packet_id=3)
    assert peer.say(again) == [Received(again)]


@pytest.mark.spec("MQTT-3.3.4-9")
def test_a_server_that_ignores_our_receive_maximum() -> None:
    client = ClientProtocol(5, "c", manual_acks=True, properties=Properties(receive_maximum=1))
    peer = Peer(client)
    peer.accept()
    peer.say(Publish("a", b"", 1, packet_id=1))
    (event,) = peer.say(Publish("a", b"", 1, packet_id=2))
    assert isinstance(event, Failed)
    assert peer.sent() == [p.Disconnect(0x93)]
    assert client.state == IDLE


def test_topic_aliases_both_ways() -> None:
    client = ClientProtocol(
        5, "c", clean_start=False, properties=Properties(topic_alias_maximum=1), topic_aliases=True
    )
    peer = Peer(client)
    peer.accept(properties=Properties(topic_alias_maximum=1))
    for _ in range(2):
        client.publish("a", b"", 1)
    assert peer.sent() == [
        Publish("a", b"", 1, packet_id=1, topic_alias=1),
        Publish("", b"", 1, packet_id=2, topic_alias=1),
    ]
    (first,) = peer.say(Publish("t", b"", topic_alias=1))
    (second,) = peer.say(Publish("", b"", topic_alias=1))
    assert isinstance(first, Received)
    assert isinstance(second, Received)
    assert (first.publish.topic, second.publish.topic) == ("t", "t")
    peer.cut()
    peer.accept(session_present=True, properties=Properties(topic_alias_maximum=1))
    assert peer.sent() == [  # aliases end with the connection
        Publish("a", b"", 1, dup=True, packet_id=1, topic_alias=1),
        Publish("", b"", 1, dup=True, packet_id=2, topic_alias=1),
    ]
    (event,) = peer.say(Publish("", b"", topic_alias=1))
    assert isinstance(event, Failed)
    assert event.error.reason_code == 0x82


@both
def test_subscribe_and_unsubscribe(version: int) -> None:
    client, peer = _connected(version)
    client.publish("a", b"", 1)
    subscribe = client.subscribe([SubscribeFilter("a/#", 1)])
    unsubscribe = client.unsubscribe(["a/#"])
    assert [packet.kind for packet in peer.sent()] == [p.PUBLISH, p.SUBSCRIBE, p.UNSUBSCRIBE]
    assert len({1, subscribe, unsubscribe}) == 3
    reasons = [0] if version == 5 else []
    assert peer.say(p.Suback(subscribe, [1]), p.Unsuback(unsubscribe, reasons)) == [
        Subscribed(subscribe, [1], EMPTY),
        Unsubscribed(unsubscribe, reasons, EMPTY),
    ]
    assert peer.say(p.Suback(subscribe, [1]), p.Unsuback(unsubscribe, reasons)) == []


def test_properties_of_a_message_and_of_a_subscription() -> None:
    client, peer = _connected()
    properties = Properties(
        message_expiry_interval=5, content_type="t", user_properties=(("k", "v"),)
    )
    client.publish("a", b"", 0, False, properties)
    client.subscribe([SubscribeFilter("b")], Properties(subscription_identifiers=(3,)))
    publish, subscribe = peer.sent()
    assert publish == Publish("a", b"", expiry_s=5, forward=bytes.fromhex("030001742600016b000176"))
    assert isinstance(subscribe, p.Subscribe)
    assert subscribe.properties == Properties(subscription_identifiers=(3,))


@pytest.mark.parametrize(
    ("server", "qos", "retain", "size", "reason"),
    [
        pytest.param(
            Properties(maximum_qos=1), 2, False, 1, 0x9B, marks=pytest.mark.spec("MQTT-3.2.2-11")
        ),
        pytest.param(
            Properties(retain_available=0),
            0,
            True,
            1,
            0x9A,
            marks=pytest.mark.spec("MQTT-3.2.2-14"),
        ),
        pytest.param(
            Properties(maximum_packet_size=50),
            1,
            False,
            50,
            0x95,
            marks=pytest.mark.spec("MQTT-3.2.2-15"),
        ),
    ],
)
def test_what_the_server_does_not_take(
    server: Properties, qos: int, retain: bool, size: int, reason: int
) -> None:
    client, peer = _connected(properties=server)
    with pytest.raises(MqttError) as caught:
        client.publish("a", b"x" * size, qos, retain)
    assert caught.value.reason_code == reason
    assert peer.sent() == []
    if qos:
        early = ClientProtocol(5, "c")
        handle = early.publish("a", b"x" * size, qos, retain)
        early.connect()
        other = Peer(early)
        other.sent()
        connected, published = other.say(Connack(False, 0, server))
        assert isinstance(connected, Connected)
        assert isinstance(published, Published)
        assert (published.handle, published.reason) == (handle, reason)
        assert other.sent() == []
        assert early.unsettled_count == 0


def test_a_packet_just_within_the_server_s_limit_goes_out() -> None:
    for topic_aliases in (False, True):
        client = ClientProtocol(5, "c", topic_aliases=topic_aliases)
        peer = Peer(client)
        peer.accept(properties=Properties(maximum_packet_size=50, topic_alias_maximum=1))
        client.publish("a", b"x" * 42, 1)
        assert len(peer.client.data_to_send()) == 50  # near the limit, without an alias
        with pytest.raises(MqttError):
            client.publish("a", b"x" * 43, 1)


@both
def test_ping(version: int) -> None:
    client, peer = _connected(version)
    client.ping()
    assert peer.sent() == [p.Pingreq()]
    assert peer.say(p.Pingresp()) == [Ponged()]


@both
def test_disconnect(version: int) -> None:
    client, peer = _connected(version)
    client.disconnect(4)
    assert peer.sent() == [p.Disconnect(4 if version == 5 else 0)]
    assert client.state == IDLE
    assert peer.say(p.Pingresp()) == []
    client.disconnect()
    assert peer.sent() == []


def test_the_server_disconnects() -> None:
    client, peer = _connected()
    late = Publish("a", b"", 1, packet_id=1)
    events = client.receive(encode(p.Disconnect(0x8E), 5) + encode(late, 5))
    assert events == [Disconnected(0x8E, "Session taken over", EMPTY)]
    assert client.state == IDLE
    assert peer.sent() == []


@pytest.mark.parametrize(
    "packet",
    [
        Connack(False, 0),  # a second one
        Auth(0x18, Properties(authentication_method="M")),
        Publish("", b"", topic_alias=1),
    ],
)
def test_a_server_that_breaks_the_protocol(packet: Packet) -> None:
    client, peer = _connected()
    (event,) = peer.say(packet)
    assert isinstance(event, Failed)
    (answer,) = peer.sent()
    assert isinstance(answer, p.Disconnect)
    assert answer.reason == event.error.reason_code
    assert client.state == IDLE


@both
def test_malformed_bytes_from_the_server(version: int) -> None:
    client, peer = _connected(version)
    (event,) = client.receive(b"\xd0\x00\xd1\x00")[1:]
    assert isinstance(event, Failed)
    assert event.error.reason_code == 0x81
    assert peer.sent() == ([p.Disconnect(0x81)] if version == 5 else [])


def test_a_server_that_does_not_speak_5_0() -> None:
    client = ClientProtocol(5, "c")
    client.connect()
    peer = Peer(client)
    peer.sent()
    (event,) = client.receive(b"\x20\x02\x00\x01")
    assert isinstance(event, Failed)
    assert event.error.reason_code == 0x84
    assert peer.sent() == [p.Disconnect(0x82)]


@both
def test_a_client_may_leave_before_the_server_has_answered(version: int) -> None:
    client = ClientProtocol(version, "c")
    client.connect()
    client.disconnect()
    connect, disconnect = Peer(client).sent()
    assert isinstance(connect, Connect)
    assert disconnect == p.Disconnect()
    assert client.state == IDLE


@both
@pytest.mark.spec("MQTT-3.2.0-1")
def test_the_first_packet_must_be_connack(version: int) -> None:
    client = ClientProtocol(version, "c")
    client.connect()
    (event,) = Peer(client).say(p.Pingresp())
    assert isinstance(event, Failed)
    assert event.error.reason_code == 0x82


@pytest.mark.spec("MQTT-3.2.2-2")
def test_a_session_despite_clean_start() -> None:
    client = ClientProtocol(5, "c", clean_start=True)
    client.connect()
    (event,) = Peer(client).say(Connack(True, 0))
    assert isinstance(event, Failed)


def test_clean_start_can_change_with_the_next_connection() -> None:
    client, peer = _connected()
    peer.cut()
    client.connect(clean_start=False)
    peer.decoder = Decoder(server_side=True, packet_size_max=1000)
    (connect,) = peer.sent()
    assert isinstance(connect, Connect)
    assert not connect.clean_start


@pytest.mark.parametrize(("topic", "qos"), [("", 1), ("a/+", 1), ("#", 0), ("a\0", 1), ("a", 3)])
def test_what_is_not_a_message(topic: str, qos: int) -> None:
    client, _ = _connected()
    with pytest.raises(UsageError):
        client.publish(topic, b"", qos)
    assert client.unsettled_count == 0


def test_requests_need_a_connection() -> None:
    client = ClientProtocol(5, "c")
    for request in (
        client.ping,
        client.reauthenticate,
        lambda: client.subscribe([SubscribeFilter("a")]),
        lambda: client.unsubscribe(["a"]),
    ):
        with pytest.raises(UsageError):
            request()
    client.disconnect()
    assert client.data_to_send() == b""


class Echo:
    """An authentication method of two steps that can refuse the server."""

    method = "ECHO"

    def __init__(self) -> None:
        self.finished: list[bytes | None] = []

    def start(self) -> bytes | None:
        return b"hello"

    def step(self, data: bytes) -> bytes | None:
        return data[::-1]

    def finish(self, data: bytes | None) -> None:
        self.finished.append(data)
        if data == b"forged":
            raise ProtocolViolation("the server's proof is wrong")


def _auth(reason: int, data: bytes | None) -> Auth:
    return Auth(reason, Properties(authentication_method="ECHO", authentication_data=data))


@pytest.mark.spec("MQTT-4.12.0-3")
def test_enhanced_authentication_and_again() -> None:
    echo = Echo()
    client = ClientProtocol(5, "c", authenticator=echo)
    peer = Peer(client)
    client.connect()
    (connect,) = peer.sent()
    assert isinstance(connect, Connect)
    assert connect.properties.authentication_method == "ECHO"
    assert connect.properties.authentication_data == b"hello"
    assert peer.say(_auth(0x18, b"abc")) == []
    assert peer.sent() == [_auth(0x18, b"cba")]
    done = Properties(authentication_method="ECHO", authentication_data=b"ok")
    assert peer.say(Connack(False, 0, done)) == [Connected(False, done)]
    assert echo.finished == [b"ok"]
    client.reauthenticate()
    assert peer.sent() == [_auth(0x19, b"hello")]
    assert peer.say(_auth(0x18, b"xy")) == []
    assert peer.sent() == [_auth(0x18, b"yx")]
    assert peer.say(_auth(0, b"ok2")) == [Reauthenticated(_auth(0, b"ok2").properties)]
    assert echo.finished == [b"ok", b"ok2"]


def test_enhanced_authentication_that_goes_wrong() -> None:
    for packet in (
        Connack(False, 0, Properties(authentication_method="ECHO", authentication_data=b"forged")),
        Auth(0x18, Properties(authentication_method="OTHER")),
        _auth(0, b"too early"),
    ):
        client = ClientProtocol(5, "c", authenticator=Echo())
        client.connect()
        (event,) = Peer(client).say(packet)
        assert isinstance(event, Failed)
        assert client.state == IDLE
    client, _ = _connected()
    with pytest.raises(UsageError):
        client.reauthenticate()
