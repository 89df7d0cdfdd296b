"""Retained messages and replay: given once, then the live flow, whatever happens meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.broker.delivery.backfill import AT_ONCE, Backfill
from perdure.broker.delivery.live_session import LiveSession
from perdure.broker.runtime.turn_budget import STEPS_MAX, TurnBudget
from perdure.config.schema import Config, SessionConfig
from perdure.mqtt.packets import PUBACK, Ack, Properties, Publish, Subscribe, SubscribeFilter
from tests.support.sim_broker import SimBroker
from tests.unit.broker.harness import QUIET, Client, make_sim, until

PAGES = Config(sys=QUIET, session=SessionConfig(inflight_max=4, feed_chunk=3, memory_pending_max=4))


def _publisher(sim: SimBroker) -> Client:
    publisher = Client(sim, "p")
    publisher.connect(expiry_s=0, clean=True)
    return publisher


def _retain(publisher: Client, count: int, *, qos: int = 1) -> list[bytes]:
    bodies = [b"r%03d" % number for number in range(count)]
    for number, body in enumerate(bodies):
        publisher.publish(f"r/{number:03}", body, qos=qos, retain=True)
    publisher.sim.run_for(200_000)
    return bodies


@pytest.mark.parametrize("topic_filter", ["r/000", "r/#"])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_what_is_retained_in_the_turn_of_the_subscription_comes_once(
    qos: int, topic_filter: str
) -> None:
    """The store has nothing of it yet when it is asked."""
    sim = make_sim()
    publisher, reader = _publisher(sim), Client(sim, "r")
    reader.connect(clean=True)
    publisher.publish("r/000", b"now", qos=qos, retain=True)
    reader.subscribe(topic_filter)
    assert reader.payloads(within_us=1_000_000) == [b"now"]


@pytest.mark.parametrize("expiry_s", [0, 1000])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_retained_messages_in_pages(qos: int, expiry_s: int) -> None:
    sim = make_sim(config=PAGES)
    bodies = _retain(_publisher(sim), 20, qos=qos)
    reader = Client(sim, "r")
    reader.connect(expiry_s=expiry_s, clean=True)
    reader.subscribe("r/#", properties=Properties(subscription_identifiers=(5,)))
    assert sorted(reader.payloads(within_us=1_000_000)) == bodies
    assert all(m.retain and m.identifiers == (5,) for m in reader.messages)
    assert {m.qos for m in reader.messages} == {qos}


@pytest.mark.trap(24)
def test_a_burst_of_retained_messages_is_not_cut_short_for_a_slow_client() -> None:
    sim = make_sim(config=PAGES)
    bodies = _retain(_publisher(sim), 50)
    reader = Client(sim, "r", acks=False)
    reader.connect()
    reader.subscribe("r/#", qos=1)
    found = []
    for _ in bodies:
        message = reader.take(Publish)
        found.append(message.payload)
        reader.send(Ack(PUBACK, message.packet_id))
    assert sorted(found) == bodies
    reader.none_comes()


@pytest.mark.trap(52)
@pytest.mark.parametrize("crash", ["takeover", "kill", "power"])
def test_interrupted_in_the_middle_it_goes_on_there(crash: str) -> None:
    """Trap 52: nothing lost, and nothing again but what was not acknowledged."""
    sim = make_sim(config=PAGES)
    bodies = _retain(_publisher(sim), 30)
    reader = Client(sim, "r", acks=False)
    reader.connect()
    reader.subscribe("r/#", qos=2)
    for _ in range(5):
        message = reader.take(Publish)
        reader.send(Ack(PUBACK, message.packet_id))
    sim.run_for(50_000)
    if crash != "takeover":
        sim.kill(power=crash == "power")
        sim.start()
    again = Client(sim, "r")
    assert again.connect().session_present
    sim.run_for(1_000_000)
    payloads = [message.payload for message in again.messages]
    assert len(payloads) == len(set(payloads))
    assert sorted({*payloads, *(m.payload for m in reader.messages[:5])}) == bodies
    ids = {m.payload: m.packet_id for m in reader.messages}
    for message in again.messages:
        assert message.packet_id == ids.get(message.payload, message.packet_id)


@pytest.mark.trap(33)
def test_what_is_published_during_the_feed_comes_once_and_after_it() -> None:
    """QoS 2 among it: it stands in the queue until it is synced."""
    sim = make_sim(config=PAGES)
    publisher = _publisher(sim)
    _retain(publisher, 20)
    reader = Client(sim, "r")
    reader.connect()
    reader.subscribe("r/#")
    live = []
    for number in range(60):
        body = b"live%03d" % number
        live.append(body)
        publisher.publish("r/new", body, qos=1 + number % 2)
        sim.run_for(150)
    sim.run_for(1_000_000)
    assert [m.payload for m in reader.messages if m.payload.startswith(b"live")] == live
    assert len(reader.messages) == 80


@pytest.mark.parametrize("way", ["property", "topic"])
def test_a_replay_brings_the_past_then_the_live_flow(way: str) -> None:
    sim = make_sim(config=PAGES)
    publisher = _publisher(sim)
    publisher.deliver("t/a", b"too old")
    sim.run_for(1_000_000)
    since_us = sim.clock.now_us()
    past = [b"%d" % number for number in range(30)]
    for body in past:
        publisher.publish("t/a", body, qos=2)
    sim.run_for(100_000)
    reader = Client(sim, "r", version=5 if way == "property" else 4)
    reader.connect()
    if way == "property":
        wish = Properties(user_properties=(("replay-from", str(since_us)),))
        reader.subscribe("t/+", properties=wish)
    else:
        reader.subscribe(f"$replay/{since_us}/t/+")
    for number in range(30, 60):
        publisher.publish("t/b", b"%d" % number, qos=1)
        past.append(b"%d" % number)
        sim.run_for(300)
    assert reader.payloads(within_us=1_000_000) == past
    assert not sim.live.services.registry.live["r"].backfilling


def test_a_replay_goes_on_after_a_restart() -> None:
    sim = make_sim(config=PAGES)
    publisher = _publisher(sim)
    past = [b"%d" % number for number in range(40)]
    for body in past:
        publisher.publish("t", body)
    sim.run_for(100_000)
    reader = Client(sim, "r")
    reader.connect()
    reader.subscribe("$replay/0/t", qos=1)
    until(sim, lambda: len(reader.messages) >= 8)
    sim.kill(power=True)
    sim.start()
    publisher.connect(expiry_s=0, clean=True)
    publisher.deliver("t", b"40")
    reader.connect()
    sim.run_for(1_000_000)
    first_time = list(dict.fromkeys(message.payload for message in reader.messages))
    assert first_time == [*past, b"40"]


def test_a_fed_subscription_beside_a_live_one_does_not_shift_identifiers() -> None:
    """A resumed session: the backfill counts, or a message would be combined with it."""
    sim = make_sim(config=PAGES)
    publisher = _publisher(sim)
    _retain(publisher, 30)
    reader = Client(sim, "r", acks=False)
    reader.connect()
    reader.subscribe("r/#", qos=2)
    reader.subscribe("r/new", qos=0, retain_handling=2)
    sim.run_for(50_000)
    reader.cut()
    reader.connect()
    session = sim.live.services.registry.live["r"]
    assert session.backfilling == 1
    reader.messages.clear()
    reader.acks = True
    reader.cut()
    reader.connect()
    sim.run_for(1_000_000)
    session = sim.live.services.registry.live["r"]
    assert session.backfilling == 0
    publisher.deliver("r/new", b"now")
    sim.run_for(100_000)
    assert reader.messages[-1].payload == b"now"


@pytest.mark.parametrize("handling", [0, 1, 2])
def test_retain_handling(handling: int) -> None:
    sim = make_sim()
    _retain(_publisher(sim), 1)
    reader = Client(sim, "r")
    reader.connect()
    reader.subscribe("r/#", retain_handling=handling)
    first = reader.payloads()
    reader.subscribe("r/#", retain_handling=handling)
    again = reader.payloads()
    assert (first, again) == {
        0: ([b"r000"], [b"r000"]),
        1: ([b"r000"], []),
        2: ([], []),
    }[handling]


@pytest.mark.trap(41)
def test_retained_messages_do_not_go_to_shared_subscriptions() -> None:
    sim = make_sim()
    _retain(_publisher(sim), 3)
    reader = Client(sim, "r")
    reader.connect()
    reader.subscribe("$share/g/r/#")
    reader.none_comes()


def test_backfills_of_many_sessions_share_the_turns() -> None:
    """Thirty clients that subscribe to all that is retained, again and again, are not one page each
    in every turn."""
    sim = make_sim(config=PAGES)
    bodies = _retain(_publisher(sim), 30)
    core = sim.live.services
    pages: dict[int, int] = {}
    read = core.database.read_retained

    async def counted(*args: Any, **named: Any) -> Any:
        turn = core.pipeline.number
        pages[turn] = pages.get(turn, 0) + 1
        return await read(*args, **named)

    core.database.read_retained = counted  # type: ignore[method-assign]
    readers = [Client(sim, f"r{number}") for number in range(30)]
    for reader in readers:
        reader.connect(clean=True)
    for reader in readers:
        reader.send(Subscribe(60_000, [SubscribeFilter("r/#")]))
    sim.run_for(5_000_000)
    for reader in readers:
        assert sorted(message.payload for message in reader.messages) == bodies
    assert sum(pages.values()) >= 30 * 10
    assert max(pages.values()) <= AT_ONCE + STEPS_MAX


def test_backfills_of_who_has_left_wait_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that connects and subscribes again and again leaves no queue of steps behind."""
    released: list[object] = []
    monkeypatch.setattr(TurnBudget, "release", lambda _, owner: released.append(owner))
    sim = make_sim(config=PAGES)
    reader = Client(sim, "r")
    reader.connect(clean=True)
    session = sim.live.services.registry.live["r"]
    reader.cut()
    sim.run_for(1_000)
    assert released == [session]


@pytest.mark.parametrize("qos", [0, 1])
def test_who_subscribes_again_and_again_is_fed_once(
    monkeypatch: pytest.MonkeyPatch, qos: int
) -> None:
    """Hundreds of backfills of one subscription would wait for the client, each with its page."""
    runs: list[str] = []
    feed = Backfill._feed

    async def counted(self: Backfill, session: LiveSession, name: str) -> None:
        runs.append(name)
        await feed(self, session, name)

    monkeypatch.setattr(Backfill, "_feed", counted)
    sim = make_sim(config=PAGES)
    bodies = _retain(_publisher(sim), 30)
    reader = Client(sim, "r", acks=False)
    reader.connect(clean=True)
    assert reader.wire is not None
    reader.wire.stop_taking()
    for _ in range(50):
        reader.send(Subscribe(60_000, [SubscribeFilter("r/#", qos)]))
    sim.run_for(1_000_000)
    assert len(runs) < 10
    reader.acks = True
    reader.wire.take_again()
    sim.run_for(1_000_000)
    reader.cut()
    reader = Client(sim, "r")
    reader.connect(clean=True)
    reader.subscribe("r/#", qos=qos)
    assert sorted(reader.payloads(within_us=1_000_000)) == bodies
