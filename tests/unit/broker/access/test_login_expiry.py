"""Logins that end while their clients are connected, and those that are looked at again."""

from __future__ import annotations

import pytest

from perdure.broker.access.revoking import revoke
from perdure.broker.auth.acl import AclAuthorizer
from perdure.broker.auth.authenticate import (
    AuthRequest,
    AuthResult,
    AuthState,
    AuthStep,
    refused,
    undecided,
)
from perdure.broker.auth.authorize import Identity
from perdure.broker.auth.grant import EVERYTHING, Grant, grant_of
from perdure.broker.auth.method import allow
from perdure.config.schema import Config, SysConfig
from perdure.model import Will
from perdure.mqtt.packets import PUBACK, Ack, Connack, Connect, Disconnect, Properties
from tests.support.sim_broker import SimBroker
from tests.unit.broker.harness import NO_DELAY, Client
from tests.unit.broker.naming import Users, connect_as

OPEN = grant_of(["readwrite #"])


class Service(Users):
    """Lets everybody in, for a while and with some rights."""

    def __init__(self) -> None:
        super().__init__()
        self.grant: Grant | None = OPEN
        self.expires_us = 0
        self.recheck_us = 0
        self.answer: AuthResult | None = None
        self.asked: list[str | None] = []

    async def authenticate(self, request: AuthRequest) -> AuthResult:
        return self._allow(request)

    async def renew(self, request: AuthRequest, identity: Identity) -> AuthResult:
        self.asked.append(request.username)
        return self.answer or self._allow(request)

    def grant_without_login(self, method: str) -> object | None:
        return EVERYTHING

    def _allow(self, request: AuthRequest) -> AuthResult:
        return allow(
            request.username,
            grant=self.grant,
            superuser=bool(self.grant and self.grant.superuser),
            expires_us=self.expires_us and request.now_us + self.expires_us,
            recheck_us=self.recheck_us and request.now_us + self.recheck_us,
        )


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def sim(service: Service) -> SimBroker:
    sim = SimBroker(
        config=Config(sys=SysConfig(interval_s=0)),
        network_profile=NO_DELAY,
        authenticator=service,
        authorizer=AclAuthorizer(None, grants=True),
        standing=service,
    )
    sim.blocking_us = (1_000, 1_000)
    sim.start()
    return sim


@pytest.mark.parametrize("version", [4, 5])
def test_a_login_ends_when_it_says(sim: SimBroker, service: Service, version: int) -> None:
    reader, client = Client(sim, "r"), Client(sim, "c", version=version)
    connect_as(reader, "bob")
    reader.subscribe("will")
    service.expires_us = 60_000_000
    connect_as(client, "ada", will=Will("will", b"x", 1))
    sim.run_for(59_900_000)
    assert not client.is_lost
    sim.run_for(200_000)
    assert client.is_lost
    if version == 5:
        assert client.take(Disconnect).reason == 0xA0
    assert reader.payloads() == [b"x"]
    assert [event["username"] for event in sim.logged("login.expired")] == ["ada"]


def test_who_has_a_new_login_is_held_to_that_one(sim: SimBroker, service: Service) -> None:
    client = Client(sim, "c")
    service.expires_us = 10_000_000
    connect_as(client, "ada")
    sim.run_for(5_000_000)
    service.expires_us = 100_000_000
    connect_as(client, "ada")
    sim.run_for(90_000_000)
    assert not client.is_lost
    sim.run_for(20_000_000)
    assert client.is_lost


def test_a_user_that_is_gone_is_disconnected_without_its_will(
    sim: SimBroker, service: Service
) -> None:
    reader, gone = Client(sim, "r"), Client(sim, "c")
    connect_as(reader, "bob")
    reader.subscribe("will")
    service.recheck_us = 30_000_000
    connect_as(gone, "ada", will=Will("will", b"x", 1))
    sim.run_for(31_000_000)
    assert service.asked == ["ada"]
    assert not gone.is_lost
    service.answer = refused("m", 0x87)
    sim.run_for(30_000_000)
    assert gone.take(Disconnect).reason == 0x87
    assert reader.payloads() == []
    assert len(sim.logged("client.revoked")) == 1


@pytest.mark.parametrize("code", [0x88, 0x89, 0])
def test_who_cannot_be_asked_about_stays(sim: SimBroker, service: Service, code: int) -> None:
    client = Client(sim, "c")
    service.recheck_us = 300_000_000
    connect_as(client, "ada")
    service.answer = refused("m", code) if code else undecided("m")
    sim.run_for(301_000_000)
    assert len(service.asked) == 1
    sim.run_for(30_000_000)
    assert len(service.asked) == 2
    service.answer = refused("m", 0x86)
    sim.run_for(30_000_000)
    assert client.is_lost


def test_rights_change_for_what_is_sent_and_for_what_waits(
    sim: SimBroker, service: Service
) -> None:
    client = Client(sim, "c", acks=False)
    service.recheck_us = 30_000_000
    connect_as(client, "ada", receive_maximum=1)
    client.subscribe("a", "b")
    for topic in ("a", "b"):
        client.publish(topic, topic.encode(), qos=1)
    sim.run_for(10_000)
    service.grant = grant_of(["read a"])
    sim.run_for(31_000_000)
    assert [message.topic for message in client.messages] == ["a"]
    packet_id = client.messages[0].packet_id
    assert packet_id is not None
    client.send(Ack(PUBACK, packet_id))
    sim.run_for(10_000)
    assert [message.topic for message in client.messages] == ["a"]
    assert list(client.subscribe("b").reasons) == [0x87]


def test_all_are_looked_at_when_something_has_changed(sim: SimBroker, service: Service) -> None:
    clients = [Client(sim, f"c{number}") for number in range(100)]
    for number, client in enumerate(clients):
        connect_as(client, f"user{number % 2}")
    expiry = sim.live.services.login_expiry
    assert expiry.look_again("user1") == 50
    sim.run_for(1_000)
    assert service.asked == ["user1"] * 50
    service.asked.clear()
    for _ in range(5):
        expiry.look_again()
    # 32 are asked about at once, the others wait once each.
    assert len(expiry._due) <= 100
    sim.run_for(1_000)
    assert len(service.asked) <= 132
    service.answer = refused("m", 0x87)
    assert expiry.look_again() == 100
    sim.run_for(10_000)
    assert all(client.is_lost for client in clients)


def test_what_is_remembered_of_clients_is_bounded(sim: SimBroker, service: Service) -> None:
    service.expires_us = 10**15
    client = Client(sim, "c")
    for _ in range(300):
        connect_as(client, "ada", clean=True)
    assert len(sim.live.services.login_expiry._heap) <= 70


def test_a_will_that_waits_may_go_where_its_login_was_allowed_to(
    sim: SimBroker, service: Service
) -> None:
    reader, client = Client(sim, "r"), Client(sim, "c")
    connect_as(reader, "bob")
    reader.subscribe("will")
    connect_as(client, "ada", will=Will("will", b"x", 1, delay_s=10), expiry_s=1000)
    client.cut()
    sim.run_for(11_000_000)
    assert reader.payloads() == [b"x"]


def test_who_was_asked_about_in_between_is_asked_later(sim: SimBroker, service: Service) -> None:
    service.recheck_us = 30_000_000
    connect_as(Client(sim, "c"), "ada")
    sim.run_for(20_000_000)
    sim.live.services.login_expiry.look_again("ada")
    sim.run_for(15_000_000)
    assert len(service.asked) == 1
    sim.run_for(16_000_000)
    assert len(service.asked) == 2


def test_a_superuser_of_a_method_stays_one_at_a_reload(sim: SimBroker, service: Service) -> None:
    service.grant = Grant((), superuser=True)
    client = Client(sim, "c")
    connect_as(client, "ada")
    services = sim.live.services
    identity = services.registry.live["c"].identity
    revoke(services, services.registry, services.shared_subscriptions)
    assert identity.superuser
    service.grant = Grant()
    services.login_expiry.look_again()
    sim.run_for(1_000)
    assert not identity.superuser
    assert list(client.subscribe("a").reasons) == [0x87]


class Proof:
    """Enhanced authentication that takes whoever comes."""

    name = "X"

    def start(self, client_id: str, data: bytes | None) -> AuthStep:
        return AuthStep(state=AuthState.DONE, username="ada")

    def step(self, data: bytes | None) -> AuthStep:
        raise AssertionError


@pytest.mark.parametrize("offers", [True, False])
def test_a_listener_without_passwords_has_no_enhanced_authentication(
    sim: SimBroker, service: Service, monkeypatch: pytest.MonkeyPatch, offers: bool
) -> None:
    monkeypatch.setattr(service, "offers_enhanced", lambda listener: offers)
    sim.live.services.methods.register("X", lambda username: Proof())
    client = Client(sim, "c")
    client.open()
    client.send(Connect(5, True, 0, "c", properties=Properties(authentication_method="X")))
    assert client.take(Connack).reason == (0 if offers else 0x8C)


def test_an_end_that_is_far_away(sim: SimBroker, service: Service) -> None:
    service.expires_us = 10**30
    far, near = Client(sim, "far"), Client(sim, "near")
    connect_as(far, "ada")
    service.expires_us = 3 * 3_600_000_000
    connect_as(near, "bob")
    sim.run_for(service.expires_us - 1_000_000)
    assert not near.is_lost
    sim.run_for(2_000_000)
    assert near.is_lost
    assert not far.is_lost
