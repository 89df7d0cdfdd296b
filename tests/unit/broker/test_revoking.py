"""Users and rules that change: what it does to clients, wills, and what waits."""

from __future__ import annotations

import pytest
from tests.unit.broker.harness import Client
from tests.unit.broker.naming import Users, connect_as, make_named_world, use_acl

from perdure.broker.auth.bans import BanList, make_ban
from perdure.broker.revoking import revoke
from perdure.model import Will
from perdure.mqtt.packets import PUBACK, Ack, Disconnect

OPEN = "topic readwrite #\npattern readwrite #\n"


@pytest.mark.parametrize("version", [4, 5])
def test_a_removed_user_is_gone_at_once_without_its_will(version: int) -> None:
    users = Users()
    world = make_named_world(users)
    reader = Client(world, "r")
    gone, stays = Client(world, "g", version=version), Client(world, "s")
    connect_as(reader, None)
    reader.subscribe("will")
    connect_as(gone, "ada", will=Will("will", b"x", 1))
    connect_as(stays, "bob", will=Will("will", b"y", 1))
    users.removed.add("ada")
    assert revoke(world.live.services) == 1
    world.run_for(10_000)
    assert gone.is_lost
    assert not stays.is_lost
    if version == 5:
        assert gone.take(Disconnect).reason == 0x87
    assert reader.payloads() == []
    assert [event["client_id"] for event in world.logged("client.revoked")] == ["g"]


@pytest.mark.parametrize("how", ["user", "ban", "right", "nothing"])
def test_a_delayed_will_asks_again(how: str) -> None:
    users = Users()
    world = make_named_world(users, acl=OPEN)
    reader, client = Client(world, "r"), Client(world, "c")
    connect_as(reader, None)
    reader.subscribe("will")
    connect_as(client, "ada", will=Will("will", b"x", 1, delay_s=10), expiry_s=1000)
    client.cut()
    if how == "user":
        users.removed.add("ada")
    elif how == "ban":
        world.live.services.banning.use(BanList([make_ban("username", "ada")]))
    elif how == "right":
        use_acl(world, "topic readwrite #\n")
    revoke(world.live.services)
    world.run_for(11_000_000)
    assert reader.payloads() == ([b"x"] if how == "nothing" else [])
    reasons = [event["reason"] for event in world.logged("will.refused")]
    assert reasons == ([] if how == "nothing" else ["not authorized"])


def test_what_waits_for_the_window_is_looked_at_again() -> None:
    """Messages in memory were allowed when they came; those in flight have gone."""
    world = make_named_world(acl=OPEN)
    publisher, reader = Client(world, "p"), Client(world, "r", acks=False)
    connect_as(publisher, None)
    connect_as(reader, "ada", receive_maximum=1)
    reader.subscribe("a", "b", qos=1)
    for number in range(6):
        publisher.deliver("ab"[number % 2], b"%d" % number)
    session = world.live.services.registry.live["r"]
    assert len(session.outbound.pending) == 5
    use_acl(world, "topic readwrite #\nuser ada\ntopic read a\n")
    revoke(world.live.services)
    reader.acks = True
    (first,) = reader.messages
    reader.send(Ack(PUBACK, first.packet_id))
    world.run_for(200_000)
    assert [message.payload for message in reader.messages] == [b"0", b"2", b"4"]
    assert world.live.services.metrics.messages_dropped_not_authorized == 3
    assert session.outbound.is_idle()
    reader.cut()
    assert connect_as(reader, "ada").session_present
    assert reader.payloads() == []


def test_what_a_banned_client_published_is_taken_out_too() -> None:
    """Trap 54, for what is in memory already."""
    world = make_named_world()
    bad, reader = Client(world, "bad"), Client(world, "r", acks=False)
    connect_as(bad, None)
    connect_as(reader, "ada", receive_maximum=1)
    reader.subscribe("t", qos=1)
    for number in range(3):
        bad.deliver("t", b"%d" % number)
    world.live.services.banning.use(BanList([make_ban("client_id", "bad")]))
    reader.acks = True
    reader.send(Ack(PUBACK, reader.messages[0].packet_id))
    world.run_for(200_000)
    assert [message.payload for message in reader.messages] == [b"0"]


def test_a_subscription_that_is_not_allowed_any_more_stops_delivering() -> None:
    world = make_named_world(acl=OPEN)
    publisher, reader = Client(world, "p"), Client(world, "r")
    connect_as(publisher, None)
    connect_as(reader, "ada")
    reader.subscribe("t")
    publisher.deliver("t", b"1")
    assert reader.payloads() == [b"1"]
    use_acl(world, "topic readwrite #\n")
    revoke(world.live.services)
    publisher.deliver("t", b"2")
    publisher.deliver("t", b"3", qos=0)
    assert reader.payloads() == []
    use_acl(world, OPEN)
    publisher.deliver("t", b"4")
    assert reader.payloads() == [b"4"]
