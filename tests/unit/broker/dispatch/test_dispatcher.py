"""Who is handed what, and when: QoS 1 once written, QoS 2 once synced, all in log order."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator

import pytest

from perdure.broker.dispatch import dispatcher as dispatch
from perdure.broker.dispatch.dispatcher import UNMATCHED_MAX, Dispatcher
from perdure.broker.dispatch.items import Barrier, Item
from perdure.broker.dispatch.router import GroupSubscriber, Router, Subscriber, SubscriberEntry
from perdure.config.schema import Config, SessionConfig, StorageConfig
from perdure.model import Message, SessionRecord, Subscription
from perdure.mqtt.packets import PUBACK, PUBREC, Ack, Packet, Properties, Publish
from perdure.observe.metrics import Metrics
from perdure.storage.rows import rows_of
from tests.support.sim_broker import SimBroker
from tests.unit.broker.harness import QUIET, Client, make_sim, stalled_sim

NOBODY = 0x10


class Place:
    """A gate that does something when it is opened."""

    def __init__(self, do: Callable[[], object]) -> None:
        self.do = do

    def open(self) -> None:
        self.do()

    def __await__(self) -> Generator[None, None, None]:
        raise NotImplementedError


def _dispatcher() -> Dispatcher:
    return Dispatcher(Router(), Metrics(), offset=0, gate_qos2=True)


def test_a_qos_2_message_waits_for_its_sync_and_what_follows_waits_with_it() -> None:
    sim = stalled_sim(durability="os")
    publisher, reader = Client(sim, "p"), Client(sim, "r")
    publisher.connect(expiry_s=0, clean=True)
    reader.connect(expiry_s=0, clean=True)
    reader.subscribe("t")
    publisher.publish("t", b"1", qos=1)
    publisher.publish("t", b"2", qos=2)
    publisher.publish("t", b"3", qos=1)
    assert reader.payloads(within_us=5_000_000) == [b"1"]


def test_a_power_cut_takes_no_qos_2_message_back() -> None:
    """It was never handed over, so its publisher may send it again."""
    sim = stalled_sim(durability="os")
    publisher, reader = Client(sim, "p"), Client(sim, "r")
    reader.connect(expiry_s=0, clean=True)
    reader.subscribe("t")
    publisher.connect(expiry_s=0, clean=True)
    publisher.publish("t", b"x", qos=2)
    sim.run_for(10_000)
    sim.kill(power=True)
    sim.start()
    reader.connect(expiry_s=0, clean=True)
    reader.subscribe("t")
    publisher.connect(expiry_s=0, clean=True)
    publisher.publish("t", b"x", qos=2, packet_id=1, dup=True)
    sim.run_for(50_000)
    assert [message.payload for message in reader.messages] == [b"x"]


def test_a_qos_2_delivery_comes_before_its_pubrec() -> None:
    sim = make_sim()
    client = Client(sim, "c", acks=False)
    client.connect()
    client.subscribe("t", qos=1)
    client.publish("t", qos=2)
    sim.run_for(50_000)
    kinds = [type(packet) for packet in client.received if not isinstance(packet, int)]
    assert kinds == [Publish, Ack]


@pytest.mark.trap(51)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_what_is_published_right_after_suback_arrives(qos: int) -> None:
    """Trap 51: the subscription is in effect before its SUBACK."""
    sim = make_sim()
    publisher, reader = Client(sim, "p"), Client(sim, "r")
    publisher.connect(expiry_s=0, clean=True)
    for number in range(20):
        reader.connect(expiry_s=1000 * (number % 2), clean=True)
        reader.subscribe(f"t/{number}")
        publisher.publish(f"t/{number}", b"%d" % number, qos=qos)
        assert reader.take(Publish).payload == b"%d" % number


def test_overlapping_subscriptions_bring_one_copy() -> None:
    sim = make_sim()
    publisher, reader = Client(sim, "p"), Client(sim, "r")
    publisher.connect(expiry_s=0, clean=True)
    reader.connect()
    reader.subscribe("t/#", qos=0)
    reader.subscribe("t/+", qos=2)
    reader.subscribe("t/a", qos=1)
    publisher.deliver("t/a", b"x", qos=2)
    sim.run_for(100_000)
    assert [(m.payload, m.qos) for m in reader.messages] == [(b"x", 2)]


@pytest.mark.trap(53)
def test_a_retained_message_that_was_replaced_is_the_new_one() -> None:
    """Trap 53: also through a restart."""
    sim = make_sim()
    publisher, reader = Client(sim, "p"), Client(sim, "r")
    publisher.connect()
    publisher.deliver("t", b"old", qos=1, retain=True)
    publisher.deliver("t", b"new", qos=2, retain=True)
    reader.connect()
    reader.subscribe("t")
    assert reader.payloads() == [b"new"]
    sim.kill(power=True)
    sim.start()
    reader.connect(clean=True)
    reader.subscribe("t")
    assert reader.payloads() == [b"new"]


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
def test_a_retained_message_reaches_a_session_in_memory(qos: int, granted: int) -> None:
    """A QoS 2 delivery that is stored nowhere waits for no sync."""
    sim = make_sim()
    publisher, reader = Client(sim, "p"), Client(sim, "r")
    publisher.connect(expiry_s=0, clean=True)
    publisher.deliver("t", b"kept", qos=qos, retain=True)
    sim.run_for(100_000)
    reader.connect(expiry_s=0, clean=True)
    reader.subscribe("t", qos=granted)
    assert reader.payloads() == [b"kept"]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_retained_message_that_is_not_recorded_comes_once(qos: int) -> None:
    """The fence passes its offset, so a later subscription finds it on the right side."""
    sim = make_sim(config=Config(sys=QUIET, storage=StorageConfig(record=("other/#",))))
    publisher, reader = Client(sim, "p"), Client(sim, "r")
    publisher.connect(expiry_s=0, clean=True)
    publisher.deliver("t", b"kept", qos=qos, retain=True)
    sim.run_for(100_000)
    reader.connect()
    reader.subscribe("t", qos=2)
    assert reader.payloads() == [b"kept"]


@pytest.mark.trap(16)
def test_a_qos_2_subscription_lives_on_after_a_restart() -> None:
    """Trap 16: it gets what is published before its client is back, and after."""
    sim = make_sim()
    publisher, reader = Client(sim, "p"), Client(sim, "r")
    reader.connect()
    reader.subscribe("t")
    sim.kill(power=True)
    sim.start()
    publisher.connect(expiry_s=0, clean=True)
    publisher.deliver("t", b"before", qos=2)
    reader.connect()
    publisher.deliver("t", b"after", qos=2)
    assert reader.payloads() == [b"before", b"after"]


def _reason(publisher: Client, topic: str) -> int:
    packet_id = publisher.publish(topic)
    found = publisher.take(Ack)
    assert (found.kind, found.packet_id) == (PUBACK, packet_id)
    return found.reason


def _publisher(sim: SimBroker, version: int = 5) -> Client:
    publisher = Client(sim, "p", version=version)
    publisher.connect(clean=True, expiry_s=0)
    return publisher


def test_a_publisher_is_told_that_nobody_listens() -> None:
    """3.4.2.1: PUBACK 0x10, while that is known and no longer."""
    sim = make_sim()
    publisher, reader = _publisher(sim), Client(sim, "r")
    assert _reason(publisher, "t") == NOBODY
    reader.connect(clean=True, expiry_s=60)
    reader.subscribe("t")
    assert _reason(publisher, "t") == 0
    assert _reason(publisher, "other") == NOBODY
    reader.disconnect()
    assert _reason(publisher, "t") == 0  # it is kept for the reader
    assert _reason(publisher, "other") == 0  # what the reader wants was not asked
    reader.connect()
    reader.disconnect(expiry_s=0)
    assert _reason(publisher, "t") == NOBODY
    assert not sim.live.services.dispatcher.unmatched


def test_a_group_listens() -> None:
    sim = make_sim()
    publisher, member = _publisher(sim), Client(sim, "m")
    member.connect(clean=True, expiry_s=0)
    member.subscribe("$share/g/t")
    assert _reason(publisher, "t") == 0


@pytest.mark.parametrize("durability", ["os", "memory"])
def test_who_does_not_wait_is_not_told(durability: str) -> None:
    """The acknowledgement leaves before the message is dispatched."""
    sim = make_sim(durability=durability)
    assert _reason(_publisher(sim), "t") == 0


def test_qos_2_and_version_311_know_no_such_thing() -> None:
    sim = make_sim()
    publisher = _publisher(sim)
    packet_id = publisher.publish("t", qos=2)
    assert publisher.take(Ack) == Ack(PUBREC, packet_id)
    old = _publisher(sim, 4)
    assert _reason(old, "t") == 0


def test_what_nobody_asks_for_is_forgotten() -> None:
    sim = make_sim()
    unmatched = sim.live.services.dispatcher.unmatched
    unmatched.update(range(-UNMATCHED_MAX, 0))
    old = _publisher(sim, 4)
    old.deliver("t")
    assert len(unmatched) == 1


def test_what_one_item_causes_stands_behind_the_others() -> None:
    dispatcher, opened = _dispatcher(), list[int]()

    def add() -> None:
        opened.append(1)
        dispatcher.accept([Barrier(Place(lambda: opened.append(3)))])

    dispatcher.accept([Barrier(Place(add)), Barrier(Place(lambda: opened.append(2)))])
    dispatcher.run(0)
    assert opened == [1, 2, 3]
    assert not dispatcher.waits_for_sync()


def test_an_item_that_fails_is_not_handed_out_again() -> None:
    dispatcher, opened = _dispatcher(), list[int]()

    def fail() -> None:
        opened.append(1)
        raise RuntimeError

    dispatcher.accept([Barrier(Place(fail)), Barrier(Place(lambda: opened.append(2)))])
    with pytest.raises(RuntimeError):
        dispatcher.run(0)
    assert opened == [1]
    assert dispatcher.waits_for_sync()
    dispatcher.run(0)
    assert opened == [1, 2]


def test_what_was_handed_out_before_a_message_that_waits_is_not_handed_out_again() -> None:
    dispatcher, opened = _dispatcher(), list[int]()
    held = Message("t", b"", 2, offset=20)
    dispatcher.accept([Barrier(Place(lambda: opened.append(1))), held])
    dispatcher.accept([Barrier(Place(lambda: opened.append(2)))])
    dispatcher.run(19)
    dispatcher.run(19)
    assert (opened, dispatcher.offset) == ([1], 0)
    dispatcher.open_barriers()
    assert opened == [1, 2]
    dispatcher.run(20)
    assert (opened, dispatcher.offset) == ([1, 2, 2], 20)


def test_a_reset_leaves_nothing_to_hand_out() -> None:
    dispatcher, opened = _dispatcher(), list[int]()
    dispatcher.accept([Barrier(Place(lambda: dispatcher.reset(30)))])
    dispatcher.accept([Barrier(Place(lambda: opened.append(1))), Message("t", b"", 1, offset=20)])
    dispatcher.run(20)
    assert (opened, dispatcher.offset) == ([1], 30)
    assert not dispatcher.waits_for_sync()


def test_each_of_several_subscribers_is_found_when_the_others_go() -> None:
    sim = make_sim()
    publisher, readers = Client(sim, "p"), [Client(sim, f"r{n}") for n in range(3)]
    publisher.connect(expiry_s=0, clean=True)
    for count, reader in enumerate(readers, 1):
        reader.connect(expiry_s=0, clean=True)
        reader.subscribe("t")
        publisher.deliver("t", b"%d" % count)
    for reader in readers[:2]:
        reader.unsubscribe("t")
        publisher.deliver("t", b"less")
    found = [reader.payloads() for reader in readers]
    assert found == [[b"1", b"2", b"3"], [b"2", b"3", b"less"], [b"3", b"less", b"less"]]


def _bursts(seed: int, crowd: int) -> tuple[list[list[Publish]], dict[str, float]]:
    """What a subscriber with a narrow window gets of random bursts, what another one gets whose
    topics are among them, and so many who want the same as the first; and what was counted."""
    chance = random.Random(seed)
    config = Config(sys=QUIET, session=SessionConfig(outbound_buffer_bytes=4096))
    sim = make_sim(config=config)
    version = chance.choice((4, 5))
    publishers = [Client(sim, name, version=version, acks=False) for name in "ab"]
    reader = Client(sim, "r", version=version, acks=chance.random() < 0.5)
    reader.connect(receive_maximum=chance.choice((None, 3, 20)) if version == 5 else None)
    identifiers = chance.choice(((), (9,))) if version == 5 else ()
    reader.subscribe(
        "t/#",
        qos=chance.choice((0, 1, 1, 1, 2)),
        properties=Properties(subscription_identifiers=identifiers),
        retain_as_published=chance.choice((0, 1)) if version == 5 else 0,
    )
    other = Client(sim, "o")
    other.connect()
    other.subscribe("u", *(("t/2",) if chance.random() < 0.5 else ()), qos=1)
    others = [Client(sim, f"c{n}", version=4, acks=chance.random() < 0.7) for n in range(crowd)]
    for one in others:
        one.connect()
        one.subscribe("t/#", qos=chance.choice((1, 1, 1, 2, 0)))
    for publisher in publishers:
        publisher.connect()
    number = 0
    for _ in range(12):
        publisher = chance.choice(publishers)
        burst: list[Packet] = []
        topic, qos = "t/1", 1
        for _ in range(chance.randint(1, 40)):
            number += 1
            if chance.random() < 0.1:
                topic, qos = chance.choice(("t/1", "t/2", "u")), chance.choice((0, 1, 1, 2))
            payload = b"%d " % number * chance.choice((1, 1, 1, 200))
            retain = chance.random() < 0.03
            expiry_s = 60 if version == 5 and chance.random() < 0.05 else -1
            burst.append(
                Publish(topic, payload, qos, retain, False, number if qos else 0, 0, expiry_s)
            )
        publisher.send(*burst)
        sim.run_for(chance.choice((0, 500, 20_000)))
        for one in (reader, *others):
            if not one.acks:
                last = [packet for packet in one.messages if packet.qos == 1][-5:]
                one.send(*(Ack(PUBACK, packet.packet_id) for packet in last))
    sim.run_for(1_000_000)
    metrics = sim.live.services.metrics
    counted = {
        "qos 0": metrics.messages_delivered_0,
        "qos 1": metrics.messages_delivered_1,
        "qos 2": metrics.messages_delivered_2,
        "bytes": metrics.payload_bytes_sent,
    }
    return [one.messages for one in (reader, other, *others)], counted


@pytest.mark.spec("MQTT-4.6.0-6")
@pytest.mark.parametrize("crowd", [0, 4])
@pytest.mark.parametrize("seed", range(24))
def test_what_is_handed_out_in_one_step_is_what_would_be_one_by_one(
    seed: int, crowd: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_steps = _bursts(seed, crowd)
    assert in_steps[0][0]
    monkeypatch.setattr(dispatch, "is_plain", lambda _: False)
    assert in_steps == _bursts(seed, crowd)


class _Taker(Subscriber):
    """A session that takes so many messages at once and the others one by one."""

    def __init__(self, name: str, room: int, *, fails: bool = False) -> None:
        super().__init__(SessionRecord(name, 1, 0, 0, True, 0), durable=False)
        self.room = room
        self.fails = fails
        self.taken: list[int] = []
        self.fences: list[int] = []
        self.cut: list[int] = []
        self.dispatcher: Dispatcher | None = None

    def room_for_run(self, first: Message, entry: SubscriberEntry) -> int:
        return self.room

    def deliver_run(self, run: list[Message], identifiers: tuple[int, ...]) -> int:
        if self.fails:
            raise RuntimeError
        self.taken += [message.offset for message in run]
        return len(run)

    def deliver_one(self, message: Message, entry: SubscriberEntry) -> None:
        assert self.dispatcher is not None
        self.taken.append(message.offset)
        self.fences.append(self.dispatcher.offset)

    def deliver(
        self, message: Message, qos: int, retain: bool, identifiers: tuple[int, ...]
    ) -> None:
        self.taken.append(message.offset)

    def cut_off(self, position: int) -> None:
        self.cut.append(position)

    def failed(self, error: Exception, where: str) -> None:
        self.cut.append(-1)


class _Group(GroupSubscriber):
    """A group that takes everything."""

    def __init__(self, key: str, topic_filter: str, where: str) -> None:
        super().__init__(key, topic_filter, where)
        self.gathered: list[int] = []
        self.handed_out: list[list[int]] = []

    def deliver(self, message: Message) -> None:
        self.hand_out()
        self.handed_out.append([message.offset])

    def gather(self, message: Message) -> bool:
        self.gathered.append(message.offset)
        return len(self.gathered) == 1

    def hand_out(self) -> None:
        if self.gathered:
            self.handed_out.append(self.gathered)
            self.gathered = []


class _NotingGate:
    """Notes what has been handed out when it is opened."""

    def __init__(self, group: _Group) -> None:
        self.group = group
        self.seen: list[list[int]] = []

    def open(self) -> None:
        self.seen = list(self.group.handed_out)

    def __await__(self) -> Generator[None, None, None]:
        yield


def test_groups_gather_until_something_else_stands_in_the_queue() -> None:
    router = Router()
    groups = [_Group(f"g{number}/t", "t", "") for number in range(2)]
    for group in groups:
        router.put_group(group)
    dispatcher = Dispatcher(router, Metrics(), offset=0, gate_qos2=False)
    gate = _NotingGate(groups[0])
    messages = [
        Message("t", b"", 2 if offset == 8 else 1, publisher="p", offset=offset)
        for offset in range(5, 11)
    ]
    dispatcher.accept([*messages[:5], Barrier(gate), messages[5]])
    dispatcher.run(0)
    assert gate.seen == [[5, 6, 7], [8], [9]]
    assert [group.handed_out for group in groups] == [[[5, 6, 7], [8], [9], [10]]] * 2
    assert dispatcher.offset == 10


@pytest.mark.parametrize("offset", [0, 6])
def test_of_rows_only_what_somebody_wants_becomes_a_message(offset: int) -> None:
    """The fence passes the rest, wherever it stands."""
    made = []
    for as_rows in (True, False):
        router, taker = Router(), _Taker("r", 0)
        router.put(taker, Subscription("a/+", 1))
        dispatcher = Dispatcher(router, Metrics(), offset=0, gate_qos2=False, is_alone=False)
        taker.dispatcher = dispatcher
        topics = "aaababbbab"[offset:]
        rows = rows_of(
            [
                Message(f"{topic}/t", b"", 1, publisher="p", offset=at)
                for at, topic in enumerate(topics, 1)
            ]
        )
        items = dispatcher.wanted(rows) if as_rows else list[Item](rows.messages())
        assert [type(each) is Message for each in items].count(True) == (
            topics.count("a") if as_rows else len(topics)
        )
        dispatcher.accept(items)
        dispatcher.run(0)
        made.append((taker.taken, dispatcher.offset))
    assert made[0] == made[1]
    assert made[0][1] == len(topics)


def test_rows_behind_what_waits_are_looked_at_when_it_is_their_turn() -> None:
    """Who is handed something may have gone by then."""
    dispatcher = Dispatcher(Router(), Metrics(), offset=0, gate_qos2=False, is_alone=False)
    rows = rows_of([Message("t", b"", 1, offset=5)])
    dispatcher.accept([Message("t", b"", 1, offset=4)])
    assert dispatcher.wanted(rows) == rows.messages()


def test_a_search_among_many_filters_is_its_publishers() -> None:
    router = Router()
    for number in range(200):
        router.put(_Taker(f"r{number}", 0), Subscription(f"+/{number}/+/{number}/#", 1))
    dispatcher = Dispatcher(router, Metrics(), offset=0, gate_qos2=False, is_alone=False)
    rows = rows_of([Message("x/y/z", b"", 1, publisher="p", offset=5)])
    dispatcher.accept(dispatcher.wanted(rows))
    dispatcher.run(0)
    assert dispatcher.offset == 5


def test_a_run_for_many_moves_the_fence_with_those_who_take_it_one_by_one() -> None:
    """Who falls behind at a message joins the live flow at the fence: it is that message's."""
    router = Router()
    fast, slow, narrow = _Taker("fast", 100), _Taker("slow", 0), _Taker("narrow", 2)
    broken = _Taker("broken", 100, fails=True)
    takers = fast, slow, narrow, broken
    for taker in takers:
        router.put(taker, Subscription("t", 1))
    dispatcher = Dispatcher(router, Metrics(), offset=0, gate_qos2=True)
    for taker in takers:
        taker.dispatcher = dispatcher
    topic, publisher = "t", "p"
    run = [Message(topic, b"", 1, publisher=publisher, offset=offset) for offset in (5, 6, 9, 10)]
    dispatcher.accept([*run, Message(topic, b"", 1, publisher="another", offset=11)])
    dispatcher.run(0)
    assert [taker.taken for taker in (fast, slow, narrow)] == [[5, 6, 9, 10, 11]] * 3
    assert (fast.fences, slow.fences, narrow.fences) == ([11], [5, 6, 9, 10, 11], [9, 10, 11])
    assert broken.cut == [4, -1]
    assert dispatcher.offset == 11
    assert dispatcher.caused == {"p": 16, "another": 4}
    assert dispatcher.widest == 4


def test_who_is_wanted_by_content_while_filters_come_and_go() -> None:
    """With few filters and with many: the index is made, used, changed and dropped."""
    router, chance = Router(), random.Random(3)
    dispatcher = Dispatcher(router, Metrics(), offset=0, gate_qos2=True)
    takers = [_Taker(f"r{number}", 0) for number in range(40)]
    held: dict[_Taker, Subscription] = {}
    indexed = set[bool]()
    for step in range(1, 401):
        taker = chance.choice(takers)
        taker.dispatcher = dispatcher
        before = held.pop(taker, None)
        if before is not None:
            router.remove(taker, before)
        if step < 300 and chance.random() < 0.8:
            number = chance.randrange(12)
            where = f'{{"line":{number}}}' if number % 3 else f'{{"line":{{"$lt":{number}}}}}'
            held[taker] = Subscription("t", 1, where=where)
            router.put(taker, held[taker])
        line = chance.randrange(12)
        dispatcher.accept([Message("t", b'{"line":%d}' % line, 1, publisher="p", offset=step)])
        dispatcher.run(0)
        got = {each for each in takers if each.taken and each.taken[-1] == step}
        assert got == {
            each
            for each, sub in held.items()
            if (f":{line}}}" in sub.where if "$" not in sub.where else line < int(sub.where[15:-2]))
        }
        found = router.index.get("t")
        indexed.add(found is not None and found.by_content is not None)
    assert indexed == {True, False}


def test_what_the_broker_tells_of_itself_misses_nobody() -> None:
    metrics = Metrics()
    dispatcher = Dispatcher(Router(), metrics, offset=0, gate_qos2=True)
    for topic in ("$SYS/broker/uptime", "$audit/user", "t", "$SYSTEM/t"):
        dispatcher.accept([Message(topic, b"", 0)])
    dispatcher.run(0)
    assert metrics.messages_dropped_no_subscriber == 2


def test_what_a_message_costs_is_counted_for_who_published_it() -> None:
    """Subscriptions of one session that overlap, groups, and filters that are searched for it."""
    router = Router()
    taker = _Taker("taker", 100)
    levels = "abcdefgh"
    for mask in range(200):
        name = "/".join("+" if mask >> at & 1 else level for at, level in enumerate(levels))
        router.put(taker, Subscription(name, 1))
    dispatcher = Dispatcher(router, Metrics(), offset=0, gate_qos2=True)
    taker.dispatcher = dispatcher
    dispatcher.accept([Message("/".join(levels), b"", 1, publisher="p", offset=5)])
    dispatcher.run(0)
    assert dispatcher.caused["p"] > 200
    assert dispatcher.widest == 1
    dispatcher.caused.clear()
    # It has to be searched for, and nobody wants it.
    dispatcher.accept([Message("/".join([*levels[:-1], "x"]), b"", 1, publisher="q", offset=6)])
    dispatcher.run(0)
    assert dispatcher.caused["q"] > 10
    for number in range(30):
        router.put_group(_Group(f"$share/{number}/g", "g", ""))
    dispatcher.caused.clear()
    dispatcher.accept([Message("g", b"", 1, publisher="r", offset=7)])
    dispatcher.run(0)
    assert dispatcher.caused == {"r": 30}
