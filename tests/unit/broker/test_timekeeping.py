"""A wall clock that is set: no deadline moves, and somebody is told."""

from __future__ import annotations

import pytest
from tests.support.world import World
from tests.unit.broker.harness import QUIET, Client, make_world

from perdure.broker.timekeeping import LOOK_INTERVAL_US
from perdure.clock import ClockState
from perdure.config.schema import Config, RetentionConfig, SessionConfig
from perdure.model import Will
from perdure.mqtt.packets import Publish

SECOND_US = 1_000_000
HOUR_US = 3600 * SECOND_US
YEAR_US = 365 * 24 * HOUR_US
STEPS_US = [-YEAR_US, -3 * SECOND_US, 3 * SECOND_US, YEAR_US]


def _step(world: World, change_us: int, *, restart: bool = False) -> None:
    """Set the clock, in a run or between two."""
    if restart:
        world.stop()
    world.clock.step_wall_us(change_us)
    if restart:
        world.start()
    else:
        world.live.services.timekeeper.look()
        world.run_for(1_500_000)


@pytest.mark.parametrize("change_us", STEPS_US)
def test_a_delayed_will_comes_when_it_is_due(change_us: int) -> None:
    world = make_world()
    watcher, client = Client(world, "w"), Client(world, "c")
    watcher.connect()
    watcher.subscribe("will", qos=1)
    client.connect(will=Will("will", b"gone", qos=1, delay_s=10, expiry_s=20))
    client.cut()
    world.run_for(2 * SECOND_US)
    _step(world, change_us)
    assert watcher.payloads(within_us=6 * SECOND_US) == []
    world.run_for(SECOND_US)
    assert watcher.take(Publish).payload == b"gone"
    assert watcher.messages[0].expiry_s == 20


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("change_us", STEPS_US)
def test_a_session_expires_when_it_is_due(change_us: int, restart: bool) -> None:
    if restart and change_us > 0:
        return  # what a clock that runs on between two runs says is time that has passed
    world = make_world()
    client = Client(world, "c")
    client.connect(expiry_s=10)
    client.cut()
    world.run_for(2 * SECOND_US)
    _step(world, change_us, restart=restart)
    world.run_for(6 * SECOND_US)
    assert world.live.services.metrics.sessions_expired == 0
    world.run_for(3 * SECOND_US)
    assert world.live.services.metrics.sessions_expired == 1


@pytest.mark.parametrize("change_us", STEPS_US)
def test_a_message_expires_when_it_is_due(change_us: int) -> None:
    world = make_world()
    publisher, early, late = (Client(world, name) for name in ("p", "e", "l"))
    publisher.connect()
    for reader in (early, late):
        reader.connect()
        reader.subscribe("t", qos=1)
        reader.cut()
    publisher.deliver("t", b"a", expiry_s=10)
    publisher.deliver("t/retained", b"b", expiry_s=10, retain=True)
    world.run_for(2 * SECOND_US)
    _step(world, change_us)
    early.connect(wait=False)
    world.run_for(100_000)
    assert [(m.payload, m.expiry_s) for m in early.messages] == [(b"a", 7)]
    early.subscribe("t/+", qos=1)
    world.run_for(100_000)
    assert [m.payload for m in early.messages] == [b"a", b"b"]
    world.run_for(7 * SECOND_US)
    late.connect()
    late.subscribe("t/+", qos=1)
    late.none_comes()


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("change_us", STEPS_US)
def test_retention_by_time_goes_on(change_us: int, restart: bool) -> None:
    """Nothing goes before its time, and it goes then, though offsets stay ahead for a year."""
    if restart and change_us > 0:
        return
    world = make_world(
        config=Config(
            sys=QUIET,
            retention=RetentionConfig(time_s=3600, generation_time_s=600, check_interval_s=60),
        )
    )
    publisher = Client(world, "p")
    publisher.connect()
    publisher.deliver("t", b"before")
    world.run_for(700 * SECOND_US)
    assert [info.generation for info in world.store.generations()] == [1, 2]
    _step(world, change_us, restart=restart)
    publisher.connect()
    publisher.deliver("t", b"after")
    world.run_for(2900 * SECOND_US)
    assert [info.generation for info in world.store.generations()] == [1, 2, 3]
    world.run_for(100 * SECOND_US)
    assert [info.generation for info in world.store.generations()] == [2, 3]
    world.run_for(700 * SECOND_US)
    assert [info.generation for info in world.store.generations()] == [3]


@pytest.mark.parametrize("change_us", STEPS_US)
def test_the_age_of_what_is_pending_goes_on(change_us: int) -> None:
    world = make_world(config=Config(sys=QUIET, session=SessionConfig(pending_age_max_s=10)))
    publisher, early, late = (Client(world, name) for name in ("p", "e", "l"))
    publisher.connect()
    for reader in (early, late):
        reader.connect()
        reader.subscribe("t", qos=1)
        reader.cut()
    publisher.deliver("t", b"before")
    world.run_for(2 * SECOND_US)
    _step(world, change_us)
    publisher.deliver("t", b"after")
    early.connect(wait=False)
    world.run_for(100_000)
    assert [m.payload for m in early.messages] == [b"before", b"after"]
    world.run_for(7 * SECOND_US)
    late.connect(wait=False)
    world.run_for(100_000)
    assert [m.payload for m in late.messages] == [b"after"]


@pytest.mark.parametrize("change_us", STEPS_US)
def test_a_step_is_told(change_us: int) -> None:
    world = make_world()
    publisher = Client(world, "p")
    publisher.connect()
    publisher.deliver("t")
    world.clock.step_wall_us(change_us)
    world.run_for(LOOK_INTERVAL_US)
    told = world.logged("clock.stepped")
    assert len(told) == 1
    assert told[0]["by_s"] == abs(change_us) / SECOND_US
    assert told[0]["direction"] == ("forward" if change_us > 0 else "back")
    metrics = world.live.services.metrics
    assert (metrics.clock_steps_forward, metrics.clock_steps_back) == (
        change_us > 0,
        change_us < 0,
    )
    lead_us = world.live.services.timekeeper.lead_us()
    assert lead_us == max(0, world.store.last_offset - world.clock.now_us())
    # What the step has set it back by, less what has passed since.
    assert lead_us >= -change_us - LOOK_INTERVAL_US - SECOND_US
    assert told[0]["offsets_ahead_s"] == pytest.approx(
        lead_us / SECOND_US, abs=LOOK_INTERVAL_US / SECOND_US
    )
    world.live.services.gauges()
    assert metrics.clock_offset_lead_seconds == lead_us // SECOND_US


def test_a_time_that_was_lost_is_about_that_of_the_newest_generation() -> None:
    """A clock that was ahead, and nothing but the log tells of it."""
    world = make_world(
        config=Config(
            sys=QUIET,
            retention=RetentionConfig(time_s=3600, generation_time_s=600, check_interval_s=60),
        )
    )
    publisher, client = Client(world, "p"), Client(world, "c")
    publisher.connect()
    for _ in range(3):
        publisher.deliver("t")
        world.run_for(700 * SECOND_US)
    client.connect(expiry_s=100)
    client.cut()
    world.stop()
    world.kept_clock.state = None
    world.clock.step_wall_us(-YEAR_US)
    world.start()
    assert world.live.services.metrics.sessions_expired == 0
    world.run_for(800 * SECOND_US)
    assert world.live.services.metrics.sessions_expired == 1
    world.run_for(3000 * SECOND_US)
    assert len(world.store.generations()) == 1


def test_a_small_change_is_not_told() -> None:
    world = make_world()
    for _ in range(10):
        _step(world, 90_000)
    assert world.logged("clock.stepped") == []
    _step(world, 990_000)
    assert len(world.logged("clock.stepped")) == 1


def test_a_log_that_is_ahead_is_told_at_start() -> None:
    world = make_world()
    publisher = Client(world, "p")
    publisher.connect()
    publisher.deliver("t")
    _step(world, -HOUR_US, restart=True)
    (told,) = world.logged("clock.behind_log")
    assert told["behind_s"] == pytest.approx(3600, abs=0.5)
    reader = Client(world, "r")
    reader.connect()
    publisher.connect()
    first = world.store.last_offset
    publisher.deliver("t", b"later")
    assert world.store.last_offset > first


@pytest.mark.parametrize("restart", [False, True])
def test_a_clock_that_begins_in_1970_and_is_set_then(restart: bool) -> None:
    """A machine without a clock of its own: what it counted down since it started goes on."""
    world = World(config=Config(sys=QUIET), weather=make_world().network.weather)
    world.clock.step_wall_us(60 * SECOND_US - world.clock.now_us())
    world.start()
    assert world.logged("clock.not_set")
    publisher, reader = Client(world, "p"), Client(world, "r")
    publisher.connect()
    reader.connect(expiry_s=3600)
    reader.subscribe("t", qos=1)
    reader.cut()
    publisher.deliver("t", b"early", expiry_s=600)
    _step(world, 56 * YEAR_US, restart=restart)
    publisher.connect()
    publisher.deliver("t", b"set", expiry_s=600)
    assert world.store.last_offset > 56 * YEAR_US
    world.stop()
    world.start()
    reader.connect(wait=False, expiry_s=3600)
    world.run_for(200_000)
    assert [m.payload for m in reader.messages] == [b"early", b"set"]
    reader.cut()
    world.run_for(3601 * SECOND_US)
    assert world.live.services.metrics.sessions_expired == 1


def test_the_time_is_kept_every_minute_and_at_the_end() -> None:
    world = make_world()

    def kept_us() -> int:
        state = world.kept_clock.state
        assert isinstance(state, ClockState)
        return state.steady_us

    first_us = kept_us()
    world.run_for(30 * SECOND_US)
    assert kept_us() == first_us
    world.run_for(31 * SECOND_US)
    assert kept_us() == first_us + 60 * SECOND_US
    world.run_for(5 * SECOND_US)
    world.stop()
    assert kept_us() == world.clock.now_us()
