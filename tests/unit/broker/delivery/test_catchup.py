"""Sessions behind the log: the backlog first, then the live flow; no gap, no repeat."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from perdure.broker.commit.cursors import CURSOR_DELAY_US
from perdure.broker.delivery.catchup import CatchUp
from perdure.broker.delivery.held_session import PENDING_FIRST
from perdure.config.schema import Config, SessionConfig
from perdure.model import Cursor, InboxEntry, Message, SessionRecord, Subscription
from perdure.mqtt.packets import (
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    Ack,
    Packet,
    Properties,
    Publish,
)
from tests.support.sim_broker import SimBroker
from tests.support.staged import Staged, take_offset
from tests.unit.broker.harness import QUIET, Client, make_sim

if TYPE_CHECKING:
    from perdure.broker.delivery.live_session import LiveSession
    from perdure.session.pending import PendingMessages

SMALL = Config(
    sys=QUIET,
    session=SessionConfig(
        inflight_max=5, memory_pending_max=4, feed_chunk=3, outbound_buffer_bytes=4096
    ),
)


def _bodies(first: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, end)]


@pytest.mark.trap(33)
@pytest.mark.trap(31)
@pytest.mark.parametrize("qos", [1, 2])
def test_the_backlog_comes_before_what_is_live(qos: int) -> None:
    """Traps 31 and 33: messages published during the catch-up come after it, each once."""
    sim = make_sim(config=SMALL)
    publisher, reader = Client(sim, "p"), Client(sim, "r")
    publisher.connect(expiry_s=0, clean=True)
    reader.connect()
    reader.subscribe("t/#", qos=qos)
    reader.cut()
    for body in _bodies(0, 40):
        publisher.publish("t/a", body, qos=qos)
    sim.run_for(50_000)
    reader.connect()
    for body in _bodies(40, 80):
        publisher.publish("t/b", body, qos=qos)
        sim.run_for(50)
    assert reader.payloads(within_us=1_000_000) == _bodies(0, 80)
    assert not sim.live.services.registry.live["r"].lagging


@pytest.mark.trap(33)
def test_a_slow_client_falls_behind_and_catches_up() -> None:
    sim = make_sim(config=SMALL)
    publisher, reader = Client(sim, "p"), Client(sim, "r", acks=False)
    publisher.connect(expiry_s=0, clean=True)
    reader.connect()
    reader.subscribe("t", qos=1)
    for body in _bodies(0, 30):
        publisher.publish("t", body)
    sim.run_for(50_000)
    session = sim.live.services.registry.live["r"]
    assert session.lagging
    assert len(session.outbound.pending) <= 8
    for number in range(30):
        message = reader.take(Publish)
        assert message.payload == b"%d" % number
        reader.send(Ack(PUBACK, message.packet_id))
    sim.run_for(50_000)
    assert not session.lagging
    publisher.publish("t", b"live")
    assert reader.take(Publish).payload == b"live"


@pytest.mark.trap(33)
def test_what_waits_in_memory_goes_by_what_is_acknowledged() -> None:
    """For a client that acknowledges nothing the log keeps it."""
    sim = make_sim(config=Config(sys=QUIET, session=SessionConfig(inflight_max=5)))
    publisher, reader = Client(sim, "p"), Client(sim, "r", acks=False)
    publisher.connect(expiry_s=0, clean=True)
    reader.connect()
    reader.subscribe("t", qos=1)
    for body in _bodies(0, 600):
        publisher.publish("t", body)
        sim.run_for(500)
    session = sim.live.services.registry.live["r"]
    assert session.lagging
    assert PENDING_FIRST <= len(session.outbound.pending) <= PENDING_FIRST * 2
    most = []
    for number in range(600):
        message = reader.take(Publish)
        assert message.payload == b"%d" % number
        reader.send(Ack(PUBACK, message.packet_id))
        most.append(session.pending_most())
    sim.run_for(50_000)
    assert most[0] < most[200] < most[-1]
    assert session.pending_most() <= sim.config.session.memory_pending_max
    assert not session.lagging


@pytest.mark.trap(34)
def test_qos_0_that_fills_the_buffer_does_not_stop_the_rest() -> None:
    """Trap 34: congestion that ends without another event wakes the session all the same."""
    sim = make_sim(config=SMALL)
    publisher, reader = Client(sim, "p"), Client(sim, "r")
    publisher.connect(expiry_s=0, clean=True)
    reader.connect()
    reader.subscribe("t")
    publisher.send(
        Publish("t", b"x" * 5000, 0),
        Publish("t", b"dropped: the buffer is full", 0),
        Publish("t", b"kept", 1, packet_id=1),
    )
    assert reader.payloads() == [b"x" * 5000, b"kept"]
    publisher.publish("t", b"live", qos=0)
    assert reader.payloads() == [b"live"]


@pytest.mark.trap(34)
def test_a_client_that_reads_again_gets_the_rest() -> None:
    sim = make_sim(config=SMALL)
    publisher, reader = Client(sim, "p"), Client(sim, "r")
    publisher.connect(expiry_s=0, clean=True)
    reader.connect()
    reader.subscribe("t", qos=1)
    assert reader.wire is not None
    reader.wire.stop_taking()
    for number in range(60):
        publisher.publish("t", b"%03d" % number + b"." * 1000)
        sim.run_for(1_000)
    sim.run_for(100_000)
    assert reader.payloads() == []
    assert reader.wire.write_buffer_size() < 40_000
    reader.wire.take_again()
    found = [payload[:3] for payload in reader.payloads(within_us=1_000_000)]
    assert found == [b"%03d" % number for number in range(60)]


@pytest.mark.trap(29)
def test_changed_subscriptions_do_not_shift_the_order() -> None:
    """Trap 29: what was owed before the change keeps its identifier after a crash."""
    sim = make_sim()
    publisher, reader = Client(sim, "p"), Client(sim, "r", acks=False)
    publisher.connect(expiry_s=0, clean=True)
    reader.connect()
    reader.subscribe("a", "b", "c", qos=1)
    for topic in "abc":
        publisher.deliver(topic, topic.encode())
    sim.run_for(10_000)
    reader.unsubscribe("a")
    reader.subscribe("b", qos=0)
    reader.subscribe("d", qos=2)
    for topic in "abcd":
        publisher.deliver(topic, topic.upper().encode())
    sim.run_for(10_000)
    first = {m.payload: m.packet_id for m in reader.messages if m.qos}
    assert list(first) == [b"a", b"b", b"c", b"C", b"D"]
    sim.kill()
    sim.start()
    reader.messages.clear()
    reader.connect()
    sim.run_for(50_000)
    assert {m.payload: m.packet_id for m in reader.messages} == first
    assert all(message.dup for message in reader.messages)
    for message in reader.messages:
        reader.send(Ack(PUBACK, message.packet_id))
    sim.run_for(CURSOR_DELAY_US * 2)
    stored: list[str] = []

    async def look() -> None:
        session = await sim.store.open_session("r")
        assert session is not None
        stored.extend(sub.name for sub in session.subscriptions)

    assert sim.scheduler is not None
    sim.scheduler.run(look())
    assert sorted(stored) == ["b", "c", "d"]


def test_subscribing_and_giving_up_leaves_nothing_behind() -> None:
    """Request and response: a new topic for each answer, for ever."""
    sim = make_sim()
    publisher = Client(sim, "p")
    publisher.connect(expiry_s=0, clean=True)
    for expiry_s in (0, 1000):
        reader = Client(sim, f"r{expiry_s}")
        reader.connect(expiry_s=expiry_s, clean=True)
        for number in range(20):
            reader.subscribe(f"answer/{number}", qos=1)
            publisher.deliver("other")
            reader.unsubscribe(f"answer/{number}")
        session = sim.live.services.registry.live[reader.client_id]
        assert session.ended == []


@pytest.mark.trap(23)
def test_what_has_expired_is_not_delivered_and_blocks_nothing() -> None:
    """Trap 23: it takes its identifier, and the message behind it comes."""
    sim = make_sim()
    publisher, reader = Client(sim, "p"), Client(sim, "r")
    publisher.connect(expiry_s=0, clean=True)
    reader.connect()
    reader.subscribe("t", qos=1)
    reader.cut()
    publisher.deliver("t", b"short", expiry_s=1)
    publisher.deliver("t", b"long", expiry_s=100)
    sim.run_for(10_000_000)
    reader.connect()
    message = reader.take(Publish)
    assert (message.payload, message.packet_id, message.expiry_s) == (b"long", 2, 90)


@pytest.mark.trap(5)
@pytest.mark.trap(4)
def test_nothing_is_repeated_on_a_live_connection() -> None:
    """Traps 4 and 5: no timer sends anything again; the window waits for as long as it takes."""
    sim = make_sim(config=SMALL)
    publisher, reader = Client(sim, "p"), Client(sim, "r", acks=False)
    publisher.connect(expiry_s=0, clean=True)
    reader.connect()
    reader.subscribe("t", qos=1)
    for body in _bodies(0, 10):
        publisher.publish("t", body)
    assert reader.payloads(within_us=3_600_000_000) == _bodies(0, 5)
    for message in reader.messages[:5]:
        reader.send(Ack(PUBACK, message.packet_id))
    assert reader.payloads() == _bodies(5, 10)


def _take_over(sim: SimBroker) -> None:
    """A session as ``perdure pipeline migrate`` leaves it: the identifiers are another broker's."""
    store = sim.store
    now_us = sim.clock.now_us()
    batch = Staged(store)
    start = take_offset(store, now_us)
    batch.put_session(SessionRecord("r", 1, now_us, 2**32 - 1, False, now_us, protocol=5))
    identifiers = [65_534, 65_535, 3, 3, 9, 10, 11]
    serial, serials = 65_533, []
    for packet_id in identifiers:
        serial += (packet_id - serial - 1) % 65_535 + 1
        serials.append(serial)
    second = 1_000_000
    for number, place in enumerate(serials):
        offset = take_offset(store, now_us)
        message = Message("t", b"%d" % number, 2, published_at_us=now_us, offset=0)
        forget_at_us = {4: now_us + second, 5: now_us + 1_000 * second}.get(number, 0)
        batch.put_inbox(
            "r",
            InboxEntry(offset, message, qos=2, serial=place, forget_at_us=forget_at_us),
            epoch=1,
        )
    last = InboxEntry(take_offset(store, now_us), None, qos=1, serial=serials[-1] + 9)
    batch.put_inbox("r", last, epoch=1)
    released = (serials[2], serials[6])
    batch.put_cursor("r", Cursor(start, 65_533, (), released, 65_533), epoch=1)
    sub = Subscription("new", qos=1, since_offset=last.offset)
    batch.put_subscription("r", sub, epoch=1)
    batch.write()
    store.sync()
    sim.kill()
    sim.start()


@pytest.mark.trap(1)
@pytest.mark.parametrize("crash", [False, True])
def test_what_was_taken_over_keeps_its_identifiers(crash: bool) -> None:
    sim = make_sim()
    _take_over(sim)
    reader = Client(sim, "r", acks=False)
    sim.run_for(2_000_000)
    assert reader.connect().session_present
    sim.run_for(10_000)
    if crash:
        sim.kill()
        sim.start()
        reader.messages.clear()
        assert reader.connect().session_present
        sim.run_for(10_000)
    # The fourth has the identifier of the third, which is past its PUBREC and not complete.
    expected = [(b"0", 65_534), (b"1", 65_535)]
    pubrels = [each.packet_id for each in reader.received if isinstance(each, Ack)]
    assert pubrels == [3]
    assert [(m.payload, m.packet_id) for m in reader.messages] == expected
    reader.send(Ack(PUBREC, 65_534), Ack(PUBREC, 65_535))
    reader.send(Ack(PUBCOMP, 65_534), Ack(PUBCOMP, 65_535), Ack(PUBCOMP, 3))
    sim.run_for(10_000)
    assert [(m.payload, m.packet_id) for m in reader.messages[2:]] == [(b"3", 3), (b"5", 10)]
    pubrels = [e.packet_id for e in reader.received if isinstance(e, Ack) and e.kind == PUBREL]
    assert sorted(pubrels) == [3, 11, 65_534, 65_535]
    for packet_id in (3, 10):
        reader.send(Ack(PUBREC, packet_id), Ack(PUBCOMP, packet_id))
    reader.send(Ack(PUBCOMP, 11))
    assert all(message.expiry_s == -1 for message in reader.messages)
    publisher = Client(sim, "p")
    publisher.connect(expiry_s=0, clean=True)
    publisher.publish("new", b"new")
    sim.run_for(50_000)
    assert (reader.messages[-1].payload, reader.messages[-1].packet_id) == (b"new", 21)
    reader.send(Ack(PUBACK, 21))
    sim.run_for(50_000)
    reader.cut()
    assert reader.connect().session_present
    reader.none_comes()


def _return_to_bursts(seed: int) -> tuple[list[Publish], int]:
    """What a subscriber gets that goes and comes back while random bursts are published."""
    chance = random.Random(seed)
    config = Config(
        sys=QUIET,
        session=SessionConfig(
            inflight_max=chance.choice((5, 40, 1_000)),
            memory_pending_max=chance.choice((4, 1_000)),
            feed_chunk=chance.choice((3, 64)),
            outbound_buffer_bytes=4096,
        ),
    )
    sim = make_sim(config=config)
    publishers = [Client(sim, name, acks=False) for name in "ab"]
    reader = Client(sim, "r", acks=chance.random() < 0.7)
    reader.connect(receive_maximum=chance.choice((None, 3, 20)))
    identifiers = chance.choice(((), (9,)))
    reader.subscribe(
        "t/#",
        qos=chance.choice((0, 1, 1, 1, 2)),
        properties=Properties(subscription_identifiers=identifiers),
        retain_as_published=chance.choice((0, 1)),
    )
    if chance.random() < 0.3:
        reader.subscribe("t/2", qos=chance.choice((0, 1, 2)))
    for publisher in publishers:
        publisher.connect()
    number = 0
    for _ in range(12):
        if chance.random() < 0.3:
            reader.cut()
        elif reader.is_lost and chance.random() < 0.5:
            reader.connect(receive_maximum=chance.choice((None, 3, 20)))
        burst: list[Packet] = []
        for _ in range(chance.randint(1, 40)):
            number += 1
            topic = chance.choice(("t/1", "t/1", "t/2", "t/3", "u"))
            qos = chance.choice((0, 1, 1, 1, 1, 2))
            payload = b"%d " % number * chance.choice((1, 1, 1, 200))
            retain = chance.random() < 0.03
            expiry_s = 60 if chance.random() < 0.05 else -1
            burst.append(
                Publish(topic, payload, qos, retain, False, number if qos else 0, 0, expiry_s)
            )
        chance.choice(publishers).send(*burst)
        sim.run_for(chance.choice((0, 500, 20_000)))
        if not reader.acks and not reader.is_lost:
            last = [packet for packet in reader.messages if packet.qos == 1][-5:]
            reader.send(*(Ack(PUBACK, packet.packet_id) for packet in last))
    if reader.is_lost:
        reader.connect()
    sim.run_for(1_000_000)
    return reader.messages, sim.live.services.metrics.payload_bytes_sent


@pytest.mark.trap(33)
@pytest.mark.spec("MQTT-4.6.0-6")
@pytest.mark.parametrize("seed", range(24))
def test_what_catches_up_in_one_step_is_what_would_one_by_one(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Order, packet identifiers, flags and properties."""
    in_steps = _return_to_bursts(seed)
    assert in_steps[0]

    def one_by_one(
        _: CatchUp,
        session: LiveSession,
        pending: PendingMessages,
        identifiers: tuple[int, ...],
        room: int,
    ) -> None:
        message = pending.message
        assert message is not None
        assert room > 1
        session.offer(message, 1, False, identifiers, message.offset)

    monkeypatch.setattr(CatchUp, "_offer_run", one_by_one)
    assert in_steps == _return_to_bursts(seed)


def test_a_client_that_is_ready_is_not_outrun() -> None:
    """It acknowledges its whole window at each look, and twice as much comes: turns are limited,
    and still nobody who publishes is forgotten."""
    sim = make_sim(config=Config(sys=QUIET, session=SessionConfig(inflight_max=400)))
    publishers = [Client(sim, f"p{number}", acks=False) for number in range(20)]
    reader = Client(sim, "r", acks=False)
    reader.connect()
    reader.subscribe("t/#", qos=1)
    for publisher in publishers:
        publisher.connect(expiry_s=0, clean=True)
    admission = sim.live.services.pipeline.admission
    sent = acked = 0
    limits: set[int] = set()
    for _ in range(40):
        for publisher in publishers:
            publisher.send(*(Publish("t/1", b"x", 1, packet_id=1 + n) for n in range(40)))
            sent += 40
        sim.run_for(3_000)
        limits.add(admission.limit)
        reader.send(*(Ack(PUBACK, each.packet_id) for each in reader.messages[acked:]))
        acked = len(reader.messages)
    assert limits - {0}
    for _ in range(120):
        sim.run_for(3_000)
        reader.send(*(Ack(PUBACK, each.packet_id) for each in reader.messages[acked:]))
        acked = len(reader.messages)
    assert acked == sent
    assert [each.packet_id for each in reader.messages] == [
        serial % 65_535 + 1 for serial in range(sent)
    ]
    assert not sim.live.services.registry.live["r"].lagging


@pytest.mark.parametrize(
    ("inflight_max", "receive_maximum", "expected"),
    [(1000, 65_535, 1500), (1000, 700, 700), (20, 65_535, 20), (2000, 65_535, 2000)],
)
def test_a_session_that_catches_up_has_a_larger_window(
    inflight_max: int, receive_maximum: int, expected: int
) -> None:
    """A client that acknowledges nothing is sent so much, and what is left when it does."""
    config = SessionConfig(inflight_max=inflight_max, inflight_catch_up_max=1500)
    sim = make_sim(config=Config(sys=QUIET, session=config))
    publisher, reader = Client(sim, "p"), Client(sim, "r", acks=False)
    publisher.connect(expiry_s=0, clean=True)
    reader.connect()
    reader.subscribe("t/#", qos=1)
    reader.cut()
    for first in range(0, 2500, 500):
        bodies = _bodies(first, first + 500)
        publisher.send(
            *[
                Publish(f"t/{number % 7}", body, qos=1, packet_id=number + 1)
                for number, body in enumerate(bodies)
            ]
        )
        sim.run_for(100_000)
    reader.connect(receive_maximum=receive_maximum)
    sim.run_for(1_000_000)
    assert reader.payloads() == _bodies(0, expected)
    session = sim.live.services.registry.live["r"]
    assert session.lagging
    reader.acks = True
    for packet_id in range(1, expected + 1):
        reader.send(Ack(PUBACK, packet_id))
    assert reader.payloads(within_us=1_000_000) == _bodies(expected, 2500)
    assert not session.lagging
