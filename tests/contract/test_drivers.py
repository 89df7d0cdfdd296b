"""What every driver of ``storage.remote`` promises, on real servers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio

from perdure.errors import Fenced, StorageLocked, StorageUnavailable
from perdure.model import Message
from perdure.storage.device_queue import NewEntry
from perdure.storage.postgres.driver import PostgresDriver
from perdure.storage.redis.driver import RedisDriver
from perdure.storage.remote.driver import (
    CLIENTS,
    INBOX,
    META,
    RETAINED,
    ROWS,
    Driver,
    Transaction,
)
from tests import servers
from tests.contract.conftest import BACKEND_MARKS
from tests.support.bounds import HANG_S
from tests.support.remote import MemoryDriver, ServerState

Make = Callable[[], Driver]


def _memory() -> Make:
    state = ServerState()
    return lambda: MemoryDriver(state)


def _postgres() -> Make:
    url = servers.postgres_place()
    return lambda: PostgresDriver(url, policy="ignore", command_timeout_s=HANG_S)


def _redis() -> Make:
    url, prefix = servers.redis().url, servers.redis_prefix()
    return lambda: RedisDriver(url, prefix=prefix, identity="me", command_timeout_s=HANG_S)


def _redis_cluster() -> Make:
    url, prefix = servers.redis_cluster().url, servers.redis_prefix()
    return lambda: RedisDriver(url, prefix=prefix, identity="me", command_timeout_s=HANG_S)


DRIVERS = {
    "memory": _memory,
    "redis": _redis,
    "redis-cluster": _redis_cluster,
    "postgres": _postgres,
}


@pytest.fixture(params=[pytest.param(name, marks=BACKEND_MARKS.get(name, [])) for name in DRIVERS])
def make(request: pytest.FixtureRequest) -> Make:
    """Makes drivers of one place, where nothing is stored yet."""
    return DRIVERS[request.param]()


@pytest_asyncio.fixture
async def driver(make: Make) -> AsyncIterator[Driver]:
    """A driver that has claimed an empty place."""
    driver = make()
    assert (await driver.claim()).number == 0
    yield driver
    await driver.close()


def transaction(number: int) -> Transaction:
    made = Transaction()
    made.number = number
    return made


def entry(client_id: str, serial: int, payload: bytes = b"x", **fields: object) -> NewEntry:
    message = Message(
        "t/ä", payload, 1, publisher="p", published_at_us=1_700_000_000_000_000, offset=serial
    )
    return NewEntry(client_id, message, 1, position=serial, serial=serial, **fields)  # type: ignore[arg-type]


async def queued(driver: Driver, client_id: str, **bounds: int) -> list[int]:
    limits = {"after_serial": 0, "until_serial": 1 << 55, "limit": 1000, "bytes_max": 0}
    page = await driver.read_queue(client_id, **{**limits, **bounds})
    return [message.offset for message in page.messages]


LONG = bytes(range(256)) * 200


async def test_rows_come_back_in_byte_order(driver: Driver) -> None:
    keys = [b"", b"\x00", b"a", b"a\x00b", b"a\xff", b"b" * 3000, b"b" * 2999 + b"c", b"\xff", LONG]
    first = transaction(1)
    for key in keys:
        first.put(RETAINED, b"", key, key + b"!")
        first.put(CLIENTS, b"", key, b"")
        first.put(ROWS, LONG, key, key)
    await driver.commit(first)
    expected = sorted(keys)
    for table, suffix in ((RETAINED, b"!"), (CLIENTS, None)):
        found = await driver.scan(table, b"", start=b"", end=b"", limit=100)
        assert [key for key, _ in found] == expected
        assert suffix is None or [value for _, value in found] == [key + suffix for key in expected]
        page = await driver.scan(table, b"", start=b"a", end=b"b" * 3000, limit=2)
        assert [key for key, _ in page] == [key for key in expected if key >= b"a"][:2]
    assert await driver.rows_of(ROWS, [LONG, b"none"]) == [[(key, key) for key in expected], []]
    wanted = [(RETAINED, b"", key) for key in (LONG, b"none", b"a")]
    assert await driver.get(wanted) == [LONG + b"!", None, b"a!"]
    second = transaction(2)
    second.drop(ROWS, LONG)
    for key in keys:
        second.put(RETAINED, b"", key, None)
    await driver.commit(second)
    assert await driver.scan(RETAINED, b"", start=b"", end=b"", limit=100) == []
    assert await driver.rows_of(ROWS, [LONG]) == [[]]


async def test_a_trim_takes_what_is_below(driver: Driver) -> None:
    first = transaction(1)
    for number in range(2500):
        first.put(INBOX, b"c", b"%04d" % number, b"x")
    first.put(INBOX, b"other", b"0000", b"x")
    await driver.commit(first)
    second = transaction(2)
    second.trim(INBOX, b"c", b"2400")
    second.put(INBOX, b"c", b"0001", b"again")
    await driver.commit(second)
    found = await driver.scan(INBOX, b"c", start=b"", end=b"", limit=10_000)
    assert [key for key, _ in found] == [b"0001", *(b"%04d" % n for n in range(2401, 2500))]
    assert len(await driver.scan(INBOX, b"other", start=b"", end=b"", limit=9)) == 1


@pytest.mark.parametrize("client_id", ["c", "{a}b", "ä/#", "x" * 3000])
async def test_a_queue_is_appended_to_trimmed_and_discarded(driver: Driver, client_id: str) -> None:
    first = transaction(1)
    for serial in (10, 20, 1_700_000_000_000_000):
        first.append(entry(client_id, serial, b"p%d" % serial, identifiers=(7,)), 1)
    first.append(entry("other", 5), 1)
    await driver.commit(first)
    assert await queued(driver, client_id) == [10, 20, 1_700_000_000_000_000]
    assert await driver.queue_sizes([client_id, "other", "none"]) == [3, 1, 0]
    page = await driver.read_queue(
        client_id, after_serial=10, until_serial=30, limit=5, bytes_max=0
    )
    assert (page.through_offset, [m.payload for m in page.messages]) == (30, [b"p20"])
    assert page.messages[0].topic == "t/ä"
    page = await driver.read_queue(
        client_id, after_serial=0, until_serial=1 << 55, limit=2, bytes_max=0
    )
    assert (page.through_offset, len(page.messages)) == (20, 2)
    page = await driver.read_queue(
        client_id, after_serial=0, until_serial=1 << 55, limit=9, bytes_max=1
    )
    assert (page.through_offset, len(page.messages)) == (10, 1)
    second = transaction(2)
    second.trim_queue(client_id, 10)
    await driver.commit(second)
    assert await queued(driver, client_id) == [20, 1_700_000_000_000_000]
    third = transaction(3)
    third.discard_queue(client_id)
    third.append(entry(client_id, 40), 1)
    await driver.commit(third)
    assert await queued(driver, client_id) == [40]
    assert await queued(driver, "other") == [5]


async def test_a_second_claim_ends_the_first(make: Make, driver: Driver) -> None:
    """Also when it comes from the same broker: what an earlier connection sent is void."""
    await driver.commit(transaction(1))
    assert (await driver.claim()).number == 1
    await driver.commit(transaction(2))
    assert (await driver.claim()).number == 2


async def test_two_brokers_cannot_have_one_place(make: Make, driver: Driver) -> None:
    other = make()
    if isinstance(other, RedisDriver):
        # The same identity may take over at once; then the first is out.
        await driver.commit(transaction(1))
        assert (await other.claim()).number == 1
        late = transaction(2)
        late.put(META, b"", b"late", b"x")
        with pytest.raises(Fenced):
            await driver.commit(late)
        with pytest.raises(Fenced):
            await driver.claim()
        assert await other.get([(META, b"", b"late")]) == [None]
        await other.close()
        return
    with pytest.raises(StorageLocked):
        await other.claim()
    await other.close()


async def test_a_place_that_was_given_back_is_free_at_once(make: Make) -> None:
    first, second = make(), make()
    await first.claim()
    await first.commit(transaction(1))
    await first.close()
    assert (await second.claim()).number == 1
    await second.close()


async def test_a_driver_that_is_closed_is_not_connected(driver: Driver) -> None:
    await driver.close()
    with pytest.raises(StorageUnavailable):
        await driver.commit(transaction(1))
    with pytest.raises(StorageUnavailable):
        await driver.get([(META, b"", b"x")])


@pytest.mark.redis
async def test_functions_that_redis_lost_are_made_up_for() -> None:
    """EXEC does everything but the calls of functions that are gone; those are called again."""
    driver = _redis()()
    await driver.claim()
    servers.redis().command("FUNCTION", "FLUSH")
    lost = transaction(1)
    lost.put(META, b"", b"k", b"v")
    lost.append(entry("c", 3), 1)
    lost.append(entry("d", 4), 1)
    await driver.commit(lost)
    assert await driver.get([(META, b"", b"k")]) == [b"v"]
    assert (await queued(driver, "c"), await queued(driver, "d")) == ([3], [4])
    await driver.close()


@pytest.mark.redis
async def test_a_journal_is_done_again_by_the_next_claim() -> None:
    """A broker died between the rows of a transaction and its queues."""
    first, second = (make := _redis_cluster())(), make()
    await first.claim()
    done = transaction(1)
    done.append(entry("c", 3), 1)
    done.append(entry("d", 3), 1)
    await first.commit(done)
    # As if the queues had not been reached: they are as before, and the journal is there.
    for client_id in "cd":
        key = f"{_prefix_of(first)}:q:{{{client_id}}}"
        _on_any_node("DEL", key)
    await first.close()
    await second.claim()
    assert (await queued(second, "c"), await queued(second, "d")) == ([3], [3])
    await second.close()


def _prefix_of(driver: Driver) -> str:
    assert isinstance(driver, RedisDriver)
    return driver.prefix


def _on_any_node(*command: str) -> None:
    for node in servers.redis_cluster().nodes:
        try:
            node.command(*command)
        except Exception as error:  # noqa: BLE001 - another node has it
            assert "MOVED" in str(error), error  # noqa: PT017
