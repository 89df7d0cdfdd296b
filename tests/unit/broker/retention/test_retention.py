"""The log's bounds: generations go, what is owed from them stays."""

from __future__ import annotations

import pytest

from perdure.config.schema import Config, RetentionConfig
from perdure.mqtt.packets import PUBACK, PUBREC, Ack, Publish
from tests.support.sim_broker import SimBroker
from tests.unit.broker.harness import (
    BACKLOG,
    QUIET,
    Client,
    make_sim,
    publish_many,
    read_slowly,
)

DAY_S = 86_400
DAYS = Config(
    sys=QUIET,
    retention=RetentionConfig(time_s=3 * DAY_S, generation_time_s=DAY_S, check_interval_s=6 * 3600),
)


def _publisher(sim: SimBroker) -> Client:
    publisher = Client(sim, "p")
    publisher.connect(expiry_s=0, clean=True)
    return publisher


def _drop_all(sim: SimBroker) -> None:
    """Rotate, and drop everything before."""
    sim.store.rotate(sim.clock.now_us())
    assert sim.scheduler is not None

    async def drop() -> None:
        for info in sim.store.generations()[:-1]:
            await sim.live.services.retention.drop(info)

    sim.scheduler.run(drop())


@pytest.mark.trap(26)
@pytest.mark.parametrize("restarts", [False, True])
def test_a_month_offline(restarts: bool) -> None:
    """Trap 26: generations come and go, and each owed message comes, in order, once."""
    sim = make_sim(config=DAYS)
    publisher, reader = _publisher(sim), Client(sim, "r")
    reader.connect()
    reader.subscribe("t/+", qos=2)
    reader.cut()
    owed = []
    for day in range(30):
        for hour in range(4):
            body = b"%d/%d" % (day, hour)
            owed.append(body)
            publisher.deliver(f"t/{hour % 2}", body, qos=1 + day % 2)
            publisher.deliver("other", b"not for it")
            sim.run_for(6 * 3_600_000_000)
        if restarts and day % 7 == 3:
            sim.kill(power=day % 2 == 1)
            sim.start()
            publisher = _publisher(sim)
    assert sim.store.generations()[0].generation > 20
    reader.connect()
    assert reader.payloads(within_us=5_000_000) == owed
    assert [m.packet_id for m in reader.messages] == list(range(1, 121))


def test_what_was_half_done_stays_so() -> None:
    """Settled and released serial numbers beyond the cursor hold for the copies too."""
    sim = make_sim()
    publisher, reader = _publisher(sim), Client(sim, "r", acks=False)
    reader.connect()
    reader.subscribe("t", qos=2)
    for number in range(4):
        publisher.deliver("t", b"%d" % number, qos=1 + number % 2)
    sim.run_for(10_000)
    messages = {m.payload: m.packet_id for m in reader.messages}
    reader.send(Ack(PUBACK, messages[b"2"]), Ack(PUBREC, messages[b"3"]))
    sim.run_for(10_000)
    reader.cut()
    _drop_all(sim)
    reader.messages.clear()
    reader.connect()
    assert reader.take(Ack).packet_id == messages[b"3"]
    sim.run_for(100_000)
    assert {m.payload: m.packet_id for m in reader.messages} == {
        payload: messages[payload] for payload in (b"0", b"1")
    }
    assert all(m.dup for m in reader.messages)


@pytest.mark.parametrize("crash", [False, True])
def test_a_copy_and_its_original_are_one_message(crash: bool) -> None:
    """Carried over and not dropped yet: the broker may die between, or the session come."""
    sim = make_sim()
    publisher, reader = _publisher(sim), Client(sim, "r")
    reader.connect()
    reader.subscribe("t", qos=2)
    reader.cut()
    for number in range(20):
        publisher.deliver("t", b"%d" % number, qos=2)
    sim.store.rotate(sim.clock.now_us())
    scheduler = sim.scheduler
    assert scheduler is not None
    scheduler.blocking_us = (60_000_000, 60_000_000)  # the sync before the drop takes long

    async def drop() -> None:
        await sim.live.services.retention.drop(sim.store.generations()[0])

    scheduler.spawn(drop(), name="drop")
    sim.run_for(1_000_000)
    assert len(sim.store.generations()) == 2
    if crash:
        sim.kill()
        sim.start()
    else:
        scheduler.blocking_us = (1_000, 1_000)
    reader.connect(wait=False)
    sim.run_for(120_000_000)
    assert [m.payload for m in reader.messages] == [b"%d" % number for number in range(20)]
    assert [m.packet_id for m in reader.messages] == list(range(1, 21))


def test_a_connected_session_that_is_slow_loses_nothing() -> None:
    sim = make_sim()
    publisher, reader = _publisher(sim), Client(sim, "r", acks=False)
    reader.connect(receive_maximum=2)
    reader.subscribe("t", qos=1)
    for number in range(5):
        publisher.deliver("t", b"%d" % number)
    _drop_all(sim)
    publisher.deliver("t", b"5")
    for number in range(6):
        message = reader.take(Publish)
        assert message.payload == b"%d" % number
        reader.send(Ack(PUBACK, message.packet_id))
    reader.none_comes()


def test_a_group_that_is_away_loses_nothing() -> None:
    sim = make_sim()
    publisher, member = _publisher(sim), Client(sim, "m")
    member.connect()
    member.subscribe("$share/g/t", qos=1)
    member.cut()
    for number in range(5):
        publisher.deliver("t", b"%d" % number)
    _drop_all(sim)
    publisher.deliver("t", b"5")
    sim.kill(power=True)
    sim.start()
    member.connect()
    assert member.payloads() == [b"%d" % number for number in range(6)]


def test_expired_retained_messages_are_swept() -> None:
    sim = make_sim(config=DAYS)
    publisher = _publisher(sim)
    publisher.deliver("a", b"x", retain=True, expiry_s=10)
    publisher.deliver("b", b"x", retain=True)
    sim.run_for(7 * 3_600_000_000)
    assert sim.store.retained_count == 1


@pytest.mark.parametrize("filter_", ["t", "$share/g/t"])
def test_who_reads_on_while_a_generation_goes_gets_everything_once(filter_: str) -> None:
    """What is carried over is not given out of the log as well."""
    sim = make_sim()
    publisher, reader = _publisher(sim), Client(sim, "r")
    reader.connect()
    reader.subscribe(filter_, qos=2)
    reader.cut()
    publish_many(publisher, "t", BACKLOG)
    read_slowly(sim)
    reader.connect(receive_maximum=20)
    assert sim.run_until(lambda: len(reader.received) > 100, limit_us=10_000_000)
    _drop_all(sim)
    sim.run_for(10_000_000)
    assert len(sim.store.generations()) == 1
    assert [int(payload) for payload in reader.payloads()] == list(range(BACKLOG))
