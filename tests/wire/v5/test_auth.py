"""MQTT 5.0: authentication, AUTH exchanges and access rules (3.1.3.5, 3.15, 4.12)."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from tests.wire.harness import Broker, Options
from tests.wire.packets import V5, Kind, Prop, Reason, Value, Will
from tests.wire.peer import SUBJECT, Peer
from tests.wire.reader import Packet

BROKER_OPTIONS = Options(
    users={"ada": "correct horse", "bob": "päss wörd"},
    files={
        "acl": "user ada\ntopic readwrite #\ntopic readwrite $SYS/#\n\n"
        "user bob\ntopic readwrite bob/#\ntopic read news/#\ntopic write inbox/+\n\n"
        "pattern readwrite own/%c/#\n"
    },
    settings={
        "auth.allow_anonymous": "never",
        "auth.password_file": "{directory}/users",
        "auth.acl_file": "{directory}/acl",
    },
    mosquitto=(
        "allow_anonymous false",
        "password_file {directory}/users",
        "acl_file {directory}/acl",
    ),
)
METHOD = "SCRAM-SHA-256"
scram = pytest.mark.skipif(SUBJECT != "perdure", reason="Mosquitto has no SCRAM of its own")


def ada(broker: Broker, client_id: str) -> Peer:
    """A client that may do everything."""
    return broker.connect(client_id, username="ada", password="correct horse")


def bob(broker: Broker, client_id: str, *, clean: bool = True, expiry: int = 0) -> Peer:
    """A client with few rights."""
    return broker.connect(
        client_id, clean=clean, expiry=expiry, username="bob", password="päss wörd"
    )


# --- user names and passwords -------------------------------------------------------------


@pytest.mark.parametrize("version", [4, 5])
def test_right_password(broker: Broker, name: str, version: int) -> None:
    peer = broker.connect(name, version=version, username="ada", password="correct horse")
    peer.expect_nothing()


@pytest.mark.spec("MQTT-3.1.4-2")
@pytest.mark.spec("MQTT-3.2.2-8")
@pytest.mark.spec("MQTT-3.2.2-7")
@pytest.mark.parametrize(
    ("username", "password"),
    [
        ("ada", "wrong"),
        ("ada", ""),
        ("ada", "correct horse "),
        ("ADA", "correct horse"),
        ("nobody", "x"),
        ("ada", None),
        (None, "correct horse"),
        (None, None),
        ("", ""),
        ("bob", "correct horse"),
    ],
)
def test_wrong_credentials(
    broker: Broker, name: str, username: str | None, password: str | None
) -> None:
    peer = broker.peer()
    peer.send(V5.connect(name, username=username, password=password))
    peer.expect_refused_connect(Reason.BAD_CREDENTIALS, Reason.NOT_AUTHORIZED)


@pytest.mark.spec("MQTT-3.1.4-6")
def test_nothing_is_processed_before_the_password_is_checked(broker: Broker, name: str) -> None:
    watcher = ada(broker, f"{name}-watcher")
    watcher.subscribe((f"{name}/#", 1))
    peer = broker.peer()
    peer.send(
        V5.connect(name, username="ada", password="wrong"),
        V5.publish(f"{name}/t", b"leaked", qos=1),
    )
    peer.expect_refused_connect(Reason.BAD_CREDENTIALS, Reason.NOT_AUTHORIZED)
    watcher.publish(f"{name}/t", b"control", qos=1)
    watcher.receive_publish(f"{name}/t", b"control", qos=1)


def test_packets_behind_a_good_connect_wait_for_the_check(broker: Broker, name: str) -> None:
    """3.1.4: a client may send before the CONNACK; the order stays."""
    peer = broker.peer()
    peer.send(
        V5.connect(name, username="ada", password="correct horse"),
        V5.subscribe((f"{name}/t", 1), packet_id=3),
        V5.publish(f"{name}/t", b"x", qos=1, packet_id=4),
        V5.pingreq(),
    )
    peer.expect_connack(0)
    peer.take(Kind.SUBACK, 3)
    peer.take(Kind.PUBACK, 4)
    peer.take(Kind.PINGRESP)
    assert peer.take_publish().payload == b"x"


def test_refused_credentials_do_not_take_over(broker: Broker, name: str) -> None:
    first = ada(broker, name)
    second = broker.peer()
    second.send(V5.connect(name, username="ada", password="wrong"))
    second.expect_refused_connect(Reason.BAD_CREDENTIALS, Reason.NOT_AUTHORIZED)
    first.expect_nothing()


# --- access rules -------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [1, 2])
def test_publish_that_is_not_allowed(broker: Broker, name: str, qos: int) -> None:
    """3.4.2.1, 3.5.2.1: 0x87 in the acknowledgement; the connection goes on."""
    watcher = ada(broker, f"{name}-watcher")
    watcher.subscribe((f"news/{name}", 2))
    peer = bob(broker, name)
    peer.send(V5.publish(f"news/{name}", b"no", qos=qos, packet_id=5))
    kind = Kind.PUBACK if qos == 1 else Kind.PUBREC
    peer.expect_packet(kind, packet_id=5, reason=Reason.NOT_AUTHORIZED)
    peer.send(V5.publish(f"bob/{name}", b"yes", qos=qos, packet_id=5))
    assert peer.expect_packet(kind, packet_id=5).reason in (0, 0x10)
    watcher.publish(f"news/{name}", b"control", qos=1)
    watcher.receive_publish(f"news/{name}", b"control", qos=1)


def test_qos0_publish_that_is_not_allowed(broker: Broker, name: str) -> None:
    """There is no acknowledgement: dropped, or DISCONNECT 0x87; never delivered."""
    watcher = ada(broker, f"{name}-watcher")
    watcher.subscribe((f"news/{name}", 2))
    peer = bob(broker, name)
    peer.send(V5.publish(f"news/{name}", b"no"), V5.pingreq())
    found = peer.receive()
    assert found is not None
    assert found.kind is Kind.PINGRESP or found.reason == Reason.NOT_AUTHORIZED
    watcher.publish(f"news/{name}", b"control", qos=1)
    watcher.receive_publish(f"news/{name}", b"control", qos=1)


def test_subscription_that_is_not_allowed(broker: Broker, name: str) -> None:
    """Refused with 0x87, or granted and empty; another filter of the packet is not touched."""
    peer = bob(broker, name)
    peer.send(V5.subscribe((f"secret/{name}", 1), (f"bob/{name}", 1), packet_id=5))
    suback = peer.expect_packet(Kind.SUBACK, packet_id=5)
    assert suback.reasons in ((Reason.NOT_AUTHORIZED, 1), (1, 1))
    publisher = ada(broker, f"{name}-publisher")
    publisher.publish(f"secret/{name}", b"no", qos=1)
    publisher.publish(f"bob/{name}", b"yes", qos=1)
    peer.receive_publish(f"bob/{name}", b"yes", qos=1)


@pytest.mark.trap(54)
def test_delivery_is_checked_message_by_message(broker: Broker, name: str) -> None:
    """A wildcard covers more than may be read: only the allowed part comes."""
    peer = bob(broker, name)
    peer.send(V5.subscribe(("#", 1), packet_id=5))
    peer.take(Kind.SUBACK, 5)
    publisher = ada(broker, f"{name}-publisher")
    for topic in ("secret", "news", "inbox", "bob"):
        publisher.publish(f"{topic}/{name}", b"x", qos=1)
    topics = [message.topic for message in peer.drain() if name in message.topic]
    assert topics in ([f"news/{name}", f"bob/{name}"], [])


@pytest.mark.trap(54)
def test_retained_and_offline_messages_are_checked(broker: Broker, name: str) -> None:
    publisher = ada(broker, f"{name}-publisher")
    publisher.publish(f"secret/{name}", b"no", qos=1, retain=True)
    publisher.publish(f"news/{name}", b"yes", qos=1, retain=True)
    peer = bob(broker, name, expiry=60)
    peer.send(V5.subscribe((f"+/{name}", 1), packet_id=5))
    suback = peer.take(Kind.SUBACK, 5)
    if suback.reasons == (1,):
        peer.receive_publish(f"news/{name}", b"yes", qos=1, retain=True)
        peer.expect_nothing()
        peer.disconnect()
        publisher.publish(f"secret/{name}", b"no", qos=1)
        publisher.publish(f"news/{name}", b"offline", qos=1)
        again = bob(broker, name, clean=False, expiry=60)
        again.receive_publish(f"news/{name}", b"offline", qos=1)
        again.expect_nothing()
    for topic in ("secret", "news"):
        publisher.publish(f"{topic}/{name}", b"", retain=True)


@pytest.mark.parametrize("qos", [0, 1])
def test_will_that_is_not_allowed(broker: Broker, name: str, qos: int) -> None:
    """Refused at CONNECT with 0x87, or accepted and never published."""
    watcher = ada(broker, f"{name}-watcher")
    watcher.subscribe((f"news/{name}", 1))
    peer = broker.peer()
    will = Will(topic=f"news/{name}", payload=b"no", qos=qos)
    peer.send(V5.connect(name, username="bob", password="päss wörd", will=will))
    found = peer.expect_packet(Kind.CONNACK)
    assert found.reason in (0, Reason.NOT_AUTHORIZED)
    peer.close()
    watcher.publish(f"news/{name}", b"control", qos=1)
    watcher.receive_publish(f"news/{name}", b"control", qos=1)


def test_pattern_of_the_client_id(broker: Broker, name: str) -> None:
    peer = bob(broker, name)
    peer.publish(f"own/{name}/t", b"x", qos=1)
    peer.send(V5.publish(f"own/other{name}/t", b"x", qos=1, packet_id=9))
    peer.expect_packet(Kind.PUBACK, packet_id=9, reason=Reason.NOT_AUTHORIZED)


@pytest.mark.parametrize("client_id", ["+", "#", "a/+", "x/y"])
def test_client_id_cannot_widen_a_pattern(broker: Broker, name: str, client_id: str) -> None:
    """`%c` is text: wildcards or slashes in it give no rights."""
    peer = bob(broker, client_id)
    peer.send(V5.publish(f"own/{name}/t", b"x", qos=1, packet_id=9))
    peer.expect_packet(Kind.PUBACK, packet_id=9, reason=Reason.NOT_AUTHORIZED)


# --- enhanced authentication --------------------------------------------------------------


class Scram:
    """The client's side of RFC 7677, on hashlib alone."""

    def __init__(self, user: str, password: str, nonce: str = "rOprNGfwEbeRWgbNEkqO") -> None:
        self.bare = f"n={user},r={nonce}"
        self.first = f"n,,{self.bare}".encode()
        self.password = password
        self.nonce = nonce
        self.signature = b""

    def final(self, challenge: bytes) -> bytes:
        """The proof for the server's challenge."""
        text = challenge.decode()
        fields = dict(part.split("=", 1) for part in text.split(","))
        assert fields["r"].startswith(self.nonce)
        assert fields["r"] != self.nonce
        salted = hashlib.pbkdf2_hmac(
            "sha256", self.password.encode(), base64.b64decode(fields["s"]), int(fields["i"])
        )
        without_proof = f"c=biws,r={fields['r']}"
        message = ",".join([self.bare, text, without_proof]).encode()
        client_key = hmac.digest(salted, b"Client Key", "sha256")
        mask = hmac.digest(hashlib.sha256(client_key).digest(), message, "sha256")
        proof = bytes(one ^ other for one, other in zip(client_key, mask, strict=True))
        self.signature = hmac.digest(
            hmac.digest(salted, b"Server Key", "sha256"), message, "sha256"
        )
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def check(self, data: object) -> None:
        """The server proved that it knows the password too."""
        assert data == b"v=" + base64.b64encode(self.signature)


def begin(broker: Broker, name: str, exchange: Scram) -> tuple[Peer, Packet]:
    """CONNECT with the client's first message, and the broker's AUTH 0x18."""
    peer = broker.peer()
    properties: list[tuple[int, Value]] = [
        (Prop.AUTH_METHOD, METHOD),
        (Prop.AUTH_DATA, exchange.first),
    ]
    peer.send(V5.connect(name, properties=properties))
    challenge = peer.expect_packet(Kind.AUTH, reason=Reason.CONTINUE)
    assert challenge.get(Prop.AUTH_METHOD) == METHOD
    return peer, challenge


def answer(challenge: Packet, exchange: Scram) -> bytes:
    """AUTH 0x18 with the proof."""
    data = challenge.get(Prop.AUTH_DATA)
    assert isinstance(data, bytes)
    proof = exchange.final(data)
    return V5.auth(Reason.CONTINUE, [(Prop.AUTH_METHOD, METHOD), (Prop.AUTH_DATA, proof)])


def connected(broker: Broker, name: str) -> Peer:
    """A client that authenticated by SCRAM."""
    exchange = Scram("ada", "correct horse")
    peer, challenge = begin(broker, name, exchange)
    peer.send(answer(challenge, exchange))
    connack = peer.expect_connack(0)
    assert connack.get(Prop.AUTH_METHOD) == METHOD  # [MQTT-4.12.0-5]
    exchange.check(connack.get(Prop.AUTH_DATA))
    return peer


@pytest.mark.spec("MQTT-3.15.2-1")
@scram
@pytest.mark.spec("MQTT-4.12.0-2")
@pytest.mark.spec("MQTT-4.12.0-3")
@pytest.mark.spec("MQTT-4.12.0-5")
def test_scram(broker: Broker, name: str) -> None:
    peer = connected(broker, name)
    peer.subscribe((f"{name}/t", 1))
    peer.publish(f"{name}/t", b"x", qos=1)
    peer.receive_publish(f"{name}/t", b"x", qos=1)


@scram
@pytest.mark.spec("MQTT-4.12.0-4")
@pytest.mark.parametrize(("user", "password"), [("ada", "wrong"), ("nobody", "x")])
def test_scram_with_a_wrong_password(broker: Broker, name: str, user: str, password: str) -> None:
    """Both fail at the same step, so that nobody learns which users exist."""
    exchange = Scram(user, password)
    peer, challenge = begin(broker, name, exchange)
    peer.send(answer(challenge, exchange))
    peer.expect_refused_connect(Reason.NOT_AUTHORIZED, Reason.BAD_CREDENTIALS)


@pytest.mark.spec("MQTT-4.12.0-1")
@pytest.mark.parametrize("method", ["", "NONE", "scram-sha-256", "SCRAM-SHA-256 ", "x" * 1000])
def test_unknown_method(broker: Broker, name: str, method: str) -> None:
    peer = broker.peer()
    properties: list[tuple[int, Value]] = [
        (Prop.AUTH_METHOD, method),
        (Prop.AUTH_DATA, b"n,,n=ada,r=x"),
    ]
    peer.send(V5.connect(name, properties=properties))
    peer.expect_refused_connect(Reason.BAD_AUTH_METHOD)


@scram
@pytest.mark.parametrize(
    "data", [b"", b"x", b"n,,", b"n,,n=ada", b"y,,n=ada,r=", b"\xff\xfe", b"n,,n=ada,r=x" * 999]
)
def test_scram_with_garbage(broker: Broker, name: str, data: bytes) -> None:
    """Refused, or answered with an empty challenge; never an unhandled error."""
    peer = broker.peer()
    peer.send(V5.connect(name, properties=[(Prop.AUTH_METHOD, METHOD), (Prop.AUTH_DATA, data)]))
    found = peer.receive()
    assert found is not None
    if found.kind is Kind.CONNACK:
        assert found.reason >= 0x80
    else:
        assert found.kind is Kind.AUTH


@scram
@pytest.mark.spec("MQTT-3.1.2-30")
@pytest.mark.parametrize(
    "early",
    [
        pytest.param(V5.publish("t", b"x"), id="publish"),
        pytest.param(V5.subscribe(("t", 0)), id="subscribe"),
        pytest.param(V5.pingreq(), id="pingreq"),
        pytest.param(V5.auth(0x19, [(Prop.AUTH_METHOD, METHOD)]), id="reauthenticate"),
        pytest.param(V5.auth(0x18, [(Prop.AUTH_METHOD, "OTHER")]), id="other-method"),
        pytest.param(V5.auth(0x18), id="no-method"),
    ],
)
def test_other_packets_during_the_exchange(broker: Broker, name: str, early: bytes) -> None:
    """Only AUTH and DISCONNECT may come before the CONNACK."""
    peer, _ = begin(broker, name, Scram("ada", "correct horse"))
    peer.send(early)
    peer.expect_refused_connect(Reason.PROTOCOL_ERROR, Reason.MALFORMED, Reason.BAD_AUTH_METHOD)


@scram
@pytest.mark.parametrize("how", ["disconnect", "close"])
def test_exchange_given_up(broker: Broker, name: str, how: str) -> None:
    """The broker forgets it; the same client id can connect at once."""
    peer, _ = begin(broker, name, Scram("ada", "correct horse"))
    if how == "disconnect":
        peer.send(V5.disconnect())
        peer.expect_closed()
    else:
        peer.close()
    connected(broker, name)


@scram
@pytest.mark.spec("MQTT-4.12.1-1")
def test_reauthentication(broker: Broker, name: str) -> None:
    """4.12.1: AUTH 0x19, then as at the start, and it ends with AUTH 0x00. Others go on."""
    peer = connected(broker, name)
    exchange = Scram("ada", "correct horse", "anotherNonce")
    peer.send(
        V5.auth(0x19, [(Prop.AUTH_METHOD, METHOD), (Prop.AUTH_DATA, exchange.first)]),
        V5.publish(f"{name}/t", b"x", qos=1, packet_id=5),
    )
    challenge = peer.take(Kind.AUTH)
    assert challenge.reason == Reason.CONTINUE
    peer.take(Kind.PUBACK, 5)
    peer.send(answer(challenge, exchange))
    done = peer.expect_packet(Kind.AUTH, reason=0)
    assert done.get(Prop.AUTH_METHOD) == METHOD
    exchange.check(done.get(Prop.AUTH_DATA))
    peer.expect_nothing()


@scram
@pytest.mark.spec("MQTT-4.12.1-2")
def test_reauthentication_that_fails(broker: Broker, name: str) -> None:
    """DISCONNECT with a reason code, then the close."""
    peer = connected(broker, name)
    exchange = Scram("ada", "wrong", "anotherNonce")
    peer.send(V5.auth(0x19, [(Prop.AUTH_METHOD, METHOD), (Prop.AUTH_DATA, exchange.first)]))
    challenge = peer.expect_packet(Kind.AUTH, reason=Reason.CONTINUE)
    peer.send(answer(challenge, exchange))
    peer.expect_refusal(Reason.NOT_AUTHORIZED, Reason.BAD_CREDENTIALS)


@scram
@pytest.mark.spec("MQTT-4.12.1-1")
@pytest.mark.parametrize("method", ["OTHER", ""])
def test_reauthentication_with_another_method(broker: Broker, name: str, method: str) -> None:
    peer = connected(broker, name)
    peer.send(V5.auth(0x19, [(Prop.AUTH_METHOD, method), (Prop.AUTH_DATA, b"x")]))
    peer.expect_refusal(Reason.PROTOCOL_ERROR, Reason.BAD_AUTH_METHOD)


@scram
def test_continue_without_an_exchange(broker: Broker, name: str) -> None:
    peer = connected(broker, name)
    peer.send(V5.auth(0x18, [(Prop.AUTH_METHOD, METHOD), (Prop.AUTH_DATA, b"x")]))
    peer.expect_refusal(Reason.PROTOCOL_ERROR)


@scram
def test_reauthentication_as_another_user(broker: Broker, name: str) -> None:
    """A connection keeps its identity: rights must not change hands."""
    peer = connected(broker, name)
    exchange = Scram("bob", "päss wörd", "anotherNonce")
    peer.send(V5.auth(0x19, [(Prop.AUTH_METHOD, METHOD), (Prop.AUTH_DATA, exchange.first)]))
    found = peer.receive()
    if found is not None and found.kind is Kind.AUTH:
        peer.send(answer(found, exchange))
        found = peer.receive()
    assert found is not None
    assert found.kind is Kind.DISCONNECT
    assert found.reason >= 0x80


@pytest.mark.spec("MQTT-4.12.0-6")
@pytest.mark.spec("MQTT-4.12.0-7")
@pytest.mark.parametrize("reason", [0x00, 0x18, 0x19])
def test_auth_without_a_method_in_connect(broker: Broker, name: str, reason: int) -> None:
    """A client that began without a method must not send AUTH."""
    peer = ada(broker, name)
    peer.send(V5.auth(reason, [(Prop.AUTH_METHOD, METHOD), (Prop.AUTH_DATA, b"x")]))
    peer.expect_refusal(Reason.PROTOCOL_ERROR, Reason.MALFORMED)


@pytest.mark.spec("MQTT-4.12.0-6")
def test_connack_without_a_method_has_none(broker: Broker, name: str) -> None:
    """[MQTT-4.12.0-6]: no AUTH from the server, and no method in its CONNACK."""
    connack = ada(broker, name).connack
    assert connack.get(Prop.AUTH_METHOD) is None
    assert connack.get(Prop.AUTH_DATA) is None


def test_sys_topics_cannot_be_published(broker: Broker, name: str) -> None:
    """4.7.2: `$SYS` is the server's own; a client that may do everything cannot forge it."""
    watcher = ada(broker, f"{name}-watcher")
    watcher.subscribe((f"$SYS/broker/{name}", 1))
    peer = ada(broker, name)
    peer.send(V5.publish(f"$SYS/broker/{name}", b"forged", qos=1, packet_id=5))
    found = peer.receive()
    assert found is not None
    watcher.expect_nothing()
