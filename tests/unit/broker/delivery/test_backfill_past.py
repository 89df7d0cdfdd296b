"""A backfill that stands in the archive: across the seam in order, once, and left alone there by
retention where the archive has what the log drops."""

from __future__ import annotations

import random
from typing import final

import pytest

from perdure.broker.auth.authorize import Authorizer, Identity
from perdure.broker.delivery.backfill import Backfill
from perdure.config.schema import Config, RetentionConfig, SessionConfig
from perdure.model import Message
from perdure.mqtt.packets import Properties, Publish
from perdure.mqtt.reason_codes import QUOTA_EXCEEDED
from tests.support.past import FakePast
from tests.unit.broker.harness import QUIET, Client, make_sim

SETTINGS = Config(
    sys=QUIET,
    session=SessionConfig(inflight_max=4, feed_chunk=3, memory_pending_max=4),
    retention=RetentionConfig(time_s=0),
)
ALL = Properties(user_properties=(("replay-from", "0"),))


@final
class World:
    """A broker, its archive, and who publishes."""

    def __init__(self, config: Config = SETTINGS) -> None:
        self.sim = make_sim(config=config)
        self.kept: list[Message] = []
        """What the archive has."""
        self.bodies: list[bytes] = []
        self.attach()

    def attach(self) -> None:
        """The archive, for a broker that has just started."""
        sim = self.sim
        assert sim.scheduler is not None
        self.past = FakePast(sim.scheduler)
        self.past.messages = self.kept
        self.past.through = self.kept[-1].offset if self.kept else 0
        sim.live.services.past = self.past
        self.publisher = Client(sim, "p")
        self.publisher.connect(expiry_s=0, clean=True)

    def publish(self, count: int, topic: str = "t/{}", qos: int = 1) -> list[bytes]:
        made = []
        for _ in range(count):
            number = len(self.bodies)
            self.bodies.append(b"%d" % number)
            made.append(self.bodies[-1])
            self.publisher.deliver(topic.format(number % 3), self.bodies[-1], qos=qos)
        return made

    def rotate(self) -> None:
        self.sim.store.rotate(self.sim.clock.now_us())

    def archive(self) -> None:
        """All that has ended is in the archive."""
        log = self.sim.store.inner._live.log
        last = self.kept[-1].offset if self.kept else 0
        ended = self.sim.store.generations()[-1].since_offset
        self.kept += [each for each in log if last < each.offset < ended]
        self.past.through = max(self.past.through, ended - 1)

    def drop(self, count: int = 1) -> None:
        """Drop the oldest generations."""
        assert self.sim.scheduler is not None

        async def drop() -> None:
            for info in self.sim.store.generations()[:count]:
                await self.sim.live.services.retention.drop(info)

        self.sim.scheduler.run(drop())

    def told(self, event: str) -> int:
        return sum(1 for name, _ in self.sim.events if name == event)


def filled(generations: int = 3, count: int = 10) -> World:
    """A log that has lost its first generations to the archive."""
    world = World()
    for _ in range(generations):
        world.publish(count)
        world.rotate()
    world.publish(count)
    world.archive()
    world.drop(generations - 1)
    return world


def payloads(client: Client) -> list[bytes]:
    return [each.payload for each in client.messages]


@pytest.mark.parametrize("expiry_s", [0, 1000])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_across_the_seam(qos: int, expiry_s: int) -> None:
    world = filled()
    reader = Client(world.sim, "r")
    reader.connect(expiry_s=expiry_s, clean=True)
    reader.subscribe("t/+", qos=qos, properties=ALL)
    world.publish(5)
    assert reader.payloads(within_us=2_000_000) == world.bodies
    seam = world.sim.store.generations()[0].since_offset - 1
    assert {until for _, _, until in world.past.asked} == {seam}
    assert not world.sim.live.services.registry.live["r"].backfilling


def test_no_page_asks_generations_for_their_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    world = filled()
    reader = Client(world.sim, "r")
    reader.connect()
    monkeypatch.setattr(world.sim.store, "generations", lambda: pytest.fail("asked"))
    reader.subscribe("t/+", properties=ALL)
    assert reader.payloads(within_us=500_000) == world.bodies


def test_the_time_decides_where_it_begins() -> None:
    world = filled()
    reader = Client(world.sim, "r", version=4)
    reader.connect()
    at = world.kept[13].offset
    reader.subscribe(f"$replay/{at}/t/+")
    assert reader.payloads(within_us=2_000_000) == world.bodies[13:]
    # What the log has is read from there alone.
    world.past.asked.clear()
    last = world.sim.store.inner._live.log[-3].offset
    reader.subscribe(f"$replay/{last}/t/#")
    reader.payloads(within_us=1_000_000)
    assert world.past.asked == []


@final
class Some(Authorizer):
    """Lets everybody have everything but one topic."""

    def __init__(self) -> None:
        super().__init__(allow_all=False)

    @property
    def generation(self) -> int:
        return 0

    def publish(self, _identity: Identity, _topic: str) -> bool:
        return True

    def subscribe(self, _identity: Identity, _topic_filter: str) -> bool:
        return True

    def deliver(self, _identity: Identity, topic: str, _publisher: str = "") -> bool:
        return topic != "t/1"

    def has_rules(self) -> bool:
        return True


def test_filters_content_and_rights_hold_in_the_archive() -> None:
    world = World()
    for number in range(30):
        world.publisher.deliver(f"t/{number % 3}", b'{"n": %d}' % number)
    world.rotate()
    world.archive()
    world.drop()
    world.sim.live.services.authorizer = Some()
    reader = Client(world.sim, "r")
    reader.connect()
    where = ("filter", '{"n": {"$gte": 20}}')
    wish = Properties(user_properties=(("replay-from", "0"), where))
    reader.subscribe("t/+", properties=wish)
    expected = [b'{"n": %d}' % n for n in range(20, 30) if n % 3 != 1]
    assert reader.payloads(within_us=2_000_000) == expected


@pytest.mark.parametrize("crash", ["takeover", "kill", "power"])
def test_it_goes_on_at_the_kept_offset(crash: str) -> None:
    world = filled()
    reader = Client(world.sim, "r", acks=False)
    reader.connect()
    reader.subscribe("t/+", qos=1, properties=ALL)
    world.sim.run_for(3_000)
    assert payloads(reader)
    if crash != "takeover":
        world.sim.run_for(50_000)
        world.sim.kill(power=crash == "power")
        world.sim.start()
        world.attach()
    again = Client(world.sim, "r")
    assert again.connect().session_present
    world.sim.run_for(2_000_000)
    assert payloads(again) == world.bodies
    if crash == "kill":
        # It did not begin anew.
        assert min(after for _, after, _ in world.past.asked) > 0


def test_an_archive_that_is_away_is_waited_for() -> None:
    world = filled()
    world.past.is_away = True
    reader = Client(world.sim, "r")
    reader.connect()
    reader.subscribe("t/+", properties=ALL)
    live = Client(world.sim, "other")
    live.connect()
    live.subscribe("t/+")
    world.publish(3)
    world.sim.run_for(60_000_000)
    assert payloads(reader) == []
    # Nobody else waits.
    assert payloads(live) == world.bodies[-3:]
    world.past.is_away = False
    assert reader.payloads(within_us=2_000_000) == world.bodies


def test_nobody_waits_for_a_client_that_has_gone() -> None:
    world = filled()
    world.past.is_away = True
    for _ in range(3):
        reader = Client(world.sim, "r")
        reader.connect()
        reader.subscribe("t/+", properties=ALL)
        world.sim.run_for(10_000)
        reader.cut()
    world.sim.run_for(10_000)
    backfill = world.sim.live.services.backfill
    assert isinstance(backfill, Backfill)
    assert not backfill._running


def test_too_many_may_not_wait() -> None:
    world = filled()
    world.past.is_full = True
    reader = Client(world.sim, "r")
    reader.connect()
    ack = reader.subscribe("t/+", properties=ALL)
    assert ack.reasons == [QUOTA_EXCEEDED]
    # The log has this, and this asks for nothing.
    at = world.sim.store.generations()[0].since_offset
    wish = Properties(user_properties=(("replay-from", str(at)),))
    assert reader.subscribe("t/+", properties=wish).reasons == [2]
    assert reader.subscribe("x").reasons == [2]


@pytest.mark.parametrize("online", [False, True])
def test_retention_leaves_it_alone(online: bool) -> None:
    """The archive has what is dropped: nothing is copied, and all comes in order."""
    world = filled()
    reader = Client(world.sim, "r", acks=False)
    reader.connect()
    reader.subscribe("t/+", qos=1, properties=ALL)
    world.sim.run_for(10_000)
    if not online:
        reader.cut()
    world.publish(6)
    world.rotate()
    world.publish(6)
    world.archive()
    world.drop(2)
    assert world.told("replay.cut_short") == 0
    again = Client(world.sim, "r")
    again.connect()
    world.sim.run_for(2_000_000)
    assert payloads(again) == world.bodies


@pytest.mark.parametrize("online", [False, True])
def test_what_is_owed_and_nowhere_else_is_carried_over(online: bool) -> None:
    """The archive does not say that it has what is dropped: the session gets what came since it has
    subscribed, and the rest of the archive is given up."""
    world = filled()
    reader = Client(world.sim, "r", acks=False)
    reader.connect()
    reader.subscribe("t/+", qos=1, properties=ALL)
    world.sim.run_for(10_000)
    given = len(payloads(reader))
    if not online:
        reader.cut()
    owed = world.publish(6)
    world.rotate()
    world.drop(len(world.sim.store.generations()) - 1)
    assert world.told("replay.cut_short") >= 1
    assert world.sim.live.services.metrics.replays_cut_short >= 1
    again = Client(world.sim, "r")
    again.connect()
    world.sim.run_for(2_000_000)
    found = payloads(again)
    assert found[-len(owed) :] == owed
    assert found == sorted(set(found), key=world.bodies.index)
    assert len(found) >= given + len(owed)


def test_a_past_that_nobody_is_owed_is_no_reason_to_leave_the_archive() -> None:
    """All of the generation is older than the subscription, and it is not known to be archived."""
    world = filled()
    world.past.through = 0
    world.rotate()
    reader = Client(world.sim, "r", acks=False)
    reader.connect()
    reader.subscribe("t/+", qos=1, properties=ALL)
    world.sim.run_for(10_000)
    reader.cut()
    world.archive()
    world.past.through = 0
    world.drop(1)
    assert world.told("replay.cut_short") == 0
    again = Client(world.sim, "r")
    again.connect()
    world.sim.run_for(2_000_000)
    assert payloads(again) == world.bodies


def test_a_page_of_the_log_that_goes_meanwhile_is_read_again() -> None:
    """A read that waits: retention has dropped what it was to read."""
    world = filled(2)
    sim = world.sim
    reader = Client(sim, "r")
    reader.connect(expiry_s=0, clean=True)  # nobody carries anything over for it
    dropped = False

    async def pause() -> None:
        nonlocal dropped
        if dropped or not world.past.asked:
            return
        session = sim.live.services.registry.live.get("r")
        if session is None or not session.backfilling:
            return
        dropped = True
        world.rotate()
        world.archive()
        for info in sim.store.generations()[:-1]:
            sim.store.inner.drop_generation(info.generation)

    reader.subscribe("t/+", qos=1, properties=ALL)
    sim.store.pause = pause
    assert reader.payloads(within_us=3_000_000) == world.bodies
    assert dropped


@pytest.mark.parametrize("seed", range(40))
def test_whatever_happens_all_comes_once_in_order(seed: int) -> None:
    """Publishes, generations, drops, kills, an archive that is away and one that lags within what
    retention waits for; each message comes, in order, and again only with DUP."""
    chance = random.Random(seed)
    world = World()
    world.publish(chance.randrange(1, 20))
    reader: Client | None = None
    clients: list[Client] = []
    subscribed = False
    for _ in range(60):
        step = chance.randrange(9)
        if step <= 1:
            world.publish(chance.randrange(1, 8), qos=chance.choice((1, 2)))
        elif step == 2:
            world.rotate()
        elif step == 3:
            world.archive()
        elif step == 4:
            # Retention waits for the archive (``keep_for``).
            for info in world.sim.store.generations()[:-1]:
                if info.until_offset - 1 <= world.past.through:
                    world.drop(1)
        elif step == 5:
            world.past.is_away = not world.past.is_away
            world.past.page = chance.choice((1, 3, 50))
        elif step == 6:
            world.sim.kill(power=False)
            world.sim.start()
            world.attach()
            reader = None
        elif step == 7 and reader is not None:
            reader.cut()
            reader = None
        elif reader is None:
            reader = Client(world.sim, "r")
            clients.append(reader)
            reader.connect()
            if not subscribed:
                reader.subscribe("t/+", qos=chance.choice((1, 2)), properties=ALL)
                subscribed = True
        world.sim.run_for(chance.choice((100, 2_000, 100_000)))
    world.past.is_away = False
    if reader is None:
        reader = Client(world.sim, "r")
        clients.append(reader)
        reader.connect()
        if not subscribed:
            reader.subscribe("t/+", qos=1, properties=ALL)
    world.sim.run_for(10_000_000)
    found: list[bytes] = []
    for client in clients:
        for message in client.messages:
            assert isinstance(message, Publish)
            if message.payload not in found:
                found.append(message.payload)
            else:
                assert message.dup or message.qos == 2
    assert found == world.bodies, f"seed {seed}"
    assert world.told("replay.cut_short") == 0
