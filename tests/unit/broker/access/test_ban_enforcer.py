"""What a ban does: at CONNECT, to who is connected, and to what was published before."""

from __future__ import annotations

import asyncio

import pytest

from perdure.broker.auth.acl import AclAuthorizer
from perdure.broker.auth.acl_rules import AclRules
from perdure.broker.auth.authenticate import AuthRequest, AuthResult, accepted
from perdure.broker.auth.bans import BanList, make_ban
from perdure.model import Will
from perdure.mqtt.packets import Connack, Connect, Disconnect, Properties
from tests.support.sim_broker import SimBroker
from tests.unit.broker.harness import NO_DELAY, Client, make_sim

SECOND_US = 1_000_000


def ban(sim: SimBroker, kind: str, value: str, *, for_us: int = 0) -> int:
    """Ban somebody, for some time; returns how many were disconnected."""
    now_us = sim.clock.now_us()
    bans = BanList([make_ban(kind, value, until_us=now_us + for_us if for_us else 0, reason="why")])
    return sim.live.services.ban_enforcer.use(bans)


def unban(sim: SimBroker) -> None:
    sim.live.services.ban_enforcer.use(BanList())


@pytest.mark.parametrize(("version", "code"), [(5, 0x8A), (4, 5)])
@pytest.mark.parametrize(("kind", "value"), [("client_id", "c"), ("address", "0.0.0.0/0")])
def test_a_banned_client_is_refused(version: int, code: int, kind: str, value: str) -> None:
    sim = make_sim()
    assert ban(sim, kind, value) == 0
    client = Client(sim, "c", version=version)
    refusal = client.connect(clean=True)
    assert (refusal.reason, refusal.session_present) == (code, False)
    sim.run_for(1000)
    assert client.is_lost
    assert "why" not in str(refusal), "the reason is for operators"
    (logged,) = sim.logged("connection.refused")
    assert (logged["reason_code"], logged["reason"]) == ("0x8a", "why")
    assert str(logged["banned"]).startswith(kind)
    unban(sim)
    assert client.connect(clean=True).reason == 0


class Named:
    """Proves a user name that is not in the packet, as a certificate does."""

    def __init__(self) -> None:
        self.asked = 0
        self.gate: asyncio.Future[None] | None = None

    async def authenticate(self, request: AuthRequest) -> AuthResult:
        self.asked += 1
        return accepted("certificate", "ada")


@pytest.mark.parametrize("stated", ["ada", "somebody"])
def test_a_banned_user_stated_or_proved(stated: str) -> None:
    authenticator = Named()
    sim = SimBroker(authenticator=authenticator, network_profile=NO_DELAY)
    sim.start()
    ban(sim, "username", stated)
    client = Client(sim, "c")
    client.open()
    client.send(Connect(5, True, 0, "c", username="somebody"))
    refused = client.take(Connack)
    assert refused.reason == (0x8A if stated in ("ada", "somebody") else 0)
    assert authenticator.asked == (stated == "ada"), "a stated name costs no password check"


@pytest.mark.parametrize("version", [4, 5])
def test_connected_clients_are_closed_at_once_without_their_will(version: int) -> None:
    sim = make_sim()
    reader = Client(sim, "r")
    reader.connect()
    reader.subscribe("gone/#")
    bad, good = Client(sim, "bad", version=version), Client(sim, "good")
    will = Will("gone/bad", b"x", 1)
    bad.connect(will=will, clean=True, expiry_s=0)
    good.connect()
    assert ban(sim, "client_id", "bad") == 1
    sim.run_for(10_000)
    assert bad.is_lost
    assert not good.is_lost
    assert not reader.is_lost
    if version == 5:
        # [MQTT-3.14.2-1] 0x8A is no code of DISCONNECT.
        left = bad.take(Disconnect)
        assert (left.reason, left.properties) == (0x98, Properties(reason_string="banned"))
    assert reader.payloads() == []
    assert [logged["client_id"] for logged in sim.logged("client.banned")] == ["bad"]
    assert sim.live.services.metrics.bans == 1


def test_an_address_or_a_user_closes_all_of_its_clients() -> None:
    sim = SimBroker(authenticator=Named(), network_profile=NO_DELAY)
    sim.start()
    clients = [Client(sim, f"c{number}") for number in range(3)]
    for client in clients:
        client.connect()
    assert ban(sim, "username", "ada") == 3
    unban(sim)
    for client in clients:
        client.connect()
    assert ban(sim, "address", "203.0.113.0/24") == 0
    assert ban(sim, "address", "0.0.0.0/0") == 3


@pytest.mark.trap(54)
def test_what_a_banned_client_has_published_is_not_delivered() -> None:
    """Trap 54: from the queue of a session that resumes, and from the retained messages; packet
    identifiers of the rest do not move, and the end of the ban lets later sessions have them."""
    sim = make_sim()
    bad, good, reader = Client(sim, "bad"), Client(sim, "good"), Client(sim, "r")
    bad.connect()
    good.connect()
    reader.connect()
    reader.subscribe("t/#", qos=1)
    reader.disconnect()
    good.deliver("t/1", b"good 1")
    bad.deliver("t/2", b"bad", retain=True)
    good.deliver("t/3", b"good 2")
    ban(sim, "client_id", "bad", for_us=60 * SECOND_US)
    reader.connect()
    sim.run_for(100_000)
    assert [(m.payload, m.packet_id) for m in reader.messages] == [(b"good 1", 1), (b"good 2", 3)]
    assert sim.live.services.metrics.messages_dropped_not_authorized == 1
    late = Client(sim, "late")
    late.connect()
    late.subscribe("t/#")
    assert late.payloads() == []
    sim.run_for(61 * SECOND_US)
    after = Client(sim, "after")
    after.connect()
    after.subscribe("t/#")
    assert after.payloads() == [b"bad"]


@pytest.mark.trap(54)
def test_the_delayed_will_of_a_banned_client() -> None:
    sim = make_sim()
    reader, bad = Client(sim, "r"), Client(sim, "bad")
    reader.connect()
    reader.subscribe("gone")
    bad.connect(will=Will("gone", b"x", 1, delay_s=5))
    bad.cut()
    ban(sim, "client_id", "bad")
    sim.run_for(10 * SECOND_US)
    assert reader.payloads() == []
    assert sim.logged("will.refused")


class Stated:
    """Takes the user name of the packet for proved."""

    async def authenticate(self, request: AuthRequest) -> AuthResult:
        return accepted("password", request.username)


def _of_user(sim: SimBroker, client_id: str, username: str, *, expiry_s: int = 3600) -> Client:
    """A client that has connected as a user."""
    client = Client(sim, client_id)
    client.open()
    will = Will("t/gone", b"gone", 1, delay_s=5)
    properties = Properties(session_expiry_interval=expiry_s)
    client.send(
        Connect(5, False, 0, client_id, will=will, properties=properties, username=username)
    )
    assert client.take(Connack).reason == 0
    return client


@pytest.mark.trap(54)
def test_what_a_banned_user_has_published_is_not_delivered() -> None:
    """By whichever of its clients: connected, gone for now, or with a session that ends."""
    sim = SimBroker(authenticator=Stated(), network_profile=NO_DELAY)
    sim.start()
    reader = _of_user(sim, "r", "ann")
    reader.subscribe("t/#", qos=1)
    reader.disconnect()
    good = _of_user(sim, "good", "bob")
    good.deliver("t/1", b"good", retain=True)
    here, away = _of_user(sim, "here", "eve"), _of_user(sim, "away", "eve")
    short = _of_user(sim, "short", "eve", expiry_s=0)
    for client in (here, away, short):
        client.deliver(f"t/{client.client_id}", b"bad", retain=True)
    away.cut()
    assert ban(sim, "username", "eve", for_us=60 * SECOND_US) == 2
    sim.run_for(10 * SECOND_US)
    assert sim.logged("will.refused")
    mutes = sim.live.services.ban_enforcer.mutes
    assert [mutes(name) for name in ("here", "away", "short", "good")] == [True, True, True, False]
    reader = _of_user(sim, "r", "ann")
    assert reader.payloads() == [b"good"]
    reader.subscribe("t/#", qos=0)
    assert reader.payloads() == [b"good"]
    sim.run_for(51 * SECOND_US)
    assert not mutes("away")
    after = _of_user(sim, "after", "ann")
    after.subscribe("t/#")
    assert sorted(after.payloads()) == [b"bad", b"bad", b"bad", b"good"]


def test_an_identifier_that_is_another_users_now_is_not_muted() -> None:
    sim = SimBroker(authenticator=Stated(), network_profile=NO_DELAY)
    sim.start()
    _of_user(sim, "c", "eve", expiry_s=0)
    ban(sim, "username", "eve")
    sim.run_for(SECOND_US)
    assert sim.live.services.ban_enforcer.mutes("c")
    other = _of_user(sim, "c", "ann")
    assert not sim.live.services.ban_enforcer.mutes("c")
    other.cut()
    unban(sim)
    assert sim.live.services.authorizer.allow_all


def test_sessions_of_a_banned_user_are_found_at_the_start() -> None:
    """Before the first will that is due is published, and before anybody is given anything."""
    sim = SimBroker(authenticator=Stated(), network_profile=NO_DELAY)
    sim.start()
    away = _of_user(sim, "away", "eve")
    away.deliver("t/1", b"bad", retain=True)
    away.cut()
    named = _of_user(sim, "named", "bob")
    named.cut()
    sim.run_for(SECOND_US)
    sim.stop()
    sim.run_for(10 * SECOND_US)
    sim.bans = BanList([make_ban("username", "eve"), make_ban("client_id", "named")])
    sim.start()
    assert sim.live.services.ban_enforcer.mutes("away")
    assert {told["client_id"] for told in sim.logged("will.refused")} == {"away", "named"}
    reader = _of_user(sim, "r", "ann")
    reader.subscribe("t/#")
    assert reader.payloads() == []


def test_a_ban_ends_by_itself() -> None:
    sim = make_sim()
    ban(sim, "client_id", "c", for_us=2 * SECOND_US)
    client = Client(sim, "c")
    assert client.connect(clean=True).reason == 0x8A
    assert sim.live.services.metrics.bans == 1
    assert not sim.live.services.authorizer.allow_all
    sim.run_for(2 * SECOND_US)
    assert client.connect(clean=True).reason == 0
    assert sim.live.services.metrics.bans == 0
    assert sim.live.services.authorizer.allow_all


def test_an_end_that_is_far_away_is_looked_at_now_and_then() -> None:
    sim = make_sim()
    ban(sim, "client_id", "c", for_us=5 * 3600 * SECOND_US)
    sim.run_for(4 * 3600 * SECOND_US)
    assert sim.live.services.metrics.bans == 1
    sim.run_for(3600 * SECOND_US)
    assert sim.live.services.metrics.bans == 0


def test_banned_while_the_password_is_checked_or_the_session_opened() -> None:
    """A list that changes meanwhile is looked at again, before anybody is let in."""
    sim = SimBroker(network_profile=NO_DELAY)
    sim.suspends = True
    sim.start()
    for moment in range(40):
        client = Client(sim, f"c{moment}")
        client.connect(clean=True, wait=False)
        sim.run_for(moment * 40)
        ban(sim, "client_id", f"c{moment}")
        sim.run_for(SECOND_US)
        assert client.is_lost, moment
        assert f"c{moment}" not in sim.live.services.registry.live
        unban(sim)


def test_muting_and_rules() -> None:
    """An access file read again does not forget who is muted, nor the other way round."""
    rules = AclRules.parse("topic readwrite #", name="acl")
    authorizer = AclAuthorizer(None)
    sim = SimBroker(authorizer=authorizer, network_profile=NO_DELAY)
    sim.start()
    ban(sim, "client_id", "bad")
    authorizer.reload(rules)
    authorizer.reload(None)
    assert not authorizer.allow_all
    unban(sim)
    assert authorizer.allow_all
    authorizer.reload(rules)
    ban(sim, "client_id", "bad")
    unban(sim)
    assert not authorizer.allow_all
