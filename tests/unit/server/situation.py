"""Random situations on a whole broker, to hold against what ``explain`` says of them."""

from __future__ import annotations

import random
from typing import Final, final

from perdure.admin.records.explain import ANY, ExplainSession, Explanation, What
from perdure.broker.auth.acl import AclAuthorizer
from perdure.broker.auth.acl_rules import AclRules
from perdure.broker.auth.bans import BanList, make_ban
from perdure.config.schema import Config, SessionConfig, StorageConfig
from perdure.model import Message
from perdure.mqtt.encode import forward_properties
from perdure.mqtt.packets import Connack, Properties
from perdure.server.administration.listing import LiveTable
from perdure.server.administration.service import Call
from perdure.server.administration.sessions import SessionOperations
from perdure.server.administration.socket import LOCAL
from perdure.server.explain_record import newest
from tests.support.sim_broker import SimBroker
from tests.unit.broker.harness import NO_DELAY, QUIET, Client

TOPICS: Final = ("t/a", "t/b", "u", "t/no", "$own/a")
FILTERS: Final = ("t/a", "t/+", "t/+", "t/#", "t/#", "#", "#", "u", "t/b", "+/no", "$own/#")
RULES: Final = (
    "topic readwrite #\ntopic readwrite $own/#",
    "topic readwrite #\ntopic readwrite $own/#",
    "topic write #\ntopic read t/#",
    "topic write #\ntopic read t/a\ntopic read u",
    "topic write #",
    "topic readwrite #\ntopic deny t/no\ntopic readwrite $own/#",
    "topic write t/#\ntopic read #",
)
WHERE: Final = '{"$property.site":"north"}'
SITES: Final = (b"", forward_properties(Properties(user_properties=(("site", "north"),))))
"""Properties of messages: without a site, and with the one that ``WHERE`` wants."""

HELD_UP: Final = frozenset({"window_full", "socket_full", "offline"})
"""Verdicts after which the message comes later."""


def explained(sim: SimBroker, sessions: SessionOperations, topic: str, what: What) -> Explanation:
    """What a simulated broker says of a message to the session ``r``."""
    found: list[Explanation] = []
    asked = ExplainSession(
        client_id="r", topic=topic, publisher=what.publisher, qos=what.qos, size=what.size
    )

    async def ask() -> None:
        found.append(await sessions.explain(asked, Call(LOCAL)))

    assert sim.scheduler is not None
    sim.scheduler.run(ask())
    (answer,) = found
    return answer


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
        record = chance.choice((("#", "$own/#"), ("#", "$own/#"), ("t/#",)))
        self.authorizer = AclAuthorizer(AclRules.parse(chance.choice(RULES), name="acl"))
        self.sim = SimBroker(
            seed,
            config=Config(sys=QUIET, session=session, storage=StorageConfig(record=record)),
            network_profile=NO_DELAY,
            authorizer=self.authorizer,
        )
        self.sim.blocking_us = (1_000, 1_000)
        self.sim.start()
        services = self.sim.live.services
        self.sessions = SessionOperations(
            services, LiveTable(services.registry.live, services.clock.monotonic_us, node="n")
        )
        self.version = chance.choice((4, 5))
        self.reader = Client(self.sim, "r", version=self.version, acks=chance.random() < 0.7)
        self.other = Client(self.sim, "o")
        self.publishers = {"p": Client(self.sim, "p"), "r": self.reader}
        self.number = 0
        self.groups = 0
        """Of the reader, that want the topic that was asked about last."""
        self.story: list[object] = []

    def connect(self) -> Connack:
        """The reader connects, or comes back."""
        window = self.chance.choice((None, 2)) if self.version == 5 else None
        size = self.chance.choice((None, None, 60)) if self.version == 5 else None
        self.story.append(("connect", window, size))
        return self.reader.connect(receive_maximum=window, packet_size_max=size)

    def subscribe(self) -> None:
        """Some subscriptions, with any options."""
        chance = self.chance
        for _ in range(chance.choice((0, 1, 2, 2, 2, 3, 3, 4, 4, 4))):
            self.subscribe_one()

    def subscribe_one(self) -> None:
        """One subscription of the reader; if it is a shared one, perhaps of the other, too."""
        chance, v5 = self.chance, self.version == 5
        topic_filter, qos = chance.choice(FILTERS), chance.choice((0, 1, 2))
        shared = chance.random() < 0.2
        options = {
            "no_local": int(v5 and not shared and chance.random() < 0.3),
            "retain_as_published": int(v5 and chance.random() < 0.3),
            "retain_handling": chance.choice((0, 0, 1, 2)) if v5 else 0,
        }
        wishes: list[tuple[str, str]] = []
        if v5 and chance.random() < 0.15:
            wishes.append(("filter", WHERE))
        if v5 and chance.random() < 0.15:
            wishes.append(("replay-from", "0"))
        elif not v5 and chance.random() < 0.15 and not shared:
            topic_filter = f"$replay/0/{topic_filter}"
        identifiers = (chance.choice((1, 268_435_455)),) if v5 and chance.random() < 0.3 else ()
        if shared:
            topic_filter = f"$share/g/{topic_filter}"
            if chance.random() < 0.5:
                where = Properties(user_properties=tuple(wishes))
                self.other.subscribe(topic_filter, qos=chance.choice((0, qos)), properties=where)
        properties = Properties(user_properties=tuple(wishes), subscription_identifiers=identifiers)
        self.story.append(("subscribe", topic_filter, qos, options, properties))
        self.reader.subscribe(topic_filter, qos=qos, properties=properties, **options)

    def change_rules(self) -> None:
        """Another ACL holds from now on."""
        rules = self.chance.choice(RULES)
        self.story.append(("rules", rules))
        self.authorizer.reload(AclRules.parse(rules, name="acl"))

    def explain(self, topic: str, what: What = ANY) -> str:
        """The verdict; ``content_decides`` also where the client has to come back first."""
        answer = explained(self.sim, self.sessions, topic, what)
        self.groups = sum(f.detail.count("$share/") for f in answer.findings if f.code == "match")
        self.story.append((topic, what, answer.verdict, answer.findings))
        if answer.verdict in HELD_UP and any(f.code == "content_decides" for f in answer.findings):
            return "content_decides"
        return answer.verdict

    def publish(
        self,
        publisher: str,
        topic: str,
        qos: int,
        size: int,
        expiry_s: int = -1,
        *,
        retain: bool = False,
        forward: bytes = b"",
    ) -> bytes:
        """One message, whose payload is like no other."""
        payload = self.payload(size)
        self.story.append(("publish", publisher, topic, qos, retain, len(payload), payload[:8]))
        self.story.append((expiry_s, forward))
        client = self.publishers[publisher]
        v5 = client.version == 5
        client.publish(
            topic,
            payload,
            qos=qos,
            retain=retain,
            expiry_s=expiry_s if v5 else -1,
            forward=forward if v5 else b"",
        )
        self.sim.run_for(50_000)
        return payload

    def payload(self, size: int) -> bytes:
        """A payload like no other."""
        self.number += 1
        return (b"%d-" % self.number).ljust(size, b".")[: max(size, 8)]

    def publish_some(self, count: int) -> None:
        """Messages of any kind."""
        chance = self.chance
        for _ in range(count):
            if self.publishers["p"].is_lost:
                return
            self.publish(
                "p",
                chance.choice(TOPICS),
                chance.choice((0, 1, 2)),
                8,
                chance.choice((-1, -1, -1, 1, 1000)),
                retain=chance.random() < 0.2,
                forward=chance.choice(SITES),
            )

    def last_properties(self, topic: str) -> bytes:
        """Those of the last recorded message on a topic."""
        found: list[list[Message]] = []

        async def read() -> None:
            found.append(await newest(self.sim.live.services.database, topic))

        assert self.sim.scheduler is not None
        self.sim.scheduler.run(read())
        (page,) = found
        return page[-1].properties if page else b""

    def got(self, payload: bytes, client: Client | None = None) -> bool:
        """Whether a client has ever been sent it."""
        packets = (client or self.reader).messages
        return any(packet.payload == payload for packet in packets)

    def assert_shared(self, payload: bytes) -> None:
        """One member of the group gets a message, once there is room in a window."""
        if not self.got(payload) and not self.got(payload, self.other):
            self.story.append("acknowledge")
            self.reader.acknowledge()
            self.sim.run_for(100_000)
        takers = self.got(payload), self.got(payload, self.other)
        assert any(takers), self.story
        # Each of several groups gives it to a member.
        assert not all(takers) or self.groups > 1, self.story

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

    def acknowledges(self, verdict: str) -> bool:
        """The reader acknowledges all that comes, by then or when it is back: if its window was in
        the way it need not leave, and what waits in memory has no limit."""
        if verdict == "window_full":
            self.story.append("acknowledge")
            self.reader.acknowledge()
            self.sim.run_for(500_000)
            return True
        if not self.reader.is_lost:
            self.go_away()
        return self.come_back_acknowledging()

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
    if run.chance.random() < 0.3:
        run.publish_some(run.chance.randint(1, 4))
    run.subscribe()
    run.publish_some(run.chance.randint(0, 5))
    if run.chance.random() < 0.1:
        run.change_rules()
    if run.chance.random() < 0.2:
        run.subscribe_one()
    if run.chance.random() < 0.4:
        run.go_away()
        run.publish_some(run.chance.randint(0, 6))
        if run.chance.random() < 0.3:
            run.connect()
            run.sim.run_for(100_000)
    if run.chance.random() < 0.1:
        run.change_rules()
    if run.chance.random() < 0.1:
        run.other.cut()
    if run.chance.random() < 0.15:
        run.ban(run.chance.choice(("r", "p", "o")))
        run.sim.run_for(20_000)
    return run
