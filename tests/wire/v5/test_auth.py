"""MQTT 5.0: enhanced authentication and AUTH packets (3.15, 4.12)."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from tests.wire.harness import Broker
from tests.wire.packets import V5, Kind, Prop, Reason, Value
from tests.wire.peer import SUBJECT, Peer
from tests.wire.reader import Packet
from tests.wire.v5.users import WITH_USERS, ada

BROKER_OPTIONS = WITH_USERS
METHOD = "SCRAM-SHA-256"
scram = pytest.mark.skipif(SUBJECT != "perdure", reason="Mosquitto has no SCRAM of its own")


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
