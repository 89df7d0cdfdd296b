"""A wall clock that is set: no deadline moves, and somebody is told."""

from __future__ import annotations

import pytest

from perdure.broker.monitor.clock_watch import LOOK_INTERVAL_US
from perdure.clock import ClockState
from perdure.config.schema import Config, RetentionConfig, SessionConfig
from perdure.model import Will
from perdure.mqtt.packets import Publish
from tests.support.sim_broker import SimBroker
from tests.unit.broker.harness import QUIET, Client, make_sim

SECOND_US = 1_000_000
HOUR_US = 3600 * SECOND_US
YEAR_US = 365 * 24 * HOUR_US
STEPS_US = [-YEAR_US, -3 * SECOND_US, 3 * SECOND_US, YEAR_US]


def _step(sim: SimBroker, change_us: int, *, restart: bool = False) -> None:
    """Set the clock, in a run or between two."""
    if restart:
        sim.stop()
    sim.clock.step_wall_us(change_us)
    if restart:
        sim.start()
    else:
        sim.live.services.clock_watch.look()
        sim.run_for(1_500_000)


@pytest.mark.parametrize("change_us", STEPS_US)
def test_a_delayed_will_comes_when_it_is_due(change_us: int) -> None:
    sim = make_sim()
    watcher, client = Client(sim, "w"), Client(sim, "c")
    watcher.connect()
    watcher.subscribe("will", qos=1)
    client.connect(will=Will("will", b"gone", qos=1, delay_s=10, expiry_s=20))
    client.cut()
    sim.run_for(2 * SECOND_US)
    _step(sim, change_us)
    assert watcher.payloads(within_us=6 * SECOND_US) == []
    sim.run_for(SECOND_US)
    assert watcher.take(Publish).payload == b"gone"
    assert watcher.messages[0].expiry_s == 20


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("change_us", STEPS_US)
def test_a_session_expires_when_it_is_due(change_us: int, restart: bool) -> None:
    if restart and change_us > 0:
        return  # what a clock that runs on between two runs says is time that has passed
    sim = make_sim()
    client = Client(sim, "c")
    client.connect(expiry_s=10)
    client.cut()
    sim.run_for(2 * SECOND_US)
    _step(sim, change_us, restart=restart)
    sim.run_for(6 * SECOND_US)
    assert sim.live.services.metrics.sessions_expired == 0
    sim.run_for(3 * SECOND_US)
    assert sim.live.services.metrics.sessions_expired == 1


@pytest.mark.parametrize("change_us", STEPS_US)
def test_a_message_expires_when_it_is_due(change_us: int) -> None:
    sim = make_sim()
    publisher, early, late = (Client(sim, name) for name in ("p", "e", "l"))
    publisher.connect()
    for reader in (early, late):
        reader.connect()
        reader.subscribe("t", qos=1)
        reader.cut()
    publisher.deliver("t", b"a", expiry_s=10)
    publisher.deliver("t/retained", b"b", expiry_s=10, retain=True)
    sim.run_for(2 * SECOND_US)
    _step(sim, change_us)
    early.connect(wait=False)
    sim.run_for(100_000)
    assert [(m.payload, m.expiry_s) for m in early.messages] == [(b"a", 7)]
    early.subscribe("t/+", qos=1)
    sim.run_for(100_000)
    assert [m.payload for m in early.messages] == [b"a", b"b"]
    sim.run_for(7 * SECOND_US)
    late.connect()
    late.subscribe("t/+", qos=1)
    late.none_comes()


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("change_us", STEPS_US)
def test_retention_by_time_goes_on(change_us: int, restart: bool) -> None:
    """Nothing goes before its time, and it goes then, though offsets stay ahead for a year."""
    if restart and change_us > 0:
        return
    sim = make_sim(
        config=Config(
            sys=QUIET,
            retention=RetentionConfig(time_s=3600, generation_time_s=600, check_interval_s=60),
        )
    )
    publisher = Client(sim, "p")
    publisher.connect()
    publisher.deliver("t", b"before")
    sim.run_for(700 * SECOND_US)
    assert [info.generation for info in sim.store.generations()] == [1, 2]
    _step(sim, change_us, restart=restart)
    publisher.connect()
    publisher.deliver("t", b"after")
    sim.run_for(2900 * SECOND_US)
    assert [info.generation for info in sim.store.generations()] == [1, 2, 3]
    sim.run_for(100 * SECOND_US)
    assert [info.generation for info in sim.store.generations()] == [2, 3]
    sim.run_for(700 * SECOND_US)
    assert [info.generation for info in sim.store.generations()] == [3]


@pytest.mark.parametrize("change_us", STEPS_US)
def test_the_age_of_what_is_pending_goes_on(change_us: int) -> None:
    sim = make_sim(config=Config(sys=QUIET, session=SessionConfig(pending_age_max_s=10)))
    publisher, early, late = (Client(sim, name) for name in ("p", "e", "l"))
    publisher.connect()
    for reader in (early, late):
        reader.connect()
        reader.subscribe("t", qos=1)
        reader.cut()
    publisher.deliver("t", b"before")
    sim.run_for(2 * SECOND_US)
    _step(sim, change_us)
    publisher.deliver("t", b"after")
    early.connect(wait=False)
    sim.run_for(100_000)
    assert [m.payload for m in early.messages] == [b"before", b"after"]
    sim.run_for(7 * SECOND_US)
    late.connect(wait=False)
    sim.run_for(100_000)
    assert [m.payload for m in late.messages] == [b"after"]


@pytest.mark.parametrize("change_us", STEPS_US)
def test_a_step_is_told(change_us: int) -> None:
    sim = make_sim()
    publisher = Client(sim, "p")
    publisher.connect()
    publisher.deliver("t")
    sim.clock.step_wall_us(change_us)
    sim.run_for(LOOK_INTERVAL_US)
    told = sim.logged("clock.stepped")
    assert len(told) == 1
    assert told[0]["by_s"] == abs(change_us) / SECOND_US
    assert told[0]["direction"] == ("forward" if change_us > 0 else "back")
    metrics = sim.live.services.metrics
    assert (metrics.clock_steps_forward, metrics.clock_steps_back) == (
        change_us > 0,
        change_us < 0,
    )
    lead_us = sim.live.services.clock_watch.lead_us()
    assert lead_us == max(0, sim.store.last_offset - sim.clock.now_us())
    # What the step has set it back by, less what has passed since.
    assert lead_us >= -change_us - LOOK_INTERVAL_US - SECOND_US
    assert told[0]["offsets_ahead_s"] == pytest.approx(
        lead_us / SECOND_US, abs=LOOK_INTERVAL_US / SECOND_US
    )
    sim.live.services.gauges.update()
    assert metrics.clock_offset_lead_seconds == lead_us // SECOND_US


def test_a_time_that_was_lost_is_about_that_of_the_newest_generation() -> None:
    """A clock that was ahead, and nothing but the log tells of it."""
    sim = make_sim(
        config=Config(
            sys=QUIET,
            retention=RetentionConfig(time_s=3600, generation_time_s=600, check_interval_s=60),
        )
    )
    publisher, client = Client(sim, "p"), Client(sim, "c")
    publisher.connect()
    for _ in range(3):
        publisher.deliver("t")
        sim.run_for(700 * SECOND_US)
    client.connect(expiry_s=100)
    client.cut()
    sim.stop()
    sim.kept_clock.state = None
    sim.clock.step_wall_us(-YEAR_US)
    sim.start()
    assert sim.live.services.metrics.sessions_expired == 0
    sim.run_for(800 * SECOND_US)
    assert sim.live.services.metrics.sessions_expired == 1
    sim.run_for(3000 * SECOND_US)
    assert len(sim.store.generations()) == 1


def test_a_small_change_is_not_told() -> None:
    sim = make_sim()
    for _ in range(10):
        _step(sim, 90_000)
    assert sim.logged("clock.stepped") == []
    _step(sim, 990_000)
    assert len(sim.logged("clock.stepped")) == 1


def test_a_log_that_is_ahead_is_told_at_start() -> None:
    sim = make_sim()
    publisher = Client(sim, "p")
    publisher.connect()
    publisher.deliver("t")
    _step(sim, -HOUR_US, restart=True)
    (told,) = sim.logged("clock.behind_log")
    assert told["behind_s"] == pytest.approx(3600, abs=0.5)
    reader = Client(sim, "r")
    reader.connect()
    publisher.connect()
    first = sim.store.last_offset
    publisher.deliver("t", b"later")
    assert sim.store.last_offset > first


@pytest.mark.parametrize("restart", [False, True])
def test_a_clock_that_begins_in_1970_and_is_set_then(restart: bool) -> None:
    """A machine without a clock of its own: what it counted down since it started goes on."""
    sim = SimBroker(config=Config(sys=QUIET), network_profile=make_sim().network.profile)
    sim.clock.step_wall_us(60 * SECOND_US - sim.clock.now_us())
    sim.start()
    assert sim.logged("clock.not_set")
    publisher, reader = Client(sim, "p"), Client(sim, "r")
    publisher.connect()
    reader.connect(expiry_s=3600)
    reader.subscribe("t", qos=1)
    reader.cut()
    publisher.deliver("t", b"early", expiry_s=600)
    _step(sim, 56 * YEAR_US, restart=restart)
    publisher.connect()
    publisher.deliver("t", b"set", expiry_s=600)
    assert sim.store.last_offset > 56 * YEAR_US
    sim.stop()
    sim.start()
    reader.connect(wait=False, expiry_s=3600)
    sim.run_for(200_000)
    assert [m.payload for m in reader.messages] == [b"early", b"set"]
    reader.cut()
    sim.run_for(3601 * SECOND_US)
    assert sim.live.services.metrics.sessions_expired == 1


DAY_US = 24 * HOUR_US


def _away_a_minute(sim: SimBroker, change_us: int, *, known: bool) -> None:
    """Restart a minute later, the clock set in between; the machine may have counted the time."""
    sim.stop()
    sim.run_for(60 * SECOND_US)
    sim.clock.step_wall_us(change_us)
    state = sim.kept_clock.state
    assert state is not None
    state.elapsed_us = 60 * SECOND_US if known else None
    sim.start()


def test_a_clock_that_was_a_day_behind_in_the_last_run() -> None:
    """What the machine has counted tells that it was set, and by how much: nothing ends early."""
    sim = make_sim()
    publisher, reader = Client(sim, "p"), Client(sim, "r")
    publisher.connect()
    reader.connect(expiry_s=3600)
    reader.subscribe("t", qos=1)
    reader.cut()
    publisher.deliver("t", b"early", expiry_s=600)
    _away_a_minute(sim, DAY_US, known=True)
    (told,) = sim.logged("clock.stepped")
    assert (told["direction"], told["by_s"]) == ("forward", 86_400.0)
    assert sim.logged("clock.time_off") == []
    # Whether it runs on or is started anew, with the file that this run leaves.
    _away_a_minute(sim, 0, known=False)
    assert len(sim.logged("clock.stepped")) == 1
    reader.connect(wait=False, expiry_s=3600)
    sim.run_for(200_000)
    assert [m.payload for m in reader.messages] == [b"early"]
    reader.cut()
    sim.run_for(3601 * SECOND_US)
    assert sim.live.services.metrics.sessions_expired == 1


def test_time_that_only_the_wall_has_counted_is_told() -> None:
    """It may be a clock that was behind: what ended of it is said, with the amount."""
    sim = make_sim()
    client = Client(sim, "c")
    client.connect(expiry_s=3600)
    client.cut()
    _away_a_minute(sim, DAY_US, known=False)
    (told,) = sim.logged("clock.time_off")
    assert told["counted_s"] == pytest.approx(86_460, abs=1)
    sim.run_for(SECOND_US)
    assert sim.live.services.metrics.sessions_expired == 1
    _away_a_minute(sim, 0, known=False)
    assert len(sim.logged("clock.time_off")) == 1


def test_the_time_is_kept_every_ten_seconds_and_at_the_end() -> None:
    sim = make_sim()

    def kept_us() -> int:
        state = sim.kept_clock.state
        assert isinstance(state, ClockState)
        return state.steady_us

    first_us = kept_us()
    sim.run_for(6 * SECOND_US)
    assert kept_us() == first_us
    sim.run_for(5 * SECOND_US)
    assert kept_us() == first_us + 10 * SECOND_US
    sim.run_for(5 * SECOND_US)
    sim.stop()
    assert kept_us() == sim.clock.now_us()
