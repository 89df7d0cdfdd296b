"""What a ban does: at CONNECT, to who is connected, and to what was published before."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.network import Weather
from tests.support.world import World
from tests.unit.broker.harness import Client, make_world

from perdure.broker.auth.acl import AclAuthorizer, AclRules
from perdure.broker.auth.authenticate import AuthRequest, AuthResult, accepted
from perdure.broker.auth.bans import BanList, make_ban
from perdure.model import Will
from perdure.mqtt.packets import Connack, Connect, Disconnect, Properties

SECOND_US = 1_000_000


def ban(world: World, kind: str, value: str, *, for_us: int = 0) -> int:
    """Ban somebody, for some time; returns how many were disconnected."""
    now_us = world.clock.now_us()
    bans = BanList([make_ban(kind, value, until_us=now_us + for_us if for_us else 0, reason="why")])
    return world.live.services.banning.use(bans)


def unban(world: World) -> None:
    world.live.services.banning.use(BanList())


@pytest.mark.parametrize(("version", "code"), [(5, 0x8A), (4, 5)])
@pytest.mark.parametrize(("kind", "value"), [("client_id", "c"), ("address", "0.0.0.0/0")])
def test_a_banned_client_is_refused(version: int, code: int, kind: str, value: str) -> None:
    world = make_world()
    assert ban(world, kind, value) == 0
    client = Client(world, "c", version=version)
    refusal = client.connect(clean=True)
    assert (refusal.reason, refusal.session_present) == (code, False)
    world.run_for(1000)
    assert client.is_lost
    assert "why" not in str(refusal), "the reason is for operators"
    (logged,) = world.logged("connection.refused")
    assert (logged["reason_code"], logged["reason"]) == ("0x8a", "why")
    assert str(logged["banned"]).startswith(kind)
    unban(world)
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
    world = World(authenticator=authenticator, weather=Weather(delays_us=(0,), pieces_max=1))
    world.start()
    ban(world, "username", stated)
    client = Client(world, "c")
    client.open()
    client.send(Connect(5, True, 0, "c", username="somebody"))
    refused = client.take(Connack)
    assert refused.reason == (0x8A if stated in ("ada", "somebody") else 0)
    assert authenticator.asked == (stated == "ada"), "a stated name costs no password check"


@pytest.mark.parametrize("version", [4, 5])
def test_connected_clients_are_closed_at_once_without_their_will(version: int) -> None:
    world = make_world()
    reader = Client(world, "r")
    reader.connect()
    reader.subscribe("gone/#")
    bad, good = Client(world, "bad", version=version), Client(world, "good")
    will = Will("gone/bad", b"x", 1)
    bad.connect(will=will, clean=True, expiry_s=0)
    good.connect()
    assert ban(world, "client_id", "bad") == 1
    world.run_for(10_000)
    assert bad.is_lost
    assert not good.is_lost
    assert not reader.is_lost
    if version == 5:
        # [MQTT-3.14.2-1] 0x8A is no code of DISCONNECT.
        left = bad.take(Disconnect)
        assert (left.reason, left.properties) == (0x98, Properties(reason_string="banned"))
    assert reader.payloads() == []
    assert [logged["client_id"] for logged in world.logged("client.banned")] == ["bad"]
    assert world.live.services.metrics.bans == 1


def test_an_address_or_a_user_closes_all_of_its_clients() -> None:
    world = World(authenticator=Named(), weather=Weather(delays_us=(0,), pieces_max=1))
    world.start()
    clients = [Client(world, f"c{number}") for number in range(3)]
    for client in clients:
        client.connect()
    assert ban(world, "username", "ada") == 3
    unban(world)
    for client in clients:
        client.connect()
    assert ban(world, "address", "203.0.113.0/24") == 0
    assert ban(world, "address", "0.0.0.0/0") == 3


@pytest.mark.trap(54)
def test_what_a_banned_client_has_published_is_not_delivered() -> None:
    """Trap 54: from the queue of a session that resumes, and from the retained messages; packet
    identifiers of the rest do not move, and the end of the ban lets later sessions have them."""
    world = make_world()
    bad, good, reader = Client(world, "bad"), Client(world, "good"), Client(world, "r")
    bad.connect()
    good.connect()
    reader.connect()
    reader.subscribe("t/#", qos=1)
    reader.disconnect()
    good.deliver("t/1", b"good 1")
    bad.deliver("t/2", b"bad", retain=True)
    good.deliver("t/3", b"good 2")
    ban(world, "client_id", "bad", for_us=60 * SECOND_US)
    reader.connect()
    world.run_for(100_000)
    assert [(m.payload, m.packet_id) for m in reader.messages] == [(b"good 1", 1), (b"good 2", 3)]
    assert world.live.services.metrics.messages_dropped_not_authorized == 1
    late = Client(world, "late")
    late.connect()
    late.subscribe("t/#")
    assert late.payloads() == []
    world.run_for(61 * SECOND_US)
    after = Client(world, "after")
    after.connect()
    after.subscribe("t/#")
    assert after.payloads() == [b"bad"]


@pytest.mark.trap(54)
def test_the_delayed_will_of_a_banned_client() -> None:
    world = make_world()
    reader, bad = Client(world, "r"), Client(world, "bad")
    reader.connect()
    reader.subscribe("gone")
    bad.connect(will=Will("gone", b"x", 1, delay_s=5))
    bad.cut()
    ban(world, "client_id", "bad")
    world.run_for(10 * SECOND_US)
    assert reader.payloads() == []
    assert world.logged("will.refused")


def test_a_ban_ends_by_itself() -> None:
    world = make_world()
    ban(world, "client_id", "c", for_us=2 * SECOND_US)
    client = Client(world, "c")
    assert client.connect(clean=True).reason == 0x8A
    assert world.live.services.metrics.bans == 1
    assert not world.live.services.authorizer.allow_all
    world.run_for(2 * SECOND_US)
    assert client.connect(clean=True).reason == 0
    assert world.live.services.metrics.bans == 0
    assert world.live.services.authorizer.allow_all


def test_an_end_that_is_far_away_is_looked_at_now_and_then() -> None:
    world = make_world()
    ban(world, "client_id", "c", for_us=5 * 3600 * SECOND_US)
    world.run_for(4 * 3600 * SECOND_US)
    assert world.live.services.metrics.bans == 1
    world.run_for(3600 * SECOND_US)
    assert world.live.services.metrics.bans == 0


def test_banned_while_the_password_is_checked_or_the_session_opened() -> None:
    """A list that changes meanwhile is looked at again, before anybody is let in."""
    world = World(weather=Weather(delays_us=(0,), pieces_max=1))
    world.suspends = True
    world.start()
    for moment in range(40):
        client = Client(world, f"c{moment}")
        client.connect(clean=True, wait=False)
        world.run_for(moment * 40)
        ban(world, "client_id", f"c{moment}")
        world.run_for(SECOND_US)
        assert client.is_lost, moment
        assert f"c{moment}" not in world.live.services.registry.live
        unban(world)


def test_muting_and_rules() -> None:
    """An access file read again does not forget who is muted, nor the other way round."""
    rules = AclRules.parse("topic readwrite #", name="acl")
    authorizer = AclAuthorizer(None)
    world = World(authorizer=authorizer, weather=Weather(delays_us=(0,), pieces_max=1))
    world.start()
    ban(world, "client_id", "bad")
    authorizer.reload(rules)
    authorizer.reload(None)
    assert not authorizer.allow_all
    unban(world)
    assert authorizer.allow_all
    authorizer.reload(rules)
    ban(world, "client_id", "bad")
    unban(world)
    assert not authorizer.allow_all
