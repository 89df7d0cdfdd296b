"""What ``explain`` says is what a client gets: random situations on a whole broker."""

from __future__ import annotations

import random
from typing import Final, final

import pytest

from perdure.admin.records.explain import ANY, ExplainSession, Explanation, What
from perdure.broker.auth.acl import AclAuthorizer
from perdure.broker.auth.acl_rules import AclRules
from perdure.broker.auth.bans import BanList, make_ban
from perdure.config.schema import Config, SessionConfig, StorageConfig
from perdure.model import Message
from perdure.mqtt.packets import Connack
from perdure.server.administration.listing import LiveTable
from perdure.server.administration.service import Call
from perdure.server.administration.sessions import SessionOperations
from perdure.server.administration.socket import LOCAL
from tests.support.sim_broker import SimBroker
from tests.unit.broker.harness import NO_DELAY, QUIET, Client

TOPICS: Final = ("t/a", "t/b", "u")
FILTERS: Final = ("t/a", "t/+", "t/#", "#", "u", "t/b")
RULES: Final = (
    "topic readwrite #",
    "topic write #\ntopic read t/#",
    "topic write #\ntopic read t/a\ntopic read u",
    "topic write #",
    "topic write t/#\ntopic read #",
)
HELD_UP: Final = frozenset({"window_full", "socket_full", "offline"})
"""Verdicts after which the message comes later."""


@final
class Situation:
    """One client, its subscriptions, and whatever else decides on what it gets."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = random.Random(seed)
        session = SessionConfig(
            pending_messages_max=chance.choice((0, 0, 3)),
            pending_bytes_max=chance.choice((0, 0, 400)),
            pending_age_max_s=chance.choice((0, 0, 20)),
        )
        record = chance.choice((("#",), ("#",), ("t/#",)))
        self.sim = SimBroker(
            seed,
            config=Config(sys=QUIET, session=session, storage=StorageConfig(record=record)),
            network_profile=NO_DELAY,
            authorizer=AclAuthorizer(AclRules.parse(chance.choice(RULES), name="acl")),
        )
        self.sim.blocking_us = (1_000, 1_000)
        self.sim.start()
        services = self.sim.live.services
        self.sessions = SessionOperations(
            services, LiveTable(services.registry.live, services.clock.monotonic_us, node="n")
        )
        self.version = chance.choice((4, 5))
        self.reader = Client(self.sim, "r", version=self.version, acks=chance.random() < 0.9)
        self.other = Client(self.sim, "o")
        self.publishers = {"p": Client(self.sim, "p"), "r": self.reader}
        self.number = 0
        self.story: list[object] = []

    def connect(self) -> Connack:
        """The reader connects, or comes back."""
        window = self.chance.choice((None, None, 2)) if self.version == 5 else None
        size = self.chance.choice((None, None, 60)) if self.version == 5 else None
        self.story.append(("connect", window, size))
        return self.reader.connect(receive_maximum=window, packet_size_max=size)

    def subscribe(self) -> None:
        """Some subscriptions, with any options."""
        chance, v5 = self.chance, self.version == 5
        for _ in range(chance.choice((0, 1, 1, 2, 2, 3, 3, 4))):
            topic_filter, qos = chance.choice(FILTERS), chance.choice((0, 1, 2))
            no_local = v5 and chance.random() < 0.3
            shared = chance.random() < 0.15
            if shared:
                topic_filter, no_local = f"$share/g/{topic_filter}", False
                if chance.random() < 0.5:
                    self.other.subscribe(topic_filter, qos=qos)
            self.story.append(("subscribe", topic_filter, qos, no_local))
            self.reader.subscribe(topic_filter, qos=qos, no_local=no_local)

    def explain(self, topic: str, what: What = ANY) -> str:
        """The verdict."""
        found: list[Explanation] = []
        asked = ExplainSession(
            client_id="r", topic=topic, publisher=what.publisher, qos=what.qos, size=what.size
        )

        async def ask() -> None:
            found.append(await self.sessions.explain(asked, Call(LOCAL)))

        assert self.sim.scheduler is not None
        self.sim.scheduler.run(ask())
        (answer,) = found
        self.story.append((topic, what, answer.verdict, answer.findings))
        return answer.verdict

    def publish(self, publisher: str, topic: str, qos: int, size: int, expiry_s: int = -1) -> bytes:
        """One message, whose payload is like no other."""
        self.number += 1
        payload = (b"%d-" % self.number).ljust(size, b".")[: max(size, 8)]
        self.story.append(("publish", publisher, topic, qos, len(payload), payload[:8]))
        client = self.publishers[publisher]
        v5 = client.version == 5
        client.publish(topic, payload, qos=qos, expiry_s=expiry_s if v5 else -1)
        self.sim.run_for(50_000)
        return payload

    def got(self, payload: bytes, client: Client | None = None) -> bool:
        """Whether a client has ever been sent it."""
        packets = (client or self.reader).messages
        return any(packet.payload == payload for packet in packets)

    def go_away(self) -> None:
        """The reader is offline from now on."""
        self.story.append("away")
        self.reader.cut()

    def come_back_acknowledging(self) -> bool:
        """The reader comes back, takes all it is given, and acknowledges it."""
        self.reader.acks = True
        self.story.append("back")
        if self.reader.connect().reason:
            return False
        self.sim.run_for(500_000)
        return True

    def ban(self, client_id: str) -> None:
        """Ban somebody."""
        self.story.append(("ban", client_id))
        bans = BanList([make_ban("client_id", client_id, until_us=0, reason="why")])
        self.sim.live.services.ban_enforcer.use(bans)


def make_situation(seed: int) -> Situation:
    """A situation with some past."""
    run = Situation(seed)
    run.publishers["p"].connect()
    run.other.connect()
    run.connect()
    run.subscribe()
    for _ in range(run.chance.randint(0, 5)):
        run.publish("p", run.chance.choice(TOPICS), run.chance.choice((0, 1, 2)), 8)
    if run.chance.random() < 0.4:
        run.go_away()
        for _ in range(run.chance.randint(0, 4)):
            run.publish("p", run.chance.choice(TOPICS), run.chance.choice((0, 1, 2)), 8)
    if run.chance.random() < 0.15:
        run.ban(run.chance.choice(("r", "p")))
        run.sim.run_for(20_000)
    return run


@pytest.mark.parametrize("seed", range(60))
def test_the_verdict_on_a_message_that_is_yet_to_be_published(seed: int) -> None:
    run = make_situation(seed)
    chance = run.chance
    online = not run.reader.is_lost
    banned = run.sim.live.services.ban_enforcer.bans.in_force(run.sim.clock.now_us())
    publisher = "r" if online and chance.random() < 0.3 else "p"
    if banned and publisher == "p" and run.publishers["p"].is_lost:
        return  # it can publish nothing
    topic, qos = chance.choice(TOPICS), chance.choice((0, 1, 2))
    size = chance.choice((8, 70, 500))
    verdict = run.explain(topic, What(publisher=publisher, qos=qos, size=size))
    payload = run.publish(publisher, topic, qos, size)
    at_once = run.got(payload)
    others = run.got(payload, run.other)
    if verdict == "delivered":
        assert at_once, run.story
        return
    if verdict == "shared":
        assert at_once != others, run.story
        return
    if verdict not in HELD_UP:
        assert not at_once, run.story
    if not run.reader.is_lost:
        run.go_away()
    came = run.come_back_acknowledging() and run.got(payload)
    if verdict == "too_large":
        return  # it may take more by then, if it has not been given up
    assert came == (verdict in HELD_UP), run.story


@pytest.mark.parametrize("seed", range(40))
def test_the_verdict_on_the_last_message_that_was_published(seed: int) -> None:
    """Asked about a topic alone, it speaks of the last recorded message there, whose fate is
    known."""
    run = make_situation(1000 + seed)
    chance = run.chance
    if run.publishers["p"].is_lost:
        return
    topic, qos = chance.choice(TOPICS), chance.choice((1, 2))
    publisher = "r" if not run.reader.is_lost and chance.random() < 0.3 else "p"
    expiry_s = chance.choice((-1, -1, 5))
    payload = run.publish(publisher, topic, qos, chance.choice((8, 70)), expiry_s)
    if chance.random() < 0.3:
        run.sim.run_for(chance.choice((6_000_000, 30_000_000)))
    if not run.sim.live.services.publish_path.is_recorded(Message(topic, b"", qos)):
        return
    if not run.sim.live.services.authorizer.publish(
        run.sim.live.services.registry.live[publisher].identity, topic
    ):
        return
    verdict = run.explain(topic)
    at_once = run.got(payload)
    if verdict == "delivered":
        assert at_once, run.story
        return
    if verdict == "shared":
        assert at_once != run.got(payload, run.other), run.story
        return
    if at_once:
        assert verdict in HELD_UP, run.story  # what is in the way now came after it
        return
    if not run.reader.is_lost:
        run.go_away()
    came = run.come_back_acknowledging() and run.got(payload)
    if verdict != "too_large":
        assert came == (verdict in HELD_UP), run.story


@pytest.mark.parametrize("seed", range(60))
def test_groups_whose_members_come_and_go(seed: int) -> None:
    """The reader's group may have another member, which may have no right or no room."""
    run = Situation(2000 + seed)
    chance = run.chance
    for client in run.publishers.values():
        client.connect()
    run.other.connect(packet_size_max=chance.choice((None, 60)))
    for _ in range(chance.choice((1, 1, 2))):
        name = f"$share/g/{chance.choice(FILTERS)}"
        run.reader.subscribe(name, qos=chance.choice((0, 1, 2)))
        if chance.random() < 0.7:
            run.other.subscribe(name, qos=chance.choice((0, 1, 2)))
        run.story.append(name)
    if chance.random() < 0.4:
        run.reader.subscribe(chance.choice(FILTERS), qos=chance.choice((0, 0, 1)))
    is_away = chance.random() < 0.7
    if is_away:
        run.go_away()
    topic, qos, size = chance.choice(TOPICS), chance.choice((0, 1, 1)), chance.choice((8, 70))
    verdict = run.explain(topic, What(publisher="p", qos=qos, size=size))
    payload = run.publish("p", topic, qos, size)
    at_once = run.got(payload)
    if verdict == "shared":
        assert at_once != run.got(payload, run.other), run.story
        return
    assert at_once == (verdict == "delivered"), run.story
    if is_away:
        came = run.come_back_acknowledging() and run.got(payload)
        assert came == (verdict == "offline"), run.story
        services = run.sim.live.services
        may = services.authorizer.publish(services.registry.live["p"].identity, topic)
        if may and verdict in {"shared_elsewhere", "passed_over"}:
            assert run.got(payload, run.other) == (verdict == "shared_elsewhere"), run.story
