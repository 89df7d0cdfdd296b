"""Users and rules that change: what it does to clients, wills, and what waits."""

from __future__ import annotations

import pytest

from perdure.broker.access.revoking import revoke
from perdure.broker.auth.bans import BanList, make_ban
from perdure.model import Will
from perdure.mqtt.packets import PUBACK, Ack, Disconnect
from tests.unit.broker.harness import Client
from tests.unit.broker.naming import Users, connect_as, make_named_sim, use_acl

OPEN = "topic readwrite #\npattern readwrite #\n"


@pytest.mark.parametrize("version", [4, 5])
def test_a_removed_user_is_gone_at_once_without_its_will(version: int) -> None:
    users = Users()
    sim = make_named_sim(users)
    reader = Client(sim, "r")
    gone, stays = Client(sim, "g", version=version), Client(sim, "s")
    connect_as(reader, None)
    reader.subscribe("will")
    connect_as(gone, "ada", will=Will("will", b"x", 1))
    connect_as(stays, "bob", will=Will("will", b"y", 1))
    users.removed.add("ada")
    assert (
        revoke(
            sim.live.services, sim.live.services.registry, sim.live.services.shared_subscriptions
        )
        == 1
    )
    sim.run_for(10_000)
    assert gone.is_lost
    assert not stays.is_lost
    if version == 5:
        assert gone.take(Disconnect).reason == 0x87
    assert reader.payloads() == []
    assert [event["client_id"] for event in sim.logged("client.revoked")] == ["g"]


@pytest.mark.parametrize("how", ["user", "ban", "right", "nothing"])
def test_a_delayed_will_asks_again(how: str) -> None:
    users = Users()
    sim = make_named_sim(users, acl=OPEN)
    reader, client = Client(sim, "r"), Client(sim, "c")
    connect_as(reader, None)
    reader.subscribe("will")
    connect_as(client, "ada", will=Will("will", b"x", 1, delay_s=10), expiry_s=1000)
    client.cut()
    if how == "user":
        users.removed.add("ada")
    elif how == "ban":
        sim.live.services.ban_enforcer.use(BanList([make_ban("username", "ada")]))
    elif how == "right":
        use_acl(sim, "topic readwrite #\n")
    revoke(sim.live.services, sim.live.services.registry, sim.live.services.shared_subscriptions)
    sim.run_for(11_000_000)
    assert reader.payloads() == ([b"x"] if how == "nothing" else [])
    reasons = [event["reason"] for event in sim.logged("will.refused")]
    why = {"nothing": [], "ban": ["banned"]}
    assert reasons == why.get(how, ["not authorized"])


def test_what_waits_for_the_window_is_looked_at_again() -> None:
    """Messages in memory were allowed when they came; those in flight have gone."""
    sim = make_named_sim(acl=OPEN)
    publisher, reader = Client(sim, "p"), Client(sim, "r", acks=False)
    connect_as(publisher, None)
    connect_as(reader, "ada", receive_maximum=1)
    reader.subscribe("a", "b", qos=1)
    for number in range(6):
        publisher.deliver("ab"[number % 2], b"%d" % number)
    session = sim.live.services.registry.live["r"]
    assert len(session.outbound.pending) == 5
    use_acl(sim, "topic readwrite #\nuser ada\ntopic read a\n")
    revoke(sim.live.services, sim.live.services.registry, sim.live.services.shared_subscriptions)
    reader.acks = True
    (first,) = reader.messages
    reader.send(Ack(PUBACK, first.packet_id))
    sim.run_for(200_000)
    assert [message.payload for message in reader.messages] == [b"0", b"2", b"4"]
    assert sim.live.services.metrics.messages_dropped_not_authorized == 3
    assert session.outbound.is_idle()
    reader.cut()
    assert connect_as(reader, "ada").session_present
    assert reader.payloads() == []


def test_what_a_banned_client_published_is_taken_out_too() -> None:
    """Trap 54, for what is in memory already."""
    sim = make_named_sim()
    bad, reader = Client(sim, "bad"), Client(sim, "r", acks=False)
    connect_as(bad, None)
    connect_as(reader, "ada", receive_maximum=1)
    reader.subscribe("t", qos=1)
    for number in range(3):
        bad.deliver("t", b"%d" % number)
    sim.live.services.ban_enforcer.use(BanList([make_ban("client_id", "bad")]))
    reader.acks = True
    reader.send(Ack(PUBACK, reader.messages[0].packet_id))
    sim.run_for(200_000)
    assert [message.payload for message in reader.messages] == [b"0"]


def test_a_subscription_that_is_not_allowed_any_more_stops_delivering() -> None:
    sim = make_named_sim(acl=OPEN)
    publisher, reader = Client(sim, "p"), Client(sim, "r")
    connect_as(publisher, None)
    connect_as(reader, "ada")
    reader.subscribe("t")
    publisher.deliver("t", b"1")
    assert reader.payloads() == [b"1"]
    use_acl(sim, "topic readwrite #\n")
    revoke(sim.live.services, sim.live.services.registry, sim.live.services.shared_subscriptions)
    publisher.deliver("t", b"2")
    publisher.deliver("t", b"3", qos=0)
    assert reader.payloads() == []
    use_acl(sim, OPEN)
    publisher.deliver("t", b"4")
    assert reader.payloads() == [b"4"]
