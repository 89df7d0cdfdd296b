"""Enhanced authentication: the order of AUTH packets, and what ends an exchange."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import hmac

import pytest

from perdure.broker.auth.authenticate import AllStand, AuthState, AuthStep
from perdure.broker.auth.credentials import CredentialsFile
from perdure.broker.auth.guard import REFUSAL_DELAY_US, SUSPECT_FAILURES
from perdure.broker.auth.scram import NAME, scram_factory
from perdure.config.schema import AuthConfig
from perdure.mqtt.packets import Auth, Connack, Connect, Disconnect, Properties, Publish
from tests.support.network import PEER
from tests.support.sim_broker import SimBroker
from tests.unit.broker.harness import Client, make_sim

METHOD = "COUNT"


class Count:
    """A method that is content with ``2`` after ``1``."""

    name = METHOD

    def start(self, client_id: str, data: bytes | None) -> AuthStep:
        """The first word."""
        if data == b"1":
            return AuthStep(state=AuthState.CONTINUE, data=b"and?", reason_code=0x18)
        return AuthStep(state=AuthState.FAILED, reason_code=0x87, reason="cannot count")

    def step(self, data: bytes | None) -> AuthStep:
        """The second word."""
        if data == b"2":
            return AuthStep(state=AuthState.DONE, data=b"well", username="ada")
        return AuthStep(state=AuthState.FAILED, reason_code=0x87, reason="cannot count")


def _sim() -> SimBroker:
    sim = make_sim()
    sim.live.services.methods.register(METHOD, lambda _: Count())
    return sim


def _connect(sim: SimBroker, data: bytes, *, method: str = METHOD) -> Client:
    client = Client(sim, "c")
    client.open()
    properties = Properties(
        session_expiry_interval=60, authentication_method=method, authentication_data=data
    )
    client.send(Connect(5, False, 0, "c", properties=properties))
    return client


def _auth(reason: int, data: bytes, *, method: str = METHOD) -> Auth:
    return Auth(reason, Properties(authentication_method=method, authentication_data=data))


def _connected(sim: SimBroker) -> Client:
    client = _connect(sim, b"1")
    assert client.take(Auth).reason == 0x18
    client.send(_auth(0x18, b"2"))
    answer = client.take(Connack)
    assert (answer.reason, answer.properties.authentication_data) == (0, b"well")
    return client


@pytest.mark.spec("MQTT-4.12.0-2")
def test_an_exchange_ends_with_connack() -> None:
    sim = _sim()
    client = _connect(sim, b"1")
    question = client.take(Auth)
    assert (question.reason, question.properties.authentication_data) == (0x18, b"and?")
    client.send(_auth(0x18, b"2"))
    assert client.take(Connack).properties.authentication_method == METHOD
    assert sim.live.services.registry.live["c"].identity.username == "ada"


def test_what_comes_behind_the_last_auth_waits_for_connack() -> None:
    sim = _sim()
    client = _connect(sim, b"1")
    client.take(Auth)
    client.send(_auth(0x18, b"2"), Publish("t", b"x", 1, packet_id=7))
    sim.run_for(100_000)
    assert [packet.kind for packet in client.received] == [Connack.kind, 4]


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (_auth(0x18, b"3"), 0x87),
        (_auth(0x18, b"2", method="OTHER"), 0x82),
        (_auth(0x19, b"2"), 0x82),
        (Publish("t", b"x"), 0x82),
    ],
)
def test_what_ends_the_exchange_of_a_connect(answer: Auth | Publish, code: int) -> None:
    sim = _sim()
    client = _connect(sim, b"1")
    client.take(Auth)
    client.send(answer)
    assert client.take(Connack).reason == code
    sim.run_for(1_000)
    assert client.is_lost
    assert not sim.live.services.registry.live


def test_a_method_that_fails_at_once_is_logged_and_told() -> None:
    sim = _sim()
    assert _connect(sim, b"0").take(Connack).reason == 0x87
    (told,) = sim.logged("connection.refused")
    assert (told["method"], told["reason"]) == (METHOD, "cannot count")


def test_a_client_may_give_up() -> None:
    sim = _sim()
    client = _connect(sim, b"1")
    client.take(Auth)
    client.send(Disconnect(0))
    sim.run_for(10_000)
    assert client.is_lost
    assert client.received == []


@pytest.mark.spec("MQTT-4.12.1-1")
def test_re_authentication() -> None:
    sim = _sim()
    client = _connected(sim)
    client.send(_auth(0x19, b"1"))
    assert client.take(Auth).reason == 0x18
    client.send(_auth(0x18, b"2"))
    assert client.take(Auth).reason == 0
    # The exchange is over: another word belongs to none.
    client.send(_auth(0x18, b"2"))
    assert client.take(Disconnect).reason == 0x82


@pytest.mark.parametrize(
    ("packet", "code"),
    [(_auth(0x19, b"0"), 0x87), (_auth(0x19, b"1", method="OTHER"), 0x82)],
)
def test_a_re_authentication_that_fails_ends_the_connection(packet: Auth, code: int) -> None:
    client = _connected(_sim())
    client.send(packet)
    assert client.take(Disconnect).reason == code


def test_auth_from_a_client_that_used_no_method() -> None:
    client = Client(_sim(), "c")
    client.connect()
    client.send(_auth(0x19, b"1"))
    assert client.take(Disconnect).reason == 0x82


class Certified(AllStand):
    """Takes certificates on every listener."""

    def takes_certificates(self, listener: str) -> bool:
        return True


@pytest.mark.parametrize(
    ("subject", "reason"), [("ada", 0), ("bob", 0x87), (None, 0x87), ("", 0x87)]
)
def test_a_certificate_names_the_user_and_an_exchange_can_only_agree(
    subject: str | None, reason: int
) -> None:
    """``username_from_certificate``: no other user can be had by SCRAM on such a listener."""
    sim = make_sim()
    services = sim.live.services
    services.standing = Certified()
    users = CredentialsFile("unused")
    users.set_password("ada", "pw", salt=bytes(16), schemes=["scram-sha-256"])
    services.methods.register(NAME, scram_factory(users, nonce=lambda: "x", decoy_key=bytes(32)))
    peer = dataclasses.replace(PEER, certificate_subject=subject)
    sim.network.listen(lambda wire: sim.live.connection(wire, peer))
    client = _connect(sim, b"n,,n=ada,r=abc", method=NAME)
    if not subject:
        assert client.take(Connack).reason == reason
        return
    server_first = client.take(Auth).properties.authentication_data
    assert server_first is not None
    client.send(_auth(0x18, _proof("n=ada,r=abc", server_first.decode(), "pw"), method=NAME))
    assert client.take(Connack).reason == reason
    if not reason:
        assert services.registry.live["c"].identity.username == "ada"


def test_failed_exchanges_are_counted_and_end_in_a_ban() -> None:
    sim = make_sim()
    services = sim.live.services
    services.guard.config = AuthConfig(failures_max=2)
    users = CredentialsFile("unused")
    users.set_password("ada", "pw", salt=bytes(16), schemes=["scram-sha-256"])
    services.methods.register(NAME, scram_factory(users, nonce=lambda: "x", decoy_key=bytes(32)))
    for user in ("ada", "eve"):
        for _ in range(2):
            client = _connect(sim, f"n,,n={user},r=abc".encode(), method=NAME)
            server_first = client.take(Auth).properties.authentication_data
            assert server_first is not None
            proof = _proof(f"n={user},r=abc", server_first.decode(), "guess")
            client.send(_auth(0x18, proof, method=NAME))
            assert client.take(Connack).reason == 0x87
        client = _connect(sim, f"n,,n={user},r=abc".encode(), method=NAME)
        assert client.take(Connack).reason == 0x8A
    assert services.metrics.logins_failed == 4
    assert services.metrics.limit_refusals == {("auth.failures_max",): 2}
    found = [(ban.kind, ban.value) for ban in services.ban_enforcer.temporary()]
    assert found == [("login", "ada@127.0.0.1"), ("login", "eve@127.0.0.1")]
    assert len(sim.logged("login.banned")) == 2


def _proof(client_first_bare: str, server_first: str, password: str) -> bytes:
    """``client-final-message`` (RFC 5802 section 3)."""
    nonce, salt, iterations = (field[2:] for field in server_first.split(","))
    salted = hashlib.pbkdf2_hmac(
        "sha256", password.encode(), base64.b64decode(salt), int(iterations)
    )
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    without_proof = f"c=biws,r={nonce}"
    message = f"{client_first_bare},{server_first},{without_proof}".encode()
    signature = hmac.digest(hashlib.sha256(client_key).digest(), message, "sha256")
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()


def test_where_many_have_failed_a_refusal_is_told_later() -> None:
    sim = _sim()
    guard = sim.live.services.guard
    for number in range(SUSPECT_FAILURES):
        now_us = sim.clock.monotonic_us()
        guard.failed(username=f"u{number}", address=PEER.address, client_id="g", now_us=now_us)
    client = _connect(sim, b"0")
    sim.run_for(REFUSAL_DELAY_US - 100_000)
    assert client.received == []
    (told,) = sim.logged("connection.refused")
    assert told["reason"] == "cannot count"
    sim.run_for(200_000)
    assert client.take(Connack).reason == 0x87
    assert client.is_lost
