"""What the rooms of a broker say of one message to one session."""

from __future__ import annotations

from perdure.broker.auth.acl import AclAuthorizer
from perdure.broker.auth.acl_rules import AclRules
from perdure.broker.auth.grant import grant_of
from perdure.config.schema import Config, LimitsConfig, MqttConfig
from perdure.model import Message, SessionRecord
from perdure.server.rules import Rules
from tests.support.sim_broker import SimBroker
from tests.unit.broker.harness import NO_DELAY, QUIET, Client


def make_sim(acl: str) -> SimBroker:
    rules = AclAuthorizer(AclRules.parse(acl, name="acl"))
    sim = SimBroker(config=Config(sys=QUIET), network_profile=NO_DELAY, authorizer=rules)
    sim.start()
    return sim


def offline(client_id: str, username: str = "") -> SessionRecord:
    return SessionRecord(client_id, 1, 0, 60, False, 0, username=username)


def test_rights_of_an_offline_client() -> None:
    services = make_sim("topic write #\ntopic read open/#").live.services
    plain = Rules(services, offline("a"), lambda _: False)
    assert plain.may_get("open/x", "p")
    assert not plain.may_get("shut", "p")
    assert not plain.may_subscribe("shut")
    root = Rules(services, offline("a", "root"), lambda name: name == "root")
    assert root.may_get("shut", "p")
    assert plain.excess(Message("t", bytes(1000)), 1, False, ()) == (0, 0)
    assert not plain.is_congested()
    assert plain.may_publish("nobody", "shut", None)


def test_rights_of_a_publisher() -> None:
    """Of one that is offline its session tells the user; of others nobody knows."""
    services = make_sim("topic write open/#\nuser ann\ntopic write #").live.services
    rules = Rules(services, offline("a"), lambda _: False)
    assert not rules.may_publish("p", "shut", offline("p"))
    assert rules.may_publish("p", "shut", offline("p", "ann"))
    assert rules.may_publish("p", "shut", None)


def test_asking_leaves_no_decision_behind() -> None:
    sim = make_sim("topic readwrite open/#")
    client = Client(sim, "a")
    client.connect()
    live = sim.live.services.registry.live["a"]
    live.identity.access = None
    rules = Rules(sim.live.services, live.record, lambda _: False)
    assert rules.may_get("open/x", "p")
    assert not rules.may_publish("a", "shut", None)
    assert live.identity.access is None


def test_packet_size_and_members() -> None:
    sim = make_sim("topic readwrite #")
    clients = [Client(sim, name) for name in "abc"]
    for client in clients:
        client.connect(packet_size_max=100)
        client.subscribe("$share/g/t")
    rules = Rules(sim.live.services, offline("a"), lambda _: False)
    may_have = rules.group("g/t", Message("t", b"", 1))
    assert (may_have.free, may_have.busy, may_have.unable) == (["b", "c"], [], [])
    too_large = rules.group("g/t", Message("t", bytes(200), 1))
    assert (too_large.free, too_large.busy, too_large.unable) == ([], [], ["b", "c"])
    nobody = rules.group("h/t", Message("t", b"", 1))
    assert (nobody.free, nobody.busy, nobody.unable) == ([], [], [])
    size, limit = rules.excess(Message("t", bytes(200)), 1, False, ())
    assert limit == 100
    assert size > 200
    assert rules.excess(Message("t", bytes(20)), 1, False, ()) == (0, 0)
    assert rules.is_recorded(Message("t", b"", 1))
    assert rules.refusal(Message("t", b"", 1)) == 0
    assert not rules.ban()


def test_rights_of_a_login_count() -> None:
    sim = make_sim("topic read open")
    Client(sim, "a").connect()
    live = sim.live.services.registry.live["a"]
    live.identity.grant = grant_of(["read granted"])
    rules = Rules(sim.live.services, live.record, lambda _: False)
    assert rules.may_get("granted", "p")
    assert rules.may_get("open", "p")
    assert not rules.may_get("shut", "p")


def test_what_the_broker_takes_from_nobody() -> None:
    mqtt = MqttConfig(
        packet_size_max=1024, maximum_qos=1, retain_available=False, topic_levels_max=3
    )
    sim = SimBroker(config=Config(sys=QUIET, mqtt=mqtt), network_profile=NO_DELAY)
    sim.start()
    rules = Rules(sim.live.services, offline("a"), lambda _: False)
    publisher = Client(sim, "p")
    for message, setting in (
        (Message("t", bytes(900), 1), ""),
        (Message("a/b/c", b"", 0), ""),
        (Message("t", bytes(1020), 1), "packet_size_max"),
        (Message("t", b"", 2), "maximum_qos"),
        (Message("t", b"", 1, True), "retain_available"),
        (Message("a/b/c/d", b"", 1), "topic_levels_max"),
    ):
        said = rules.unfit(message)
        assert setting in said
        assert bool(said) == bool(setting)
        publisher.connect()
        publisher.publish(message.topic, message.payload, qos=message.qos, retain=message.retain)
        sim.run_for(100_000)
        assert publisher.is_lost == bool(setting), message.topic


def test_a_ban_for_a_while_is_one() -> None:
    limits = LimitsConfig(flapping_max=2)
    sim = SimBroker(config=Config(sys=QUIET, limits=limits), network_profile=NO_DELAY)
    sim.start()
    client = Client(sim, "a")
    for _ in range(2):
        client.connect()
        client.cut()
    rules = Rules(sim.live.services, offline("a"), lambda _: False)
    assert "flapping" in rules.ban()
    assert not Rules(sim.live.services, offline("b"), lambda _: False).ban()
    assert client.connect().reason == 0x8A
