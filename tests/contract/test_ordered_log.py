"""What every ordered log promises: one order for all, nothing lost, nothing twice."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio

from perdure.errors import LogShorter, LogTruncated, RecordTooLarge
from perdure.storage.ordered.contract import OrderedLog
from tests.contract.logs import LOGS, Collected, LogPlace

Opener = Callable[..., Awaitable[tuple[OrderedLog, Collected]]]


@pytest_asyncio.fixture(
    params=[pytest.param(name, marks=pytest.mark.kafka if name == "kafka" else []) for name in LOGS]
)
async def opener(request: pytest.FixtureRequest) -> AsyncIterator[Opener]:
    """Opens ends of one log that is empty at first, and closes them."""
    place: LogPlace = LOGS[request.param]()
    async with contextlib.AsyncExitStack() as stack:

        async def open_end(position: int = 0) -> tuple[OrderedLog, Collected]:
            end = await place.open()
            stack.push_async_callback(end.close)
            reader = Collected()
            end.start(reader, position)
            return end, reader

        yield open_end


async def test_all_get_all_records_in_one_order(opener: Opener) -> None:
    here, read_here = await opener()
    there, read_there = await opener()
    for number in range(200):
        here.submit(b"h%d" % number)
        there.submit(b"t%d" % number)
    values = await read_here.wait(400)
    assert await read_there.wait(400) == values
    assert read_here.got == read_there.got
    for name in (b"h", b"t"):
        own = [value for value in values if value.startswith(name)]
        assert own == [name + b"%d" % number for number in range(200)]


async def test_positions_ascend_and_each_record_has_the_logs_time(opener: Opener) -> None:
    end, reader = await opener()
    for number in range(10):
        end.submit(b"%d" % number)
        await reader.wait(number + 1)
    positions = [record.position for record in reader.got]
    assert positions == sorted(set(positions))
    again, read_again = await opener()
    await read_again.wait(10)
    assert read_again.got == reader.got
    assert again.problem == ""


async def test_reading_begins_at_any_position(opener: Opener) -> None:
    end, reader = await opener()
    for number in range(20):
        end.submit(b"%d" % number)
    await reader.wait(20)
    _, later = await opener(reader.got[12].position)
    assert await later.wait(8) == [b"%d" % number for number in range(12, 20)]
    bounds = await end.bounds()
    assert bounds.first == reader.got[0].position
    assert bounds.end > reader.got[-1].position
    _, at_end = await opener(bounds.end)
    end.submit(b"next")
    assert await at_end.wait(1) == [b"next"]


async def test_what_was_trimmed_is_told_and_not_skipped(opener: Opener) -> None:
    end, reader = await opener()
    for number in range(20):
        end.submit(b"%d" % number)
    await reader.wait(20)
    await end.trim(reader.got[15].position)
    bounds = await end.bounds()
    assert bounds.first == reader.got[15].position
    _, too_early = await opener(reader.got[14].position)
    assert isinstance(await too_early.wait_failed(), LogTruncated)
    _, in_time = await opener(bounds.first)
    assert await in_time.wait(5) == [b"%d" % number for number in range(15, 20)]


async def test_a_log_that_lost_its_tail_is_told(opener: Opener) -> None:
    end, reader = await opener()
    end.submit(b"only")
    await reader.wait(1)
    bounds = await end.bounds()
    ahead, read_ahead = await opener(bounds.end + 5)
    assert isinstance(await read_ahead.wait_failed(), LogShorter)
    with pytest.raises(LogShorter):
        ahead.submit(b"x")


async def test_the_largest_record_fits_and_a_larger_one_costs_itself_alone(opener: Opener) -> None:
    end, reader = await opener()
    largest = bytes(end.record_bytes_max)
    with pytest.raises(RecordTooLarge):
        end.submit(largest + b"x")
    # Beside others: none may push another over the limit of a request.
    for value in (b"a", largest, b"b", largest, b"c"):
        end.submit(value)
    assert await reader.wait(5) == [b"a", largest, b"b", largest, b"c"]


async def test_a_closed_end_is_given_nothing_and_others_go_on(opener: Opener) -> None:
    here, read_here = await opener()
    there, read_there = await opener()
    here.submit(b"a")
    await read_here.wait(1)
    await here.close()
    await here.close()
    there.submit(b"b")
    assert await read_there.wait(2) == [b"a", b"b"]
    assert [record.value for record in read_here.got] == [b"a"]
