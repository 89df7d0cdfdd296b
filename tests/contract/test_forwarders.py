"""All that is selected is at every target, in order; what comes again after a kill is there once,
or can be told by its offset; what the target refuses is a dead letter."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from perdure.model import Message
from perdure.mqtt.property_values import EMPTY, Properties
from tests.contract.targets import TARGETS, Target, Told
from tests.support.forwarder_bench import NAME, Bench


@pytest.fixture(
    params=[
        pytest.param(name, marks=getattr(pytest.mark, name) if name != "webhook" else ())
        for name in sorted(TARGETS)
    ]
)
async def target(request: pytest.FixtureRequest) -> AsyncIterator[Target]:
    """Each target, empty."""
    made = TARGETS[request.param]()
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def bench(target: Target) -> AsyncIterator[Bench]:
    """A broker with a forwarder to the target."""
    made = Bench(target.settings)
    await made.run()
    yield made
    await made.close()


def messages(first: int, count: int) -> list[Message]:
    return [
        Message(f"t/{i % 3}", b"%d" % i, 1 + i % 2, publisher="p", published_at_us=10**15 + i)
        for i in range(first, first + count)
    ]


def told(sent: list[Message]) -> list[Told]:
    return [Told(each.topic, each.payload) for each in sent]


async def test_all_that_is_selected_is_there_in_order(bench: Bench, target: Target) -> None:
    first, second = messages(0, 700), messages(700, 50)
    await bench.publish(*first, Message("other", b"not for it", 1))
    await bench.publish(*second)
    await bench.until(lambda: bench.forwarded() >= 750)
    assert await target.read() == told(first + second)


async def test_what_a_kill_repeats_is_there_once(bench: Bench, target: Target) -> None:
    first = messages(0, 40)
    await bench.publish(*first[:20])
    await bench.until(lambda: bench.forwarded() >= 20)
    # The cursor that a killed process would have left: it is written now and then only.
    stored = await bench.database.open_session(f"$forwarder/{NAME}")
    assert stored is not None
    early = stored.cursor
    await bench.publish(*first[20:])
    await bench.until(lambda: bench.forwarded() >= 40)
    await bench.close()
    bench.start()
    session = await bench.database.open_session(f"$forwarder/{NAME}")
    assert session is not None
    batch = bench.services.committer.batch
    batch.put_cursor(f"$forwarder/{NAME}", early, epoch=session.record.epoch)
    await bench.run()
    more = messages(40, 10)
    await bench.publish(*more)
    await bench.until(lambda: bench.forwarded() >= 10)
    found = await target.read()
    if target.is_exact:
        assert found == told(first + more)
    else:
        assert list(dict.fromkeys(found)) == told(first + more)
        assert target.offsets == sorted(target.offsets) or len(found) > 50


async def test_a_message_that_the_target_refuses_is_a_dead_letter(target: Target) -> None:
    if target.refused is None:
        pytest.skip("it takes everything")
    bench = Bench(target.settings)
    await bench.run()
    sent = messages(0, 9)
    bad = Message("t/bad", target.refused, 1, publisher="p")
    await bench.publish(*sent[:4], bad, *sent[4:])
    await bench.until(lambda: bench.forwarded() >= 9)
    await bench.services.pipeline.settled()
    dead = await bench.database.read(["$dead/#"], after_offset=0, until_offset=2**62, limit=5)
    assert [(each.topic, each.payload) for each in dead.messages] == [
        (f"$dead/{NAME}", target.refused)
    ]
    assert await target.read() == told(sent)
    assert bench.forwarders.rows()[0].refused == 1
    assert Properties() == EMPTY  # what all packets without properties share
    await bench.close()


async def test_with_stop_it_stands_before_what_is_refused(target: Target) -> None:
    if target.refused is None:
        pytest.skip("it takes everything")
    bench = Bench(target.settings, on_refused="stop")
    await bench.run()
    await bench.publish(Message("t/bad", target.refused, 1))
    await bench.until(lambda: bench.forwarders.rows()[0].state == "stopped")
    assert bench.forwarders.rows()[0].offset < bench.database.last_offset
    await bench.close()


async def test_an_outage_loses_nothing(bench: Bench, target: Target) -> None:
    if not target.can_be_away:
        pytest.skip("its server is shared by the tests")
    first, second = messages(0, 30), messages(30, 30)
    await bench.publish(*first)
    await bench.until(lambda: bench.forwarded() >= 30)
    await target.go_away()
    await bench.publish(*second)
    await bench.until(lambda: bench.forwarders.rows()[0].state == "retrying")
    assert bench.forwarders.rows()[0].lag_messages > 0
    await target.come_back()
    await bench.until(lambda: bench.forwarded() >= 60)
    assert list(dict.fromkeys(await target.read())) == told(first + second)
