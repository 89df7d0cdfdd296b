"""Quotas of sessions and subscriptions, and the counts behind them."""

from __future__ import annotations

import pytest

from perdure.broker.sessions.counts import SessionCounts
from perdure.config.schema import Config, LimitsConfig
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
