"""Quotas of sessions and subscriptions, and the counts behind them."""

from __future__ import annotations

import pytest

from perdure.broker.sessions.counts import SessionCounts
from perdure.config.schema import Config, LimitsConfig, SessionConfig
from perdure.limits import WILL_BYTES_FREE
from perdure.model import Will
from perdure.mqtt.packets import PUBACK, PUBCOMP, PUBREC, Ack
from perdure.observe.metrics import Metrics
from tests.support.sim_broker import SimBroker
from tests.unit.broker.harness import QUIET, Client, make_sim


def limited(**limits: int) -> SimBroker:
    return make_sim(config=Config(sys=QUIET, limits=LimitsConfig(**limits)))


def counts(sim: SimBroker) -> tuple[int, int, int]:
    """Sessions, subscriptions of connected ones, and of the others."""
    services = sim.live.services
    metrics = services.metrics
    return services.session_counts.sessions, metrics.subscriptions, metrics.subscriptions_offline


def test_refusal() -> None:
    tally = SessionCounts(Metrics())
    limits = LimitsConfig(sessions_max=3, sessions_per_user_max=2)
    for name in ("ada", "ada"):
        assert tally.refusal(name, limits) == ""
        tally.added(name)
    assert tally.refusal("ada", limits) == "limits.sessions_per_user_max"
    assert tally.refusal("bob", limits) == ""
    tally.added("bob")
    assert tally.refusal("cyd", limits) == "limits.sessions_max"
    tally.removed("bob")
    tally.removed("ada")
    assert (tally.sessions, tally.of_user("ada"), tally.of_user("bob")) == (1, 1, 0)
    assert tally.refusal("ada", LimitsConfig(sessions_max=0)) == ""


@pytest.mark.parametrize("version", [4, 5])
def test_wills_of_connected_clients_are_bounded(version: int) -> None:
    sim = limited(will_bytes_max=10_000)

    def client(name: str) -> Client:
        return Client(sim, name, version=version)

    def large(size: int) -> Will:
        return Will("w", bytes(WILL_BYTES_FREE - 1 + size))

    held = sim.live.services.session_counts
    one, two, small = client("a"), client("b"), client("c")
    assert one.connect(will=large(6_000)).reason == 0
    assert two.connect(will=large(4_001)).reason == (0x97 if version == 5 else 3)
    assert sim.live.services.metrics.limit_refusals == {("limits.will_bytes_max",): 1}
    assert held.will_bytes == 6_000
    assert small.connect(will=large(0)).reason == 0
    assert one.connect(will=large(9_000)).reason == 0, "it takes over: its own is free then"
    assert held.will_bytes == 9_000
    assert two.connect(will=large(1_000)).reason == 0
    one.disconnect()
    two.cut()
    assert held.will_bytes == 0
    assert two.connect(will=large(10_000)).reason == 0


@pytest.mark.parametrize("version", [4, 5])
def test_no_session_beyond_the_quota_but_everybody_gets_the_own_one_back(version: int) -> None:
    """Trap 48: also with clean start, and also after a restart of the broker."""
    sim = limited(sessions_max=2)
    one, two, three = (Client(sim, name, version=version) for name in ("a", "b", "c"))
    assert one.connect().reason == 0
    assert two.connect().reason == 0
    assert three.connect().reason == (0x97 if version == 5 else 3)
    assert sim.live.services.metrics.limit_refusals == {("limits.sessions_max",): 1}
    one.disconnect()
    assert three.connect().reason
    assert one.connect().session_present
    assert one.connect(clean=True).reason == 0  # takes over, and begins anew
    one.disconnect()
    assert one.connect(clean=True).reason == 0
    two.cut()
    sim.kill()
    sim.start()
    if version == 4:
        assert sim.live.services.session_counts.sessions == 1  # the clean one has ended
        return
    assert sim.live.services.session_counts.sessions == 2
    assert three.connect().reason
    assert one.connect().reason == 0
    assert two.connect(clean=True, expiry_s=0).reason == 0
    two.disconnect()
    assert sim.live.services.session_counts.sessions == 1
    assert three.connect().reason == 0


def test_subscriptions_of_all_sessions_are_counted_through_restarts() -> None:
    sim = limited(subscriptions_max=4)
    one, two = Client(sim, "a"), Client(sim, "b")
    one.connect()
    assert one.subscribe("x/1", "x/2", "$share/g/x").reasons == [2, 2, 2]
    assert counts(sim) == (1, 3, 0)
    one.disconnect()
    assert counts(sim) == (1, 0, 3)
    two.connect()
    assert two.subscribe("y/1", "y/2").reasons == [2, 0x97]
    assert two.subscribe("y/1").reasons == [2]  # no new one
    two.unsubscribe("y/1")
    two.subscribe("y/3")
    assert counts(sim) == (2, 1, 3)
    sim.kill()  # while b is connected: nobody wrote what it had at the end
    sim.start()
    assert counts(sim) == (2, 0, 4)
    assert one.connect().session_present
    assert one.subscribe("y/9").reasons == [0x97]
    one.unsubscribe("x/1")
    assert one.subscribe("y/9").reasons == [2]
    assert one.connect(clean=True).reason == 0
    assert counts(sim) == (2, 0, 1)


@pytest.mark.parametrize("version", [4, 5])
def test_filters_of_a_session_have_a_length_together(version: int) -> None:
    sim = make_sim(config=Config(sys=QUIET, session=SessionConfig(subscription_bytes_max=300)))
    refused = 0x97 if version == 5 else 0x80
    client, other = Client(sim, "c", version=version), Client(sim, "o", version=version)
    client.connect(clean=False)
    assert client.subscribe("a" * 200, "b" * 101, "b" * 100).reasons == [2, refused, 2]
    assert client.subscribe("$share/g/x").reasons == [refused]
    assert client.subscribe("a" * 200, qos=1).reasons == [1]  # no new one
    other.connect()
    assert other.subscribe("c" * 300).reasons == [2]  # each has its own
    limit = ("session.subscription_bytes_max",)
    assert sim.live.services.metrics.limit_refusals == {limit: 2}
    client.cut()
    sim.kill()
    sim.start()
    assert client.connect(clean=False).session_present
    assert client.subscribe("x").reasons == [refused]
    client.unsubscribe("b" * 100)
    assert client.subscribe("$share/g/" + "x" * 98, "x").reasons == [2, 2]
    assert client.subscribe("y").reasons == [refused]
    client.unsubscribe("$share/g/" + "x" * 98)
    assert client.subscribe("z" * 99, "y").reasons == [2, refused]
    live = sim.live.services.registry.live["c"]
    assert live.subscription_bytes == sum(sub.size for sub in live.subs.values()) == 300


def test_filters_that_have_changed_count_as_long_as_they_are_remembered() -> None:
    sim = make_sim(config=Config(sys=QUIET, session=SessionConfig(subscription_bytes_max=300)))
    publisher, reader = Client(sim, "p"), Client(sim, "r", acks=False)
    publisher.connect()
    reader.connect()
    topic = "t" * 100
    reader.subscribe(topic, qos=1)
    reasons = []
    for number in range(6):
        publisher.deliver(topic, b"x")
        reasons += reader.subscribe(topic, qos=1 + (number + 1) % 2).reasons
    assert reasons.count(0x97) >= 2
    session = sim.live.services.registry.live["r"]
    assert session.ended
    held = (*session.subs.values(), *session.ended)
    assert session.subscription_bytes == sum(sub.size for sub in held) <= 300
    for packet in list(reader.messages):
        kind = PUBACK if packet.qos == 1 else PUBREC
        reader.send(
            Ack(kind, packet.packet_id),
            *([Ack(PUBCOMP, packet.packet_id)] if kind == PUBREC else []),
        )
    sim.run_for(2_000_000)
    assert not session.ended
    assert session.subscription_bytes == 100


def test_retained_messages_stop_at_the_quota() -> None:
    sim = limited(retained_messages_max=2)
    client = Client(sim, "c")
    client.connect()
    reasons = []
    for topic in ("a", "b", "c", "a"):
        packet_id = client.publish(topic, b"v", retain=True)
        sim.run_for(50_000)
        reasons += [p.reason for p in client.received if getattr(p, "packet_id", 0) == packet_id]
    assert reasons == [0x10, 0x10, 0x97, 0x10]
    client.publish("d", b"v", qos=0, retain=True)
    client.publish("b", b"", retain=True)
    sim.run_for(50_000)
    assert client.publish("d", b"v", retain=True)
    sim.run_for(50_000)
    services = sim.live.services
    assert services.database.retained_count == 2
    assert services.database.retained_size_of("d")
    assert services.metrics.limit_refusals == {("limits.retained_messages_max",): 2}


def test_retained_messages_of_one_turn_stop_at_the_quota_too() -> None:
    sim = limited(retained_messages_max=10, retained_bytes_max=0)
    client = Client(sim, "c")
    client.connect()
    for number in range(30):
        client.publish(f"t/{number}", b"v", retain=True)
    sim.run_for(200_000)
    assert sim.live.services.database.retained_count == 10


def test_bytes_of_retained_messages_stop_at_the_quota() -> None:
    sim = limited(retained_bytes_max=1000)
    database = sim.live.services.database
    client = Client(sim, "c")
    client.connect()
    for topic, size in (("a", 400), ("b", 400), ("c", 400), ("a", 400), ("a", 300), ("a", 900)):
        client.publish(topic, bytes(size), retain=True)
        sim.run_for(50_000)
    assert database.retained_size_of("a") < 400
    assert database.retained_size_of("b") > 400
    assert not database.retained_size_of("c")
    refused = sim.live.services.metrics.limit_refusals
    assert refused == {("limits.retained_bytes_max",): 2}
