"""What every backend promises of retained messages."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.model import Message
from perdure.storage.batch import Batch
from perdure.storage.codec import retained_size
from perdure.storage.contract import Database
from perdure.topic.matching import matches
from tests.contract.conftest import Backend
from tests.contract.test_log import FILTERS, TOPICS
from tests.contract.values import NOW_US, message, take_offset, write


def retain(database: Database, *messages: Message) -> None:
    batch = Batch()
    for value in messages:
        value.offset = value.offset or take_offset(database, NOW_US)
        batch.put_retained(value)
    write(database, batch)


async def read_topics(
    database: Database, topic_filter: str, *, limit: int = 1_000, scan_max: int = 100_000
) -> list[str]:
    """All matching topics, page by page; each page must make progress."""
    topics: list[str] = []
    after, pages = "", 0
    while True:
        page = await database.read_retained(
            topic_filter, after_topic=after, limit=limit, scan_max=scan_max
        )
        assert len(page.messages) <= limit
        topics += [found.topic for found in page.messages]
        pages += 1
        if page.next_after is None:
            return topics
        assert pages < 10_000
        after = page.next_after


async def test_retained_message_comes_back(backend: Backend) -> None:
    value = message("a/b", b"v", qos=2, retain=True, properties=b"\x01\x01", expires_at_us=5)
    retain(backend.database, value)
    for database in backend.now_and_restarted():
        assert await database.get_retained("a/b") == value
        assert await database.get_retained("a") is None
        assert await database.get_retained("a/b/") is None
        assert database.retained_count == 1


async def test_bytes_follow_put_replace_and_delete(backend: Backend) -> None:
    """Each message counts what it takes with its topic, in the same way in every backend."""
    database = backend.database
    one, other = message("a/b", b"v" * 100, properties=b"\x01\x01"), message("c", b"w")
    retain(database, one, other)
    retain(database, message("c", b"w" * 50))
    batch = Batch()
    twice = [message("d", b"x", offset=take_offset(database, NOW_US)) for _ in range(2)]
    for value in twice:
        batch.put_retained(value)
    batch.delete_retained("a/b")
    batch.delete_retained("nothing")
    batch.put_retained(message("a/b", b"z", offset=take_offset(database, NOW_US)))
    write(database, batch)
    sizes = {
        topic: retained_size(message(topic, payload, offset=1))
        for topic, payload in (("a/b", b"z"), ("c", b"w" * 50), ("d", b"x"))
    }
    for found in backend.now_and_restarted():
        assert {topic: found.retained_size_of(topic) for topic in sizes} == sizes
        assert found.retained_bytes == sum(sizes.values())
        assert found.retained_size_of("nothing") == 0


async def test_count_follows_put_replace_and_delete(backend: Backend) -> None:
    database = backend.database
    retain(database, message("a"), message("b"), message("a", b"again"))
    assert database.retained_count == 2
    batch = Batch()
    batch.put_retained(message("c", offset=take_offset(database, NOW_US)))
    batch.delete_retained("c")
    batch.delete_retained("a")
    batch.delete_retained("never")
    batch.delete_retained("b")
    batch.put_retained(message("b", b"new", offset=take_offset(database, NOW_US)))
    write(database, batch)
    for current in backend.now_and_restarted():
        assert current.retained_count == 1
        assert await read_topics(current, "#") == ["b"]
        kept = await current.get_retained("b")
        assert kept is not None
        assert kept.payload == b"new"


async def test_a_message_that_is_not_recorded_is_retained_at_an_offset_of_its_own(
    backend: Backend,
) -> None:
    kept = message("a", b"x", qos=0, retain=True)
    batch = Batch()
    batch.append(message("b"))
    batch.place(kept)
    batch.put_retained(kept)
    write(backend.database, batch, NOW_US + 5)
    for database in backend.now_and_restarted():
        found = await database.get_retained("a")
        assert found is not None
        assert (found.offset, found.payload) == (NOW_US + 6, b"x")


async def test_pages_come_in_level_order(database: Database) -> None:
    topics = ["a", "a/b", "a!", "a/", "/a", "a/b/c", "b", "a b", "$SYS/x"]
    retain(database, *[message(topic) for topic in topics])
    ordered = sorted(topics, key=lambda topic: [level.encode() for level in topic.split("/")])
    assert await read_topics(database, "a/#") == [t for t in ordered if matches("a/#", t)]
    for limit in (1, 2, 100):
        found = await read_topics(database, "#", limit=limit)
        assert found == [topic for topic in ordered if topic != "$SYS/x"]


async def test_scan_max_bounds_a_page(database: Database) -> None:
    retain(database, *[message(f"a/{n:03}/{n % 2}") for n in range(100)])
    page = await database.read_retained("+/+/1", after_topic="", limit=100, scan_max=10)
    assert len(page.messages) <= 10
    assert page.next_after is not None
    assert len(await read_topics(database, "+/+/1", scan_max=7)) == 50


@settings(
    max_examples=60,
)
@given(
    topics=st.sets(TOPICS, max_size=30),
    topic_filter=FILTERS,
    limit=st.integers(1, 5),
    scan_max=st.integers(1, 9),
)
async def test_pages_are_complete(
    database: Database, topics: set[str], topic_filter: str, limit: int, scan_max: int
) -> None:
    for topic in await read_topics(database, "#") + await read_topics(database, "$x/#"):
        batch = Batch()
        batch.delete_retained(topic)
        write(database, batch)
    assert database.retained_count == 0
    retain(database, *[message(topic) for topic in topics])
    found = await read_topics(database, topic_filter, limit=limit, scan_max=scan_max)
    assert sorted(found) == sorted(topic for topic in topics if matches(topic_filter, topic))
    assert len(found) == len(set(found))


async def test_sweep_deletes_what_has_expired(backend: Backend) -> None:
    retain(
        backend.database,
        *[message(f"t/{n}", expires_at_us=NOW_US + n if n % 2 else 0) for n in range(40)],
    )
    deleted = 0
    for _ in range(10):
        deleted += await backend.database.sweep_retained(NOW_US + 20, limit=8)
    assert deleted == 10
    database = backend.restart()
    assert database.retained_count == 30
    left = await read_topics(database, "t/+")
    assert {f"t/{n}" for n in range(40) if n % 2 == 0 or n > 20} == set(left)
