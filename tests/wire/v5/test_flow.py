"""MQTT 5.0: Receive Maximum and Maximum Packet Size, in both directions.

Sections 3.1.2.11, 3.2.2.3 and 4.9. Mosquitto 2.0 sends one message too many after an
acknowledgement [MQTT-3.3.4-9], repeats more than a smaller window on resume, and packets one
byte larger than the client's limit [MQTT-3.1.2-24], which also keep their place in the window.
"""

from __future__ import annotations

import pytest

from tests.wire.harness import Broker, Options
from tests.wire.packets import V5, Kind, Prop, Reason
from tests.wire.peer import Peer

BROKER_OPTIONS = Options(
    settings={"mqtt.receive_maximum": "10", "mqtt.packet_size_max": "20000"},
    mosquitto=("max_inflight_messages 10", "max_packet_size 20000"),
)


def limited(broker: Broker, name: str, *properties: tuple[int, int]) -> tuple[Peer, Peer]:
    """A subscriber at QoS 2 with these CONNECT properties, and a publisher."""
    subscriber = broker.connect(f"{name}-subscriber", expiry=60, properties=properties)
    subscriber.subscribe((f"{name}/t", 2))
    return subscriber, broker.connect(name)


# --- Receive Maximum of the client --------------------------------------------------------


@pytest.mark.spec("MQTT-3.3.4-9")
@pytest.mark.spec("MQTT-4.9.0-1")
@pytest.mark.parametrize("window", [1, 2, 5])
@pytest.mark.parametrize("qos", [1, 2])
def test_no_more_than_the_receive_maximum(broker: Broker, name: str, window: int, qos: int) -> None:
    """Then each completed exchange lets one more come, in order."""
    subscriber, publisher = limited(broker, name, (Prop.RECEIVE_MAX, window))
    count = window + 4
    for index in range(count):
        publisher.publish(f"{name}/t", b"%d" % index, qos=qos)
    open_ids = [
        subscriber.expect_publish(f"{name}/t", b"%d" % index, qos=qos).packet_id
        for index in range(window)
    ]
    subscriber.expect_nothing()
    for index in range(window, count):
        packet_id = open_ids.pop(0)
        if qos == 1:
            subscriber.send(V5.puback(packet_id))
        else:
            subscriber.send(V5.pubrec(packet_id))
            subscriber.expect_packet(Kind.PUBREL, packet_id=packet_id)
            subscriber.expect_nothing()  # 4.9: the quota comes back with PUBCOMP, not PUBREC
            subscriber.send(V5.pubcomp(packet_id))
        open_ids.append(subscriber.expect_publish(f"{name}/t", b"%d" % index, qos=qos).packet_id)
        subscriber.expect_nothing()


@pytest.mark.spec("MQTT-3.3.4-10")
@pytest.mark.spec("MQTT-4.9.0-2")
@pytest.mark.spec("MQTT-4.9.0-3")
def test_qos0_flows_past_a_full_window(broker: Broker, name: str) -> None:
    """Other packets, QoS 0 among them, are not held back by the quota."""
    subscriber, publisher = limited(broker, name, (Prop.RECEIVE_MAX, 1))
    publisher.publish(f"{name}/t", b"1", qos=1)
    publisher.publish(f"{name}/t", b"2", qos=1)
    first = subscriber.expect_publish(f"{name}/t", b"1", qos=1)
    publisher.publish(f"{name}/t", b"zero", qos=0)
    subscriber.expect_publish(f"{name}/t", b"zero", qos=0)
    subscriber.subscribe((f"{name}/other", 0))
    subscriber.unsubscribe(f"{name}/other")
    subscriber.publish(f"{name}/other", b"own", qos=2)
    subscriber.expect_nothing()
    subscriber.send(V5.puback(first.packet_id))
    subscriber.expect_publish(f"{name}/t", b"2", qos=1)


def test_quota_by_negative_pubrec(broker: Broker, name: str) -> None:
    """4.9: a PUBREC with an error code gives its quota back too."""
    subscriber, publisher = limited(broker, name, (Prop.RECEIVE_MAX, 1))
    for payload in (b"1", b"2"):
        publisher.publish(f"{name}/t", payload, qos=2)
    first = subscriber.expect_publish(f"{name}/t", b"1")
    subscriber.send(V5.pubrec(first.packet_id, 0x83))
    subscriber.expect_publish(f"{name}/t", b"2")


def test_window_of_the_next_connection(broker: Broker, name: str) -> None:
    """Receive Maximum is no part of the session: each connection brings its own."""
    subscriber, publisher = limited(broker, name, (Prop.RECEIVE_MAX, 5))
    for index in range(5):
        publisher.publish(f"{name}/t", b"%d" % index, qos=1)
        subscriber.expect_publish(f"{name}/t", b"%d" % index)
    subscriber.abort()
    again = broker.connect(
        f"{name}-subscriber",
        clean=False,
        expiry=60,
        properties=[(Prop.RECEIVE_MAX, 2)],
        session_present=True,
    )
    first = again.expect_publish(f"{name}/t", b"0", dup=True)
    second = again.expect_publish(f"{name}/t", b"1", dup=True)
    again.expect_nothing()
    again.send(V5.puback(first.packet_id), V5.puback(second.packet_id))
    again.expect_publish(f"{name}/t", b"2", dup=True)
    again.expect_publish(f"{name}/t", b"3", dup=True)
    again.expect_nothing()


def test_owed_pubrels_count_in_the_window(broker: Broker, name: str) -> None:
    """4.9: an exchange holds its quota until PUBCOMP, on the next connection as well."""
    subscriber, publisher = limited(broker, name, (Prop.RECEIVE_MAX, 1))
    publisher.publish(f"{name}/t", b"1", qos=2)
    publisher.publish(f"{name}/t", b"2", qos=2)
    first = subscriber.expect_publish(f"{name}/t", b"1")
    subscriber.send(V5.pubrec(first.packet_id))
    subscriber.expect_packet(Kind.PUBREL, packet_id=first.packet_id)
    subscriber.abort()
    again = broker.connect(
        f"{name}-subscriber",
        clean=False,
        expiry=60,
        properties=[(Prop.RECEIVE_MAX, 1)],
        session_present=True,
    )
    again.expect_packet(Kind.PUBREL, packet_id=first.packet_id)
    again.expect_nothing()
    again.send(V5.pubcomp(first.packet_id))
    again.expect_publish(f"{name}/t", b"2", dup=False)


@pytest.mark.trap(30)
def test_window_of_one_drains_a_backlog(broker: Broker, name: str) -> None:
    """A client that sends each PUBACK alone gets everything, in order."""
    subscriber, publisher = limited(broker, name)
    subscriber.disconnect()
    for index in range(60):
        publisher.publish(f"{name}/t", b"%d" % index, qos=1)
    again = broker.connect(
        f"{name}-subscriber", clean=False, expiry=60, properties=[(Prop.RECEIVE_MAX, 1)]
    )
    for index in range(60):
        again.receive_publish(f"{name}/t", b"%d" % index, qos=1)
    again.expect_nothing()


# --- Receive Maximum of the server --------------------------------------------------------


def test_server_states_its_receive_maximum(broker: Broker, name: str) -> None:
    assert broker.connect(name).connack.get(Prop.RECEIVE_MAX) == 10


@pytest.mark.spec("MQTT-3.3.4-7")
def test_client_may_fill_the_window(broker: Broker, name: str) -> None:
    peer = broker.connect(name)
    for _ in range(3):
        ids = range(1, 11)
        peer.send(*(V5.publish(f"{name}/t", b"x", qos=2, packet_id=i) for i in ids))
        for packet_id in ids:
            peer.expect_packet(Kind.PUBREC, packet_id=packet_id)
        peer.send(*(V5.pubrel(i) for i in ids))
        for packet_id in ids:
            peer.expect_packet(Kind.PUBCOMP, packet_id=packet_id, reason=0)


@pytest.mark.spec("MQTT-3.3.4-8")
@pytest.mark.spec("MQTT-4.9.0-1")
def test_client_exceeds_the_receive_maximum(broker: Broker, name: str) -> None:
    """3.3.4: DISCONNECT 0x93. QoS 2 without PUBREL keeps its quota for certain.

    Mosquitto 2.0 counts what it has not answered only and lets the eleventh pass.
    """
    peer = broker.connect(name)
    for packet_id in range(1, 11):
        peer.send(V5.publish(f"{name}/t", b"x", qos=2, packet_id=packet_id))
        peer.expect_packet(Kind.PUBREC, packet_id=packet_id)
    peer.send(V5.publish(f"{name}/t", b"x", qos=2, packet_id=11))
    peer.expect_refusal(Reason.RECEIVE_MAX_EXCEEDED)


def test_duplicate_does_not_exceed_the_receive_maximum(broker: Broker, name: str) -> None:
    """A message sent again is the same exchange and takes no second place."""
    peer = broker.connect(name, expiry=60)
    for packet_id in range(1, 11):
        peer.send(V5.publish(f"{name}/t", b"x", qos=2, packet_id=packet_id))
        peer.expect_packet(Kind.PUBREC, packet_id=packet_id)
    peer.abort()
    again = broker.connect(name, clean=False, expiry=60, session_present=True)
    for packet_id in range(1, 11):
        again.send(V5.publish(f"{name}/t", b"x", qos=2, packet_id=packet_id, dup=True))
        again.expect_packet(Kind.PUBREC, packet_id=packet_id, reason=0)
    again.expect_nothing()


def test_qos1_quota_comes_back_with_the_puback(broker: Broker, name: str) -> None:
    peer = broker.connect(name)
    for packet_id in range(1, 101):
        peer.send(V5.publish(f"{name}/t", b"x", qos=1, packet_id=packet_id))
        if packet_id >= 10:
            peer.expect_packet(Kind.PUBACK, packet_id=packet_id - 9)


def test_qos0_takes_no_quota_of_the_server(broker: Broker, name: str) -> None:
    peer = broker.connect(name)
    for packet_id in range(1, 11):
        peer.send(V5.publish(f"{name}/t", b"x", qos=2, packet_id=packet_id))
    for _ in range(50):
        peer.send(V5.publish(f"{name}/t", b"x"))
    for packet_id in range(1, 11):
        peer.expect_packet(Kind.PUBREC, packet_id=packet_id)
    peer.expect_nothing()


# --- Maximum Packet Size of the client ----------------------------------------------------


@pytest.mark.spec("MQTT-3.1.2-24")
@pytest.mark.spec("MQTT-3.1.2-25")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_larger_messages_are_not_sent(broker: Broker, name: str, qos: int) -> None:
    """The message counts as delivered; smaller ones before and after come."""
    subscriber, publisher = limited(broker, name, (Prop.MAX_PACKET_SIZE, 100))
    publisher.publish(f"{name}/t", b"before", qos=qos)
    publisher.publish(f"{name}/t", b"x" * 200, qos=qos)
    publisher.publish(f"{name}/t", b"after", qos=qos)
    subscriber.receive_publish(f"{name}/t", b"before", qos=qos)
    subscriber.receive_publish(f"{name}/t", b"after", qos=qos)
    subscriber.expect_nothing()


@pytest.mark.spec("MQTT-3.1.2-24")
@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("size", [64, 129, 131, 200])
def test_packet_size_limit_is_exact(broker: Broker, name: str, qos: int, size: int) -> None:
    """2.1.4: the size counts all bytes of the packet; one that just fits is sent."""
    subscriber, publisher = limited(broker, name, (Prop.MAX_PACKET_SIZE, size))
    empty = len(V5.publish(f"{name}/t", b"", qos=qos))
    room = size - empty - (1 if size > 129 else 0)
    fitting = b"x" * room
    assert len(V5.publish(f"{name}/t", fitting, qos=qos)) == size
    publisher.publish(f"{name}/t", fitting + b"y", qos=qos)
    publisher.publish(f"{name}/t", fitting, qos=qos)
    found = subscriber.receive_publish(f"{name}/t", fitting, qos=qos)
    assert len(found.raw) == size


def test_limit_of_one_does_not_hurt_another(broker: Broker, name: str) -> None:
    small = broker.connect(f"{name}-small", properties=[(Prop.MAX_PACKET_SIZE, 60)])
    small.subscribe((f"{name}/t", 1))
    large = broker.connect(f"{name}-large")
    large.subscribe((f"{name}/t", 1))
    publisher = broker.connect(name)
    publisher.publish(f"{name}/t", b"x" * 500, qos=1)
    large.receive_publish(f"{name}/t", b"x" * 500, qos=1)
    publisher.publish(f"{name}/t", b"small", qos=1)
    small.receive_publish(f"{name}/t", b"small", qos=1)


@pytest.mark.spec("MQTT-3.1.2-25")
def test_larger_message_takes_no_place_in_the_window(broker: Broker, name: str) -> None:
    """[MQTT-3.1.2-25]: as if it had been sent and completed."""
    subscriber, publisher = limited(
        broker, name, (Prop.MAX_PACKET_SIZE, 100), (Prop.RECEIVE_MAX, 1)
    )
    for index in range(5):
        publisher.publish(f"{name}/t", b"x" * 200, qos=1)
        publisher.publish(f"{name}/t", b"%d" % index, qos=1)
    for index in range(5):
        subscriber.receive_publish(f"{name}/t", b"%d" % index, qos=1)


def test_larger_messages_of_a_backlog_are_skipped(broker: Broker, name: str) -> None:
    """A smaller limit at the next connection must not stop the queue."""
    subscriber, publisher = limited(broker, name)
    subscriber.disconnect()
    publisher.publish(f"{name}/t", b"x" * 500, qos=1)
    publisher.publish(f"{name}/t", b"small", qos=1)
    again = broker.connect(
        f"{name}-subscriber",
        clean=False,
        expiry=60,
        properties=[(Prop.MAX_PACKET_SIZE, 100)],
        session_present=True,
    )
    again.receive_publish(f"{name}/t", b"small", qos=1)
    again.expect_nothing()


def test_larger_retained_message_is_not_sent(broker: Broker, name: str) -> None:
    publisher = broker.connect(name)
    publisher.publish(f"{name}/large", b"x" * 500, qos=1, retain=True)
    publisher.publish(f"{name}/small", b"x", qos=1, retain=True)
    subscriber = broker.connect(f"{name}-subscriber", properties=[(Prop.MAX_PACKET_SIZE, 100)])
    subscriber.subscribe((f"{name}/+", 1))
    subscriber.receive_publish(f"{name}/small", b"x", qos=1, retain=True)
    subscriber.expect_nothing()


def test_user_properties_count_in_the_size(broker: Broker, name: str) -> None:
    subscriber, publisher = limited(broker, name, (Prop.MAX_PACKET_SIZE, 100))
    publisher.publish(f"{name}/t", b"x", qos=1, properties=[(Prop.USER, ("k" * 60, "v" * 60))])
    publisher.publish(f"{name}/t", b"x", qos=1, properties=[(Prop.USER, ("k", "v"))])
    found = subscriber.receive_publish(f"{name}/t", b"x", qos=1)
    assert found.all(Prop.USER) == [("k", "v")]


@pytest.mark.spec("MQTT-3.2.2-19")
@pytest.mark.spec("MQTT-3.2.2-20")
@pytest.mark.spec("MQTT-3.4.2-2")
@pytest.mark.spec("MQTT-3.4.2-3")
@pytest.mark.spec("MQTT-3.6.2-2")
@pytest.mark.spec("MQTT-3.6.2-3")
@pytest.mark.spec("MQTT-3.7.2-2")
@pytest.mark.spec("MQTT-3.7.2-3")
@pytest.mark.spec("MQTT-3.9.2-1")
@pytest.mark.spec("MQTT-3.9.2-2")
@pytest.mark.spec("MQTT-3.11.2-1")
@pytest.mark.spec("MQTT-3.11.2-2")
@pytest.mark.spec("MQTT-3.14.2-3")
@pytest.mark.spec("MQTT-3.14.2-4")
@pytest.mark.parametrize("limit", [20, 40, 80])
def test_answers_fit_the_packet_size(broker: Broker, name: str, limit: int) -> None:
    """Reason strings and user properties are left out before a limit is exceeded.

    A CONNACK that cannot be made small enough is not sent: the connection is closed then.
    """
    peer = broker.peer()
    peer.send(V5.connect(name, properties=[(Prop.MAX_PACKET_SIZE, limit)]))
    connack = peer.receive()
    if connack is None:
        return
    assert len(connack.raw) <= limit
    peer.send(
        V5.publish(f"{name}/t", b"", qos=1, packet_id=1),
        V5.pubrec(99),
        V5.pubrel(99),
        V5.subscribe(("$share/g", 0), packet_id=2),
        V5.unsubscribe(f"{name}/none", packet_id=3),
        V5.subscribe(("t", 0x80)),
    )
    kinds = []
    while (found := peer.receive()) is not None:
        assert len(found.raw) <= limit
        kinds.append(found.kind)
    assert kinds


# --- Maximum Packet Size of the server ----------------------------------------------------


def test_server_states_its_packet_size(broker: Broker, name: str) -> None:
    assert broker.connect(name).connack.get(Prop.MAX_PACKET_SIZE) == 20_000


@pytest.mark.spec("MQTT-3.2.2-15")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_packet_of_just_the_allowed_size(broker: Broker, name: str, qos: int) -> None:
    peer = broker.connect(name)
    peer.subscribe(f"{name}/t")
    raw = V5.publish(f"{name}/t", b"x" * 19_900, qos=qos)
    payload = b"x" * (19_900 + 20_000 - len(raw))
    assert len(V5.publish(f"{name}/t", payload, qos=qos)) == 20_000
    peer.publish(f"{name}/t", payload, qos=qos)
    peer.receive_publish(f"{name}/t", payload, qos=qos)


@pytest.mark.spec("MQTT-4.13.2-1")
@pytest.mark.spec("MQTT-3.2.2-15")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_larger_packet_is_refused(broker: Broker, name: str, qos: int) -> None:
    """3.2.2.3.6: DISCONNECT with 0x95."""
    peer = broker.connect(name)
    peer.send(V5.publish(f"{name}/t", b"x" * 20_000, qos=qos))
    peer.expect_refusal(Reason.PACKET_TOO_LARGE)


def test_larger_packet_is_refused_by_its_header(broker: Broker, name: str) -> None:
    """The body need not be waited for: the length says it all."""
    peer = broker.connect(name)
    peer.send(b"\x30\xff\xff\xff\x7f")
    peer.expect_refusal(Reason.PACKET_TOO_LARGE)


def test_larger_connect_is_refused(broker: Broker) -> None:
    """3.2.2.2: CONNACK 0x95."""
    peer = broker.peer()
    peer.send(V5.connect("c", properties=[(Prop.USER, ("k", "v" * 30_000))]))
    peer.expect_refused_connect(Reason.PACKET_TOO_LARGE)


def test_larger_subscribe_is_refused(broker: Broker, name: str) -> None:
    peer = broker.connect(name)
    peer.send(V5.subscribe(*((f"{name}/{i:04}", 0) for i in range(2000))))
    peer.expect_refusal(Reason.PACKET_TOO_LARGE)
