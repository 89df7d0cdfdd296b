"""Device queues: order across the wrap, limits, expiry, PUBREL, repeats, owners, pages."""

from __future__ import annotations

import pytest

from perdure.errors import Fenced, UsageError
from perdure.storage.device_queue import (
    QUEUE_LIMIT_MAX,
    Appended,
    DeviceQueue,
    EntryState,
    Trimmed,
)
from tests.contract.queues import (
    NOW_US,
    PROPERTIES,
    SECOND_US,
    append,
    entry,
    payloads,
    read_all,
)

ODD_CLIENTS = [" ", "a b", "a/b", "{a}", "{}", "a}b{c", "ä€😀", "x_messages", "%7B", "\n", "*", "{"]
# Their keys have no hash tag where the id stands in them as it is.
UNTAGGED_CLIENTS = ["", "}a{"]


async def test_what_is_appended_comes_back(queue: DeviceQueue) -> None:
    new = entry(
        payload=b"\x00\xff{}",
        topic="devices/ä/temperature",
        properties=PROPERTIES,
        expires_at_us=NOW_US + 3600 * SECOND_US,
        forget_at_us=NOW_US + 600 * SECOND_US,
        qos=2,
        retain=True,
        identifiers=(1, 268_435_455),
        extra=b"\x00owner",
    )
    (result,) = await queue.append([new], now_us=NOW_US, limit=10)
    assert result == Appended(1, 1)
    (read,) = await read_all(queue)
    assert (read.serial, read.packet_id, read.state) == (1, 1, EntryState.PUBLISH)
    assert (read.qos, read.retain, read.identifiers) == (2, True, (1, 268_435_455))
    assert (read.extra, read.forget_at_us) == (b"\x00owner", NOW_US + 600 * SECOND_US)
    stored, sent = read.message, new.message
    assert (stored.topic, stored.payload) == (sent.topic, sent.payload)
    assert (stored.properties, stored.expires_at_us) == (sent.properties, sent.expires_at_us)
    assert stored.published_at_us == sent.published_at_us


@pytest.mark.parametrize("payload", [b"", b"\x00", bytes(range(256)), b"z" * 70_000])
async def test_a_payload_is_any_bytes(queue: DeviceQueue, payload: bytes) -> None:
    await append(queue, entry(payload=payload), entry(payload=b"next"))
    assert await payloads(queue) == [payload, b"next"]


async def test_a_plain_message_has_nothing_added(queue: DeviceQueue) -> None:
    await append(queue, entry())
    (read,) = await read_all(queue)
    assert (read.qos, read.retain, read.identifiers, read.extra) == (1, False, (), b"")
    assert (read.message.properties, read.message.expires_at_us) == (b"", 0)
    assert read.forget_at_us == 0


@pytest.mark.parametrize("client_id", [*ODD_CLIENTS, *UNTAGGED_CLIENTS])
async def test_a_client_id_is_any_text(
    queue: DeviceQueue, client_id: str, request: pytest.FixtureRequest
) -> None:
    backend = request.node.callspec.params["queue"]
    if backend == "redis-tbmq-cluster" and client_id in UNTAGGED_CLIENTS:
        with pytest.raises(UsageError, match="cannot have a queue"):
            await append(queue, entry(client_id))
        return
    others = [other for other in ODD_CLIENTS if other != client_id]
    await append(queue, entry(client_id, b"mine"), *(entry(other) for other in others))
    assert await payloads(queue, client_id) == [b"mine"]
    await queue.take(client_id, epoch=1)
    assert await queue.acknowledge(client_id, [1], epoch=1) == 1
    assert await payloads(queue, client_id) == []
    assert [await payloads(queue, other) for other in others] == [[b"x"]] * len(others)
    stats = await queue.stats(client_id)
    assert stats is not None
    assert stats.client_id == client_id
    assert await queue.discard(client_id, epoch=1)
    assert {found.client_id async for found in queue.clients()} == set(others)


async def test_results_come_in_the_order_of_the_entries(queue: DeviceQueue) -> None:
    mixed = [entry("a"), entry("b"), entry("a"), entry("c"), entry("b"), entry("a")]
    results = await queue.append(mixed, now_us=NOW_US, limit=10)
    assert [result.packet_id for result in results] == [1, 1, 2, 1, 2, 3]
    assert [result.serial for result in results] == [1, 1, 2, 1, 2, 3]


async def test_nothing_to_append_is_nothing(queue: DeviceQueue) -> None:
    assert await queue.append([], now_us=NOW_US, limit=10) == []


@pytest.mark.trap(1)
async def test_order_holds_across_the_wrap_of_the_packet_identifier(queue: DeviceQueue) -> None:
    await append(queue, entry(payload=b"0", packet_id=65_533))
    assert await append(queue, *(entry(payload=b"%d" % n) for n in range(1, 6))) == [
        65_534,
        65_535,
        1,
        2,
        3,
    ]
    assert await payloads(queue) == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert await payloads(queue, limit=1) == [b"0", b"1", b"2", b"3", b"4", b"5"]
    await queue.take("c1", epoch=1)
    assert await queue.acknowledge("c1", [65_535, 65_533], epoch=1) == 2
    assert await append(queue, entry(payload=b"6")) == [4]
    assert await payloads(queue) == [b"1", b"3", b"4", b"5", b"6"]


async def test_identifiers_go_on_in_an_empty_queue(queue: DeviceQueue) -> None:
    await queue.take("c1", epoch=1)
    await append(queue, entry(), entry())
    await queue.acknowledge("c1", [1, 2], epoch=1)
    assert await read_all(queue) == []
    (result,) = await queue.append([entry()], now_us=NOW_US, limit=10)
    assert (result.serial, result.packet_id) == (3, 3)


async def test_serials_and_identifiers_may_be_given(queue: DeviceQueue) -> None:
    results = await queue.append(
        [
            entry(payload=b"a", serial=1_800_000_000_000_000, packet_id=7),
            entry(payload=b"b", serial=1_800_000_000_000_900),
            entry(payload=b"c"),
            entry(payload=b"d", packet_id=3),
        ],
        now_us=NOW_US,
        limit=10,
    )
    assert [(result.serial, result.packet_id) for result in results] == [
        (1_800_000_000_000_000, 7),
        (1_800_000_000_000_900, 8),
        (1_800_000_000_000_901, 9),
        (1_800_000_000_000_902, 3),
    ]
    assert await payloads(queue) == [b"a", b"b", b"c", b"d"]
    assert await payloads(queue, after=1_800_000_000_000_000, limit=1) == [b"b", b"c", b"d"]


async def test_order_is_that_of_serials_whatever_the_identifiers(queue: DeviceQueue) -> None:
    given = [500, 3, 501, 2, 65_535, 400, 1]
    await append(queue, *(entry(payload=b"%d" % n, packet_id=n) for n in given))
    assert await payloads(queue) == [b"%d" % n for n in given]
    assert await payloads(queue, limit=2) == [b"%d" % n for n in given]
    # 2 goes for the one that needs its identifier again.
    (result,) = await queue.append([entry(payload=b"new")], now_us=NOW_US, limit=10)
    assert result.trimmed == (Trimmed(4, 2, EntryState.PUBLISH),)
    assert await payloads(queue, limit=3) == [b"500", b"3", b"501", b"65535", b"400", b"1", b"new"]
    await queue.take("c1", epoch=1)
    assert await queue.acknowledge("c1", [501, 500], epoch=1) == 2
    assert await queue.trim_through("c1", 5, epoch=1) == 2
    assert await payloads(queue) == [b"400", b"1", b"new"]


async def test_a_serial_that_does_not_follow_is_refused(queue: DeviceQueue) -> None:
    await append(queue, entry(serial=10))
    with pytest.raises(UsageError):
        await append(queue, entry(payload=b"ok"), entry(serial=11), entry(serial=11))
    with pytest.raises(UsageError):
        await append(queue, entry(serial=10))
    # Nothing was taken for the client.
    assert await payloads(queue) == [b"x"]
    stats = await queue.stats("c1")
    assert stats is not None
    assert (stats.last_serial, stats.last_packet_id) == (10, 1)


@pytest.mark.parametrize(
    "fields",
    [
        {"packet_id": 65_536},
        {"packet_id": -1},
        {"serial": -1},
        {"serial": 2**53},
        {"position": 2**53},
        {"position": -1},
        {"forget_at_us": -1},
        {"qos": 0},
        {"qos": 3},
    ],
)
async def test_numbers_out_of_range_are_refused(queue: DeviceQueue, fields: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        await append(queue, entry(), entry("c2", b"x", **fields))
    assert await queue.stats("c1") is None


@pytest.mark.parametrize("limit", [0, -1, QUEUE_LIMIT_MAX + 1])
async def test_a_limit_out_of_range_is_refused(queue: DeviceQueue, limit: int) -> None:
    with pytest.raises(UsageError):
        await append(queue, entry(), limit=limit)
    assert await queue.stats("c1") is None


@pytest.mark.trap(21)
async def test_a_repeated_position_changes_nothing(queue: DeviceQueue) -> None:
    batch = [entry(payload=b"a", position=100), entry(payload=b"b", position=200)]
    await append(queue, *batch)
    results = await queue.append(
        [*batch, entry(payload=b"late", position=150), entry(payload=b"c", position=300)],
        now_us=NOW_US,
        limit=10,
    )
    assert [result.repeated for result in results] == [True, True, True, False]
    assert [result.packet_id for result in results] == [0, 0, 0, 3]
    assert await payloads(queue) == [b"a", b"b", b"c"]
    stats = await queue.stats("c1")
    assert stats is not None
    assert stats.last_position == 300


async def test_a_repeat_is_known_after_everything_was_acknowledged(queue: DeviceQueue) -> None:
    await queue.take("c1", epoch=1)
    await append(queue, entry(position=100, serial=100), entry())
    await queue.acknowledge("c1", [1, 2], epoch=1)
    (result,) = await queue.append([entry(position=100, serial=100)], now_us=NOW_US, limit=10)
    assert result.repeated
    assert await read_all(queue) == []


@pytest.mark.trap(24)
async def test_over_the_limit_the_oldest_go_and_are_reported(queue: DeviceQueue) -> None:
    await append(queue, *(entry(payload=b"%d" % n) for n in range(3)), limit=3)
    results = await queue.append([entry(payload=b"3"), entry(payload=b"4")], now_us=NOW_US, limit=3)
    assert results[0].trimmed == (Trimmed(1, 1, EntryState.PUBLISH),)
    assert results[1].trimmed == (Trimmed(2, 2, EntryState.PUBLISH),)
    assert await payloads(queue) == [b"2", b"3", b"4"]


async def test_one_append_may_go_over_the_limit_by_itself(queue: DeviceQueue) -> None:
    results = await queue.append(
        [entry(payload=b"%d" % n) for n in range(5)], now_us=NOW_US, limit=2
    )
    assert [len(result.trimmed) for result in results] == [0, 0, 1, 1, 1]
    assert await payloads(queue) == [b"3", b"4"]


async def test_a_smaller_limit_trims_at_the_next_append(queue: DeviceQueue) -> None:
    await append(queue, *(entry(payload=b"%d" % n) for n in range(6)))
    (result,) = await queue.append([entry(payload=b"6")], now_us=NOW_US, limit=2)
    assert [gone.packet_id for gone in result.trimmed] == [1, 2, 3, 4, 5]
    assert await payloads(queue) == [b"5", b"6"]


async def test_a_pubrel_is_not_counted_and_not_trimmed(queue: DeviceQueue) -> None:
    await queue.take("c1", epoch=1)
    await append(queue, *(entry(payload=b"%d" % n, qos=2) for n in range(3)), limit=3)
    assert await queue.release("c1", [1, 2], epoch=1) == 2
    results = await queue.append(
        [entry(payload=b"%d" % n) for n in range(3, 6)], now_us=NOW_US, limit=3
    )
    assert [[gone.packet_id for gone in result.trimmed] for result in results] == [[], [], [3]]
    states = [(read.packet_id, read.state) for read in await read_all(queue)]
    assert states == [
        (1, EntryState.PUBREL),
        (2, EntryState.PUBREL),
        (4, EntryState.PUBLISH),
        (5, EntryState.PUBLISH),
        (6, EntryState.PUBLISH),
    ]


@pytest.mark.trap(7)
async def test_an_identifier_is_never_owed_twice(queue: DeviceQueue) -> None:
    await queue.take("c1", epoch=1)
    await append(queue, entry(payload=b"old"), entry(qos=2))
    await queue.release("c1", [2], epoch=1)
    (first,) = await queue.append([entry(packet_id=65_535)], now_us=NOW_US, limit=10)
    assert first.trimmed == ()
    results = await queue.append(
        [entry(payload=b"new"), entry(payload=b"newer")], now_us=NOW_US, limit=10
    )
    assert [result.packet_id for result in results] == [1, 2]
    assert results[0].trimmed == (Trimmed(1, 1, EntryState.PUBLISH),)
    assert results[1].trimmed == (Trimmed(2, 2, EntryState.PUBREL),)
    assert await payloads(queue) == [b"x", b"new", b"newer"]
    stats = await queue.stats("c1")
    assert stats is not None
    assert (stats.publish_count, stats.pubrel_count) == (3, 0)


@pytest.mark.trap(23)
async def test_expired_messages_do_not_block_the_rest(queue: DeviceQueue) -> None:
    await append(
        queue,
        entry(payload=b"a", expires_at_us=NOW_US + 5 * SECOND_US),
        entry(payload=b"b", forget_at_us=NOW_US + 5 * SECOND_US),
        entry(payload=b"c", expires_at_us=NOW_US + 6 * SECOND_US),
    )
    just_before = NOW_US + 5 * SECOND_US - 1000
    assert await payloads(queue, now_us=just_before) == [b"a", b"b", b"c"]
    assert await payloads(queue, now_us=NOW_US + 5 * SECOND_US) == [b"c"]
    # They were deleted: they do not come back to an earlier time.
    assert await payloads(queue, now_us=NOW_US) == [b"c"]
    stats = await queue.stats("c1")
    assert stats is not None
    assert stats.publish_count == 1


async def test_many_expired_messages_are_passed_page_by_page(queue: DeviceQueue) -> None:
    soon = NOW_US + 5 * SECOND_US
    await append(queue, *(entry(expires_at_us=soon) for _ in range(40)), entry(payload=b"last"))
    assert await payloads(queue, limit=7, now_us=soon) == [b"last"]
    stats = await queue.stats("c1")
    assert stats is not None
    assert stats.publish_count == 1


@pytest.mark.trap(13)
async def test_a_pubrel_is_owed_when_its_message_has_expired(queue: DeviceQueue) -> None:
    await queue.take("c1", epoch=1)
    soon = NOW_US + 5 * SECOND_US
    await append(queue, entry(qos=2, expires_at_us=soon, forget_at_us=soon, extra=b"e"))
    assert await queue.release("c1", [1], epoch=1) == 1
    (read,) = await read_all(queue, now_us=soon + SECOND_US)
    assert (read.packet_id, read.serial, read.state) == (1, 1, EntryState.PUBREL)
    assert (read.qos, read.extra, read.message.topic) == (2, b"e", "a/b")
    assert (read.message.expires_at_us, read.forget_at_us) == (0, 0)


@pytest.mark.trap(14)
async def test_a_pubrel_has_a_lifetime_of_its_own(queue: DeviceQueue) -> None:
    await queue.take("c1", epoch=1)
    await append(queue, entry(qos=2), entry(payload=b"y"))
    later = NOW_US + 60 * SECOND_US
    assert await queue.release("c1", [1], epoch=1, forget_at_us=later) == 1
    # The first lifetime holds.
    assert await queue.release("c1", [1], epoch=1, forget_at_us=later * 2) == 1
    first, _ = await read_all(queue, now_us=later - SECOND_US)
    assert (first.state, first.forget_at_us) == (EntryState.PUBREL, later)
    assert await payloads(queue, now_us=later) == [b"y"]
    stats = await queue.stats("c1")
    assert stats is not None
    assert (stats.publish_count, stats.pubrel_count) == (1, 0)


@pytest.mark.trap(12)
async def test_a_released_entry_keeps_place_and_identifier(queue: DeviceQueue) -> None:
    await queue.take("c1", epoch=1)
    await append(queue, entry(payload=b"a"), entry(payload=b"b", qos=2), entry(payload=b"c"))
    assert await queue.release("c1", [2, 9], epoch=1) == 1
    assert [(read.packet_id, read.state) for read in await read_all(queue)] == [
        (1, EntryState.PUBLISH),
        (2, EntryState.PUBREL),
        (3, EntryState.PUBLISH),
    ]
    stats = await queue.stats("c1")
    assert stats is not None
    assert (stats.publish_count, stats.pubrel_count) == (2, 1)
    # PUBCOMP.
    assert await queue.acknowledge("c1", [2], epoch=1) == 1
    assert await payloads(queue) == [b"a", b"c"]
    stats = await queue.stats("c1")
    assert stats is not None
    assert (stats.publish_count, stats.pubrel_count) == (2, 0)


async def test_an_exchange_may_be_taken_over_past_its_pubrec(queue: DeviceQueue) -> None:
    await append(
        queue,
        entry(
            payload=b"gone",
            qos=2,
            packet_id=9,
            state=EntryState.PUBREL,
            expires_at_us=NOW_US + SECOND_US,
        ),
        entry(payload=b"y"),
    )
    first, second = await read_all(queue, now_us=NOW_US + 2 * SECOND_US)
    assert (first.packet_id, first.state, first.message.payload) == (9, EntryState.PUBREL, b"")
    assert (second.packet_id, second.state) == (10, EntryState.PUBLISH)
    stats = await queue.stats("c1")
    assert stats is not None
    assert (stats.publish_count, stats.pubrel_count) == (1, 1)


@pytest.mark.trap(19)
async def test_acknowledgements_come_in_any_order(queue: DeviceQueue) -> None:
    await queue.take("c1", epoch=1)
    await append(queue, *(entry(payload=b"%d" % n) for n in range(1, 7)))
    assert await queue.acknowledge("c1", [5, 2], epoch=1) == 2
    assert await queue.acknowledge("c1", [2, 77, 0], epoch=1) == 0
    assert await queue.acknowledge("c1", [], epoch=1) == 0
    assert await payloads(queue) == [b"1", b"3", b"4", b"6"]
    assert await queue.acknowledge("c1", [6, 4, 3, 1, 1], epoch=1) == 4
    assert await payloads(queue) == []


async def test_a_later_owner_shuts_the_former_out(queue: DeviceQueue) -> None:
    await queue.take("c1", epoch=3)
    await append(queue, entry(payload=b"a", qos=2))
    await queue.take("c1", epoch=4)
    for stale in (3, 5):
        with pytest.raises(Fenced):
            await queue.acknowledge("c1", [1], epoch=stale)
        with pytest.raises(Fenced):
            await queue.release("c1", [1], epoch=stale)
        with pytest.raises(Fenced):
            await queue.trim_through("c1", 9, epoch=stale)
        with pytest.raises(Fenced):
            await queue.discard("c1", epoch=stale)
    with pytest.raises(Fenced):
        await queue.take("c1", epoch=3)
    stats = await queue.take("c1", epoch=4)
    assert (stats.epoch, stats.publish_count) == (4, 1)
    assert await payloads(queue) == [b"a"]
    # Who only appends needs no epoch.
    assert await append(queue, entry()) == [2]


async def test_a_queue_that_nobody_has_taken_is_nobodys(queue: DeviceQueue) -> None:
    await append(queue, entry())
    with pytest.raises(Fenced):
        await queue.acknowledge("c1", [1], epoch=1)
    assert await queue.discard("c1", epoch=0)


async def test_an_unknown_client_has_nothing(queue: DeviceQueue) -> None:
    assert await queue.stats("c1") is None
    assert await read_all(queue) == []
    assert await queue.acknowledge("c1", [1], epoch=1) == 0
    assert await queue.release("c1", [1], epoch=1) == 0
    assert await queue.trim_through("c1", 9, epoch=1) == 0
    assert not await queue.discard("c1", epoch=1)
    assert await queue.stats("c1") is None
    assert [found async for found in queue.clients()] == []


@pytest.mark.trap(2)
async def test_a_discarded_queue_starts_again(queue: DeviceQueue) -> None:
    await queue.take("c1", epoch=5)
    await append(queue, entry(position=50, serial=50, packet_id=50), entry(qos=2))
    await queue.release("c1", [51], epoch=5)
    assert await queue.discard("c1", epoch=5)
    assert await queue.stats("c1") is None
    assert await read_all(queue) == []
    assert (await queue.take("c1", epoch=1)).last_packet_id == 0
    results = await queue.append([entry(position=50)], now_us=NOW_US, limit=10)
    assert results == [Appended(1, 1)]


async def test_a_queue_may_be_taken_before_it_has_entries(queue: DeviceQueue) -> None:
    stats = await queue.take("c1", epoch=7)
    assert (stats.client_id, stats.epoch) == ("c1", 7)
    assert (stats.publish_count, stats.last_serial, stats.last_packet_id) == (0, 0, 0)
    assert await queue.stats("c1") == stats
    assert await append(queue, entry()) == [1]


async def test_trim_through_deletes_up_to_a_serial(queue: DeviceQueue) -> None:
    await queue.take("c1", epoch=1)
    await append(queue, *(entry(payload=b"%d" % n, serial=n * 10, qos=2) for n in range(1, 7)))
    await queue.release("c1", [2, 4], epoch=1)
    assert await queue.trim_through("c1", 9, epoch=1) == 0
    assert await queue.trim_through("c1", 35, epoch=1) == 3
    assert [read.serial for read in await read_all(queue)] == [40, 50, 60]
    stats = await queue.stats("c1")
    assert stats is not None
    assert (stats.publish_count, stats.pubrel_count) == (2, 1)
    assert await queue.trim_through("c1", 60, epoch=1) == 3
    assert await append(queue, entry()) == [7]


async def test_pages_hold_to_their_bounds(queue: DeviceQueue) -> None:
    sent = [bytes([n]) * 100 for n in range(25)]
    await append(queue, *(entry(payload=payload) for payload in sent))
    assert await payloads(queue, limit=1) == sent
    assert await payloads(queue, limit=4) == sent
    assert await payloads(queue, bytes_max=250) == sent
    assert await payloads(queue, bytes_max=1) == sent
    page = await queue.read("c1", after_serial=3, limit=5, bytes_max=10_000, now_us=NOW_US)
    assert [read.serial for read in page.entries] == [4, 5, 6, 7, 8]
    assert page.next_after == 8
    last = await queue.read("c1", after_serial=25, limit=5, bytes_max=10_000, now_us=NOW_US)
    assert (last.entries, last.next_after) == ([], None)


async def test_a_deep_queue_is_like_a_shallow_one(queue: DeviceQueue) -> None:
    await queue.take("c1", epoch=1)
    count = 700
    await append(queue, *(entry(payload=b"%d" % n) for n in range(1, count + 1)))
    assert await payloads(queue) == [b"%d" % n for n in range(1, count + 1)]
    odd = [n for n in range(1, count + 1) if n % 2]
    even = [n for n in range(1, count + 1) if not n % 2]
    assert await queue.acknowledge("c1", odd, epoch=1) == len(odd)
    assert await payloads(queue, limit=64) == [b"%d" % n for n in even]
    assert await payloads(queue, after=600) == [b"%d" % n for n in even if n > 600]
    (result,) = await queue.append([entry(payload=b"new")], now_us=NOW_US, limit=300)
    assert [gone.packet_id for gone in result.trimmed] == even[:51]
    assert await queue.release("c1", even[51:61], epoch=1) == 10
    assert await queue.trim_through("c1", even[55], epoch=1) == 5
    stats = await queue.stats("c1")
    assert stats is not None
    assert (stats.publish_count, stats.pubrel_count) == (290, 5)
    assert len(await read_all(queue)) == 295


async def test_a_deep_queue_with_wandering_identifiers_keeps_its_order(queue: DeviceQueue) -> None:
    given = [(n * 7919) % 65_535 + 1 for n in range(400)]
    await append(queue, *(entry(payload=b"%d" % n, packet_id=n) for n in given))
    assert await payloads(queue, limit=50) == [b"%d" % n for n in given]
    (result,) = await queue.append([entry(payload=b"new")], now_us=NOW_US, limit=390)
    assert [gone.packet_id for gone in result.trimmed if gone.serial <= 11] == given[:11]


async def test_stats_count_what_is_there(queue: DeviceQueue) -> None:
    await queue.take("c1", epoch=2)
    await append(queue, entry(payload=b"z" * 1000, qos=2, position=5), entry(payload=b"z" * 1000))
    await queue.release("c1", [1], epoch=2)
    stats = await queue.stats("c1")
    assert stats is not None
    assert (stats.client_id, stats.publish_count, stats.pubrel_count) == ("c1", 1, 1)
    assert (stats.last_packet_id, stats.last_serial, stats.last_position) == (2, 2, 5)
    assert stats.epoch == 2
    assert 1000 <= stats.payload_bytes < 8000


async def test_every_client_is_listed_once_in_order(queue: DeviceQueue) -> None:
    names = [f"client-{n:03}" for n in range(120)]
    await append(queue, *(entry(name) for name in reversed(names)))
    await queue.take("drained", epoch=1)
    listed = [stats async for stats in queue.clients()]
    assert [stats.client_id for stats in listed] == [*names, "drained"]
    assert [stats.publish_count for stats in listed] == [1] * 120 + [0]
    after = [stats.client_id async for stats in queue.clients(after="client-117")]
    assert after == ["client-118", "client-119", "drained"]


async def test_sweep_deletes_what_nobody_reads(queue: DeviceQueue) -> None:
    soon, later = NOW_US + 5 * SECOND_US, NOW_US + 500 * SECOND_US
    for n in range(5):
        await append(
            queue,
            entry(f"c{n}", b"a", expires_at_us=soon),
            entry(f"c{n}", b"b", forget_at_us=soon),
            entry(f"c{n}", b"c", expires_at_us=later),
            entry(f"c{n}", b"d"),
        )
    assert await queue.sweep(now_us=NOW_US, limit=100) == 0
    assert await queue.sweep(now_us=soon, limit=4) == 4
    assert await queue.sweep(now_us=soon, limit=100) == 6
    assert await queue.sweep(now_us=soon, limit=100) == 0
    assert await payloads(queue, "c3", now_us=soon) == [b"c", b"d"]
    assert await queue.sweep(now_us=later, limit=100) == 5


async def test_sweep_ends_a_pubrel_by_its_own_lifetime_only(queue: DeviceQueue) -> None:
    soon, later = NOW_US + 5 * SECOND_US, NOW_US + 500 * SECOND_US
    await queue.take("c1", epoch=1)
    await append(queue, entry(qos=2, expires_at_us=soon), entry(qos=2, expires_at_us=soon))
    await queue.release("c1", [1], epoch=1)
    await queue.release("c1", [2], epoch=1, forget_at_us=later)
    assert await queue.sweep(now_us=soon, limit=100) == 0
    assert await queue.sweep(now_us=later, limit=100) == 1
    (read,) = await read_all(queue, now_us=later)
    assert (read.packet_id, read.state) == (1, EntryState.PUBREL)
