"""On which way a message comes to a session, and what holds it up there."""

from __future__ import annotations

from typing import Final

import pytest

from perdure.admin.records.explain import ANY, Explanation, What
from perdure.config.schema import Config, SessionConfig
from perdure.mqtt.packets import Properties
from perdure.server.administration.listing import LiveTable
from perdure.server.administration.sessions import SessionOperations
from tests.support.sim_broker import SimBroker
from tests.unit.broker.harness import NO_DELAY, QUIET, Client
from tests.unit.server.situation import explained

NORTH: Final = Properties(user_properties=(("filter", '{"$property.site":"north"}'),))
PAST: Final = Properties(user_properties=(("replay-from", "0"),))


class Scene:
    """A reader, another client and a publisher."""

    def __init__(self, *, window: int | None = None, acks: bool = True, **limits: int) -> None:
        self.sim = SimBroker(
            config=Config(sys=QUIET, session=SessionConfig(**limits)), network_profile=NO_DELAY
        )
        self.sim.blocking_us = (1_000, 1_000)
        self.sim.start()
        services = self.sim.live.services
        self.sessions = SessionOperations(
            services, LiveTable(services.registry.live, services.clock.monotonic_us, node="n")
        )
        self.reader = Client(self.sim, "r", acks=acks)
        self.other = Client(self.sim, "o")
        self.publisher = Client(self.sim, "p")
        self.reader.connect(receive_maximum=window)
        self.other.connect()
        self.publisher.connect()

    def explain(self, what: What = ANY, topic: str = "t") -> Explanation:
        return explained(self.sim, self.sessions, topic, what)

    def verdict(self, publisher: str = "p", qos: int = 1, size: int = 1) -> str:
        return self.explain(What(publisher=publisher, qos=qos, size=size)).verdict

    def publish(self, count: int = 1, *, topic: str = "t", expiry_s: int = -1) -> None:
        for _ in range(count):
            self.publisher.publish(topic, qos=1, expiry_s=expiry_s)
            self.sim.run_for(50_000)


def test_what_no_local_leaves_out_comes_by_the_group_alone() -> None:
    scene = Scene()
    scene.reader.subscribe("t", no_local=1)
    scene.reader.subscribe("$share/g/t")
    scene.other.subscribe("$share/g/t")
    assert scene.verdict("p") == "delivered"
    assert scene.verdict("r") == "shared"


def test_what_was_sent_in_time_has_not_expired() -> None:
    scene = Scene(acks=False)
    scene.reader.subscribe("t")
    scene.publish(expiry_s=5)
    scene.sim.run_for(6_000_000)
    assert scene.explain().verdict == "delivered"
    scene.reader.cut()
    scene.publish(expiry_s=5)
    scene.sim.run_for(6_000_000)
    assert scene.explain().verdict == "message_expired"


def test_what_a_group_gave_to_nobody_in_time_has_expired() -> None:
    scene = Scene()
    scene.reader.subscribe("$share/g/t")
    scene.publish(expiry_s=5)
    scene.reader.cut()
    assert scene.explain().verdict == "offline"
    scene.publish(expiry_s=5)
    assert scene.explain().verdict == "offline"
    scene.sim.run_for(6_000_000)
    assert scene.explain().verdict == "message_expired"
    assert scene.verdict() == "offline"  # one that is published now has not


def test_a_share_that_was_never_sent_expires() -> None:
    scene = Scene(window=1, acks=False)
    scene.reader.subscribe("$share/g/t")
    scene.publish(topic="t", expiry_s=5)
    scene.sim.run_for(6_000_000)
    codes = {finding.code for finding in scene.explain().findings}
    assert "addressed" in codes  # it was sent


def test_where_nothing_is_recorded_the_content_decides() -> None:
    scene = Scene()
    scene.reader.subscribe("t", properties=NORTH)
    assert scene.verdict() == "content_decides"
    scene.reader.subscribe("t/#")
    assert scene.verdict() == "delivered"  # this one wants it whatever is in it
    scene.reader.subscribe("t/#", qos=0)
    scene.reader.cut()
    found = scene.explain(What(publisher="p", qos=1))
    assert found.verdict == "offline"
    assert "it depends on what is in a message" in found.reason


def test_a_filter_that_is_not_fulfilled_keeps_nothing_for_who_is_offline() -> None:
    scene = Scene()
    scene.publish()
    scene.reader.subscribe("t", properties=NORTH)
    assert scene.verdict() == "filtered"
    scene.reader.subscribe("t/#", qos=0)
    scene.reader.cut()
    assert scene.verdict() == "qos0"


def test_a_full_window_does_not_hold_up_qos_0() -> None:
    scene = Scene(window=2, acks=False)
    scene.reader.subscribe("t")
    scene.publish(3)
    assert scene.verdict(qos=1) == "window_full"
    assert scene.verdict(qos=0) == "delivered"


def test_a_group_goes_by_who_has_room() -> None:
    scene = Scene(window=2, acks=False)
    scene.reader.subscribe("$share/g/t")
    scene.publish(3)
    assert scene.verdict(qos=1) == "window_full"
    assert scene.verdict(qos=0) == "congested"
    scene.other.subscribe("$share/g/t")
    scene.sim.run_for(50_000)
    assert scene.verdict(qos=1) == "shared_elsewhere"
    scene.reader.acknowledge()
    scene.sim.run_for(50_000)
    assert scene.verdict(qos=1) == "shared"


def test_a_member_that_subscribed_with_qos_0_is_waited_for() -> None:
    scene = Scene(window=1, acks=False)
    scene.reader.subscribe("u")
    scene.reader.subscribe("$share/g/t", qos=0)
    scene.publish(topic="u")
    assert scene.verdict(qos=1) == "window_full"


def test_that_others_are_dropped_says_nothing_of_a_new_one() -> None:
    """The limits drop the oldest."""
    scene = Scene(pending_messages_max=1, pending_bytes_max=100)
    scene.reader.subscribe("#")
    scene.reader.cut()
    scene.publish(topic="t")
    scene.publish(2, topic="u")
    assert scene.explain().verdict == "queue_full"
    assert scene.verdict() == "offline"
    assert scene.verdict(size=101) == "queue_full"


@pytest.mark.parametrize("sub_qos", [0, 1])
def test_what_a_backfill_gives_waits_without_limit(sub_qos: int) -> None:
    """It goes on with what is recorded while the client is away, whatever its QoS."""
    scene = Scene(window=1, acks=False, pending_bytes_max=100)
    for _ in range(1_000):
        scene.publisher.publish("t", qos=1)
    scene.sim.run_for(1_000_000)
    scene.reader.subscribe("t", qos=1, properties=PAST)
    scene.reader.subscribe("t", qos=sub_qos, retain_handling=2)
    scene.reader.cut()
    assert "backfilling" in {finding.code for finding in scene.explain().findings}
    assert scene.verdict(size=101) == "offline"
    assert scene.verdict(qos=0) == "qos0"


def test_what_a_limit_drops_may_come_by_a_group() -> None:
    scene = Scene(pending_bytes_max=100)
    scene.reader.subscribe("t")
    scene.reader.cut()
    assert scene.verdict(size=101) == "queue_full"
    scene.reader.connect()
    scene.reader.subscribe("$share/g/t")
    scene.reader.cut()
    assert scene.verdict(size=101) == "offline"
