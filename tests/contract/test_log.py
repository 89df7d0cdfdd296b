"""What every backend promises of the log."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.errors import UsageError
from perdure.storage.batch import Batch, Placed
from perdure.storage.contract import Database
from perdure.storage.memory import MemoryDatabase
from perdure.topic.matching import matches
from tests.contract.conftest import Backend
from tests.contract.values import (
    NOW_US,
    append_all,
    create_session,
    entry,
    message,
    read_all,
    take_offset,
    write,
)


def test_offsets_ascend_and_follow_the_clock(database: Database) -> None:
    first = take_offset(database, NOW_US)
    assert first == NOW_US
    assert take_offset(database, NOW_US - 5_000) == first + 1
    assert append_all(database, message(), message()) == [first + 2, first + 3]
    assert append_all(database, message(), now_us=NOW_US + 10_000) == [NOW_US + 10_000]
    assert database.last_offset == NOW_US + 10_000


def test_what_a_batch_holds_gets_consecutive_offsets(database: Database) -> None:
    """Messages first, then what was placed, when the batch is sequenced and not before."""
    first, behind = message(), [message(), message()]
    placed, kept = entry(0), message("r", retain=True)
    batch = Batch()
    batch.append(first)
    batch.place(placed)
    batch.extend(behind)
    batch.extend([])
    batch.place(kept)
    batch.put_retained(kept)
    held: list[Placed] = [first, *behind, placed, kept]
    assert [each.offset for each in held] == [0] * 5
    assert not batch.is_sequenced
    write(database, batch, NOW_US + 50)
    assert batch.is_sequenced
    assert [each.offset for each in held] == [NOW_US + 50 + n for n in range(5)]
    assert (batch.first_offset, batch.last_offset) == (NOW_US + 50, NOW_US + 54)
    assert database.last_offset == NOW_US + 54


async def test_operations_name_what_was_placed_before_it_had_an_offset(backend: Backend) -> None:
    """In the same batch, and in one that is submitted while the first is on its way."""
    database = backend.database
    create_session(database)
    entries = [entry(0, b"%d" % number, group_key="g/a") for number in range(3)]
    first, second = Batch(), Batch()
    first.append(message())
    for each in entries:
        first.place(each)
        first.put_inbox("c1", each, epoch=1)
    first.put_tombstone("c1", entries[0], epoch=1)
    first.put_group_entry("g/a", entries[1])
    second.append(message())
    second.put_tombstone("c1", entries[1], epoch=1)
    second.put_group_entry("g/a", entries[2])
    second.delete_group_entry("g/a", entries[1])
    database.submit(first, NOW_US)
    write(database, second)
    offsets = [each.offset for each in entries]
    assert offsets == [NOW_US + 1, NOW_US + 2, NOW_US + 3]
    for current in backend.now_and_restarted():
        inbox = await current.read_inbox("c1", after_offset=0, until_offset=2**62, limit=9)
        assert [each.offset for each in inbox] == offsets
        assert [each.message is None for each in inbox] == [True, True, False]
        returned = await current.read_group_entries("g/a", limit=9)
        assert [each.offset for each in returned] == offsets[2:]


async def test_message_comes_back_as_it_was_appended(backend: Backend) -> None:
    sent = [
        message("a/b", b"", qos=2, retain=True, publisher=""),
        message("ü/€/😀", bytes(range(256)), properties=b"\x26\x00\x01a\x00\x01b"),
        message("/", b"x" * 100_000, expires_at_us=NOW_US + 5, published_at_us=NOW_US - 1),
        message("//", b"empty levels", publisher="p" * 300),
    ]
    append_all(backend.database, *sent)
    assert await read_all(backend.database, "#") == sent
    assert await read_all(backend.restart(), "#") == sent


async def test_extend_is_append_for_each(backend: Backend) -> None:
    sent = [message("a/b", b"%d" % number, qos=1 + number % 2) for number in range(7)]
    batch = Batch()
    batch.append(sent[0])
    batch.extend(sent[1:3])
    batch.extend([])
    batch.extend(sent[3:6])
    batch.append(sent[6])
    write(backend.database, batch)
    offsets = [found.offset for found in sent]
    assert offsets == sorted(set(offsets))
    assert backend.database.last_offset == offsets[-1]
    for database in backend.now_and_restarted():
        assert await read_all(database, "#") == sent


async def test_nothing_is_visible_before_the_write(database: Database) -> None:
    batch = Batch()
    assert batch.is_empty()
    batch.append(message())
    assert not batch.is_empty()
    assert await read_all(database, "#") == []
    write(database, batch)
    assert len(await read_all(database, "#")) == 1


@pytest.mark.trap(25)
async def test_bounds_are_exclusive_below_and_inclusive_above(backend: Backend) -> None:
    """A reader that starts at the offset of a message it has seen misses nothing after it."""
    offsets = append_all(backend.database, *[message(payload=b"%d" % n) for n in range(10)])
    for database in backend.now_and_restarted():
        for low in range(-1, 10):
            for high in range(-1, 10):
                result = await database.read(
                    ["a/+"],
                    after_offset=offsets[low] if low >= 0 else 0,
                    until_offset=offsets[high] if high >= 0 else 0,
                    limit=100,
                )
                assert [m.offset for m in result.messages] == offsets[low + 1 : high + 1]


@pytest.mark.trap(25)
async def test_time_is_a_position(backend: Backend) -> None:
    """Reading after ``t - 1`` includes a message that was published at ``t`` exactly."""
    at = NOW_US + 123
    append_all(backend.database, message(payload=b"at"), now_us=at)
    result = await backend.restart().read(["#"], after_offset=at - 1, until_offset=at, limit=1)
    assert [m.payload for m in result.messages] == [b"at"]


async def test_bounds_may_lie_outside_the_log(backend: Backend) -> None:
    sent = append_all(backend.database, message("a"), message("b"))
    for database in backend.now_and_restarted():
        for after, until, expected in (
            (-9, 2**63 - 1, sent),
            (-9, -3, []),
            (sent[1], sent[0], []),
            (2**62, 2**63 - 1, []),
        ):
            result = await database.read(["#"], after_offset=after, until_offset=until, limit=9)
            assert [m.offset for m in result.messages] == expected
            assert result.through_offset == until
            counted = await database.count(["#"], after_offset=after, until_offset=until, limit=9)
            assert (counted.count, counted.through_offset) == (len(expected), until)
        assert database.messages_after(2**62) <= 2


async def test_limit_and_through_offset(database: Database) -> None:
    offsets = append_all(database, *[message(f"t/{n % 3}") for n in range(9)])
    page = await database.read(["t/1"], after_offset=0, until_offset=offsets[-1], limit=2)
    assert [m.offset for m in page.messages] == [offsets[1], offsets[4]]
    assert page.through_offset == offsets[4]
    page = await database.read(
        ["t/1"], after_offset=page.through_offset, until_offset=offsets[-1], limit=2
    )
    assert [m.offset for m in page.messages] == [offsets[7]]
    assert page.through_offset == offsets[-1]


async def test_bytes_max_ends_a_page_but_never_before_the_first_message(
    database: Database,
) -> None:
    sizes = (50, 3, 4, 1, 0)
    offsets = append_all(database, *[message("t", payload=b"x" * size) for size in sizes])
    bytes_max = 3 + 4 + 2 * len("t")  # a message is measured with its topic

    async def payloads(after_offset: int) -> tuple[list[int], int]:
        page = await database.read(
            ["#"],
            after_offset=after_offset,
            until_offset=offsets[-1],
            limit=10,
            bytes_max=bytes_max,
        )
        return [len(m.payload) for m in page.messages], page.through_offset

    assert await payloads(0) == ([50], offsets[0])
    assert await payloads(offsets[0]) == ([3, 4], offsets[2])
    assert await payloads(offsets[2]) == ([1, 0], offsets[-1])


async def test_a_topic_counts_for_the_bytes_of_a_page(database: Database) -> None:
    offsets = append_all(database, *[message(letter * 100) for letter in "abc"])
    page = await database.read(
        ["#"], after_offset=0, until_offset=offsets[-1], limit=10, bytes_max=150
    )
    assert [m.offset for m in page.messages] == offsets[:1]
    assert page.through_offset == offsets[0]


async def test_a_message_that_matches_twice_is_read_once(database: Database) -> None:
    append_all(database, message("a/b"), message("a/c"), message("d"))
    topics = [m.topic for m in await read_all(database, "a/b", "a/+", "#", "a/b")]
    assert topics == ["a/b", "a/c", "d"]
    assert await read_all(database) == []


async def test_wildcards_do_not_match_dollar_topics(database: Database) -> None:
    append_all(database, message("$SYS/x"), message("a/$x"), message("$SYS"))
    assert [m.topic for m in await read_all(database, "#")] == ["a/$x"]
    assert [m.topic for m in await read_all(database, "+/x", "+")] == []
    assert [m.topic for m in await read_all(database, "$SYS/#")] == ["$SYS/x", "$SYS"]
    assert [m.topic for m in await read_all(database, "$SYS/+")] == ["$SYS/x"]


LEVELS = ["", "a", "b", "c", "$x", "ü"]
# A topic name or filter has at least one character [MQTT-4.7.3-1].
TOPICS = st.lists(st.sampled_from(LEVELS), min_size=1, max_size=4).map("/".join).filter(bool)
FILTERS = (
    st.tuples(st.lists(st.sampled_from([*LEVELS, "+"]), max_size=4), st.booleans())
    .map(lambda parts: "/".join([*parts[0], "#"] if parts[1] else parts[0]))
    .filter(bool)
)


@settings(
    max_examples=60,
)
@given(
    topics=st.lists(TOPICS, min_size=1, max_size=40),
    filters=st.lists(FILTERS, min_size=1, max_size=4),
    limit=st.integers(1, 10),
)
async def test_pages_are_complete_and_ordered(
    database: Database, topics: list[str], filters: list[str], limit: int
) -> None:
    start = database.last_offset
    offsets = append_all(database, *[message(topic) for topic in topics])
    expected = [
        (offset, topic)
        for offset, topic in zip(offsets, topics, strict=True)
        if any(matches(filter_, topic) for filter_ in filters)
    ]
    found: list[tuple[int, str]] = []
    position = start
    while position < offsets[-1]:
        page = await database.read(
            filters, after_offset=position, until_offset=offsets[-1], limit=limit
        )
        assert len(page.messages) <= limit
        assert page.through_offset > position
        found += [(m.offset, m.topic) for m in page.messages]
        position = page.through_offset
    assert found == expected
    counts: list[int] = []
    position = start
    while position < offsets[-1]:
        counted = await database.count(
            filters, after_offset=position, until_offset=offsets[-1], limit=limit
        )
        assert counted.count <= limit
        assert counted.through_offset > position
        position = counted.through_offset
        counts.append(counted.count)
        # What a page has counted is what lies up to its end.
        assert sum(counts) == sum(1 for offset, _ in expected if offset <= position)
    assert sum(counts) == len(expected)


@pytest.mark.trap(27)
async def test_order_holds_while_topics_are_learned(backend: Backend) -> None:
    """Hundreds of devices appear between the messages of a few: order and completeness stay."""
    sent: list[tuple[str, bytes]] = []
    database = backend.database
    for n in range(600):
        batch = Batch()
        for device in (n % 3, n):
            sent.append((f"devices/{device}/temperature", b"%d" % len(sent)))
            batch.append(message(*sent[-1]))
        write(database, batch, NOW_US + n * 10)
        if n == 300:
            database = backend.restart()
    for current in backend.now_and_restarted():
        read = await read_all(current, "devices/+/temperature")
        assert [(m.topic, m.payload) for m in read] == sent
        read = await read_all(current, "devices/1/#")
        assert [m.payload for m in read] == [p for t, p in sent if t.startswith("devices/1/")]


async def test_topics_of_hundreds_of_levels(backend: Backend) -> None:
    """Once all of their levels vary, too."""
    tails = ["/".join(f"{n + level}" for level in range(400)) for n in range(120)]
    append_all(backend.database, *[message(topic) for topic in tails])
    for current in backend.now_and_restarted():
        assert [m.topic for m in await read_all(current, "#")] == tails
        assert [m.topic for m in await read_all(current, tails[110])] == [tails[110]]
        wanted = "+/" * 399 + "500"
        assert [m.topic for m in await read_all(current, wanted)] == [tails[101]]


@pytest.mark.trap(26)
async def test_generations_survive_a_restart(backend: Backend) -> None:
    """Messages on both sides of a rotation are there after a restart right after it."""
    before = append_all(backend.database, message("a/1"), message("b"))
    info = backend.database.rotate(NOW_US + 1_000)
    assert info.since_offset == before[-1] + 1
    database = backend.restart()
    after = append_all(database, message("a/2"), now_us=NOW_US + 2_000)
    database = backend.restart()
    assert [m.offset for m in await read_all(database, "#")] == before + after
    first, second = database.generations()
    assert (first.message_count, second.message_count) == (2, 1)
    assert first.until_offset == second.since_offset
    assert second.until_offset == 0
    assert second.created_at_us == NOW_US + 1_000
    assert database.since_offset == first.since_offset


async def test_drop_generation(backend: Backend) -> None:
    append_all(backend.database, message("a/1"), message("b"))
    first = backend.database.generations()[0].generation
    second = backend.database.rotate(NOW_US + 1_000).generation
    kept = append_all(backend.database, message("a/2"))
    with pytest.raises(UsageError):
        backend.database.drop_generation(second)
    backend.database.drop_generation(first)
    with pytest.raises(UsageError):
        backend.database.drop_generation(first)
    for database in backend.now_and_restarted():
        assert [m.offset for m in await read_all(database, "#")] == kept
        (left,) = database.generations()
        assert left.generation == second
        assert database.since_offset == left.since_offset
        with pytest.raises(UsageError):
            database.streams(first)


async def test_a_batch_belongs_to_the_generation_that_it_is_submitted_to(
    database: Database,
) -> None:
    batch = Batch()
    batch.append(message("old"))
    first = database.generations()[0].generation
    database.rotate(NOW_US + 10)
    batch.append(message("new"))
    write(database, batch)
    assert [info.message_count for info in database.generations()] == [0, 2]
    database.drop_generation(first)
    assert [m.topic for m in await read_all(database, "#")] == ["old", "new"]


async def test_reads_span_generations(backend: Backend) -> None:
    sent: list[int] = []
    for n in range(5):
        sent += append_all(backend.database, message("a/b"), message("c"), message(f"a/{n}"))
        backend.database.rotate(NOW_US + n + 1)
    read = await read_all(backend.restart(), "a/+")
    assert [m.offset for m in read] == [offset for n, offset in enumerate(sent) if n % 3 != 1]
    assert await read_all(backend.database, "a/+", limit=4) == read[:4]


async def test_streams_cover_every_topic(database: Database) -> None:
    topics = [f"devices/{n}/state" for n in range(150)] + ["other/heartbeat", "$SYS/uptime"]
    append_all(database, *[message(topic) for topic in topics])
    (info,) = database.generations()
    streams = database.streams(info.generation)
    assert len({stream.stream for stream in streams}) == len(streams) == info.stream_count
    if info.layout in {2, 3}:
        assert streams == []
        return
    for topic in topics:
        assert any(matches(stream.pattern, topic) for stream in streams), topic


async def test_messages_after_is_an_upper_estimate(backend: Backend) -> None:
    offsets: list[int] = []
    for _ in range(5):
        offsets += append_all(backend.database, *[message() for _ in range(1_000)])
    for database in backend.now_and_restarted():
        assert database.messages_after(offsets[-1]) <= 4_096
        for n in (0, 17, 2_500, 4_998):
            assert len(offsets) - n - 1 <= database.messages_after(offsets[n])
            assert database.messages_after(offsets[n]) <= len(offsets) - n - 1 + 4_096
        assert database.messages_after(0) == len(offsets)


async def test_last_offset_survives_a_restart(backend: Backend) -> None:
    """Also where the highest offset is one that no message of the log carries."""
    append_all(backend.database, message())
    batch = Batch()
    batch.put_retained(message(offset=take_offset(backend.database, NOW_US + 99)))
    write(backend.database, batch)
    last = backend.database.last_offset
    assert last == NOW_US + 99
    database = backend.restart()
    assert database.last_offset == last
    assert append_all(database, message()) == [last + 1]


@pytest.mark.trap(32)
async def test_start_deletes_nothing(backend: Backend) -> None:
    """Five starts in a row, with and without writes between them, keep every message."""
    sent = append_all(backend.database, message("a/1"), message("$x"), message("a/1"))
    for n in range(5):
        database = backend.restart()
        assert [m.offset for m in await read_all(database, "#", "$x")] == sent
        if n % 2:
            sent += append_all(database, message(f"n/{n}"))


def test_memory_model_loses_only_what_was_not_synced() -> None:
    database = MemoryDatabase()
    append_all(database, message())
    database.sync()
    append_all(database, message())
    assert database.messages_after(0) == 2
    database.lose_power()
    assert database.messages_after(0) == 1
