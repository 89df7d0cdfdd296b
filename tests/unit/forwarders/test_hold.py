"""The log waits for a forwarder for ``hold_s`` and no longer; what it misses then is told, counted
and raises an alarm, and it goes on with what there is."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from structlog.testing import capture_logs

from perdure.config.schema import AlarmsConfig, Config, RetentionConfig
from perdure.model import Message
from perdure.server.alarms.forwarders import GAP_US, ForwarderReadings
from tests.contract.targets import Told, WebhookTarget
from tests.support.forwarder_bench import Bench

DAY_S = 86_400
HOUR_US = 3_600_000_000
KEPT = RetentionConfig(time_s=DAY_S, generation_time_s=3600, check_interval_s=86_400)


@pytest.fixture
async def target() -> AsyncIterator[WebhookTarget]:
    made = WebhookTarget()
    await made.start()
    yield made
    await made.stop()


async def days(bench: Bench, count: int) -> None:
    """Time passes, and retention looks each hour."""
    for _ in range(24 * count):
        bench.clock.ahead_us += HOUR_US
        await bench.services.retention.check()


def alarms(bench: Bench) -> dict[str, float]:
    config = AlarmsConfig()
    readings = ForwarderReadings(bench.forwarders).look(config, bench.services.clock.monotonic_us())
    return {name: each.value for name, each in readings if each.value >= each.threshold}


def numbered(first: int, count: int) -> list[Message]:
    return [Message("t/a", b"%d" % i, 1, publisher="p") for i in range(first, first + count)]


async def test_the_log_waits_for_hold_s_and_then_the_gap_is_told(target: WebhookTarget) -> None:
    bench = Bench(target.settings, config=Config(retention=KEPT), hold_s=3 * DAY_S)
    await bench.run()
    with capture_logs() as events:
        await bench.publish(*numbered(0, 10))
        await bench.until(lambda: bench.forwarded() >= 10)
        bench.forwarders.rows()
        await target.go_away()
        await bench.publish(*numbered(10, 10))
        # Three days and some hours: retention.time_s is over, and hold_s is not.
        await days(bench, 3)
        read = await bench.database.read(["t/#"], after_offset=0, until_offset=2**62, limit=99)
        assert [each.payload for each in read.messages][-10:] == [b"%d" % i for i in range(10, 20)]
        assert bench.forwarders.rows()[0].gaps == 0
        assert alarms(bench) == {"forwarder_lag": pytest.approx(3 * DAY_S, abs=60)}
        await days(bench, 3)
        await bench.until(lambda: bench.forwarders.rows()[0].gaps == 1)
        await bench.publish(*numbered(20, 10))
        await target.come_back()
        await bench.until(lambda: bench.forwarded() >= 20)
    [told] = [each for each in events if each["event"] == "forwarder.gap"]
    assert (told["forwarder"], told["log_level"]) == ("under-test", "error")
    assert bench.metrics.forwarder_dropped["under-test", "lost"] == 1
    assert list(dict.fromkeys(await target.read())) == [
        Told(each.topic, each.payload) for each in [*numbered(0, 10), *numbered(20, 10)]
    ]
    # The lag is over; the gap is told of for an hour, for nobody can mend it.
    assert alarms(bench) == {"forwarder_gaps": 1}

    bench.clock.ahead_us += GAP_US
    assert alarms(bench) == {}
    await bench.close()


async def test_without_hold_nothing_waits(target: WebhookTarget) -> None:
    bench = Bench(target.settings, config=Config(retention=KEPT), hold_s=0)
    await bench.run()
    await bench.publish(*numbered(0, 3))
    await bench.until(lambda: bench.forwarded() >= 3)
    await target.go_away()
    await bench.publish(*numbered(3, 3))
    await days(bench, 2)
    await bench.until(lambda: bench.forwarders.rows()[0].gaps == 1)
    await bench.close()


async def test_a_stopped_forwarder_raises_its_alarm_at_once(target: WebhookTarget) -> None:
    bench = Bench(target.settings, on_refused="stop")
    await bench.run()
    await bench.publish(Message("t/bad", b"no such thing", 1))
    await bench.until(lambda: bench.forwarders.rows()[0].state == "stopped")
    assert alarms(bench) == {"forwarder_lag": AlarmsConfig().forwarder_lag_s}
    await bench.forwarders.pause("under-test", paused=True)
    assert alarms(bench) == {}
    await bench.close()
