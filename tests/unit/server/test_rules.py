"""What the rooms of a broker say of one message to one session."""

from __future__ import annotations

from tests.support.world import World
from tests.unit.broker.harness import CALM, QUIET, Client

from perdure.broker.auth.acl import AclAuthorizer, AclRules
from perdure.config.schema import Config
from perdure.model import Message, SessionRecord
from perdure.server.rules import Rules


def make_world(acl: str) -> World:
    rules = AclAuthorizer(AclRules.parse(acl, name="acl"))
    world = World(config=Config(sys=QUIET), weather=CALM, authorizer=rules)
    world.start()
    return world


def offline(client_id: str, username: str = "") -> SessionRecord:
    return SessionRecord(client_id, 1, 0, 60, False, 0, username=username)


def test_rights_of_an_offline_client() -> None:
    services = make_world("topic write #\ntopic read open/#").live.services
    plain = Rules(services, offline("a"), lambda _: False)
    assert plain.may_get("open/x", "p")
    assert not plain.may_get("shut", "p")
    assert not plain.may_subscribe("shut")
    root = Rules(services, offline("a", "root"), lambda name: name == "root")
    assert root.may_get("shut", "p")
    assert plain.excess(Message("t", bytes(1000)), 1, False, ()) == (0, 0)
    assert not plain.is_congested()
    assert plain.may_publish("nobody", "shut")


def test_asking_leaves_no_decision_behind() -> None:
    world = make_world("topic readwrite open/#")
    client = Client(world, "a")
    client.connect()
    live = world.live.services.registry.live["a"]
    live.identity.access = None
    rules = Rules(world.live.services, live.record, lambda _: False)
    assert rules.may_get("open/x", "p")
    assert not rules.may_publish("a", "shut")
    assert live.identity.access is None


def test_packet_size_and_members() -> None:
    world = make_world("topic readwrite #")
    clients = [Client(world, name) for name in "abc"]
    for client in clients:
        client.connect(packet_size_max=100)
        client.subscribe("$share/g/t")
    rules = Rules(world.live.services, offline("a"), lambda _: False)
    assert rules.others("g/t", "t", "p") == ["b", "c"]
    assert rules.others("h/t", "t", "p") == []
    size, limit = rules.excess(Message("t", bytes(200)), 1, False, ())
    assert limit == 100
    assert size > 200
    assert rules.excess(Message("t", bytes(20)), 1, False, ()) == (0, 0)
    assert rules.is_recorded(Message("t", b"", 1))
    assert rules.refusal(Message("t", b"", 1)) == 0
    assert not rules.ban()
