"""The tail holds the end of the log, whole, or says that it does not."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from perdure.model import Message
from perdure.storage.rows import rows_of
from perdure.storage.tail import Tail


def messages(first: int, count: int, size: int = 1) -> list[Message]:
    return [Message("t", b"x" * size, offset=first + number) for number in range(count)]


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(0, 9)), max_size=60),
    st.integers(0, 50),
    st.integers(0, 200),
)
def test_what_it_gives_is_complete(
    writes: list[tuple[int, int]], messages_max: int, bytes_max: int
) -> None:
    tail = Tail(messages_max=messages_max, bytes_max=bytes_max, floor=10)
    log: list[Message] = []
    offset = 20
    for count, size in writes:
        new = messages(offset, count, size)
        tail.extend(rows_of(new))
        log += new
        offset += count + 3
    for after in (0, tail.floor - 1, tail.floor, tail.floor + 2, offset):
        found = tail.between(after, offset, 10**6)
        if after < tail.floor:
            assert found is None
        else:
            assert found == [message for message in log if message.offset > after]
    held = [message for message in log if message.offset > tail.floor]
    assert len(held) <= messages_max
    assert sum(len(message.payload) for message in held) <= bytes_max


@given(
    st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=20), max_size=40),
    st.integers(1, 60),
    st.lists(st.booleans(), max_size=40),
)
def test_topics_by_index_and_by_looking(
    writes: list[list[str]], messages_max: int, asked: list[bool]
) -> None:
    """However often it is asked in between, the index gives what looking through gives."""
    tail = Tail(messages_max=messages_max, bytes_max=10**6, floor=0)
    offset = 1
    for number, topics in enumerate(writes):
        new = [Message(topic, b"", offset=offset + at) for at, topic in enumerate(topics)]
        tail.extend(rows_of(new))
        offset += len(topics) + 2
        if number < len(asked) and asked[number]:
            for wanted in (["a"], ["b", "c"], ["a", "b", "c"], ["other"]):
                for after, until in ((tail.floor, offset), (tail.floor + 3, offset - 4)):
                    whole = tail.between(after, until, 10**6)
                    assert whole is not None
                    expected = [message for message in whole if message.topic in wanted]
                    assert tail.of_topics(wanted, after, until, 10**6) == expected
                    for limit in (1, 3):
                        some = tail.of_topics(wanted, after, until, limit)
                        assert some is not None
                        assert some[:limit] == expected[:limit]
    assert tail.of_topics(["a"], tail.floor - 1, offset, 10**6) is None


def test_the_index_does_not_keep_what_is_forgotten() -> None:
    tail = Tail(messages_max=100, bytes_max=10**6, floor=0)
    for first in range(1, 50_000, 100):
        tail.extend(rows_of(messages(first, 100)))
        assert len(tail.of_topics(["t"], tail.floor, first + 100, 10**6) or []) == 100
        assert len(tail._topics.get("t", [])) <= 8
    tail.forget_through(49_990)
    assert len(tail.of_topics(["t"], 49_990, 60_000, 10**6) or []) == 10
    tail.clear(60_000)
    assert tail.of_topics(["t"], 60_000, 70_000, 10**6) == []


def test_bounds_and_most() -> None:
    tail = Tail(messages_max=100, bytes_max=1_000, floor=0)
    tail.extend(rows_of(messages(1, 10)))
    found = tail.between(3, 5, 10)
    assert found is not None
    assert [message.offset for message in found] == [4, 5]
    assert tail.between(0, 10, 9) is None


def test_properties_and_long_topics_count() -> None:
    """What takes the memory of one client's messages is not always their payload."""
    properties = b"p" * 10_000
    for made in (
        lambda at: Message("t", b"x", offset=at, properties=properties),
        lambda at: Message("t" * 10_000 + str(at), b"x", offset=at),
    ):
        tail = Tail(messages_max=10_000, bytes_max=100_000, floor=0)
        for offset in range(1, 101):
            tail.extend(rows_of([made(offset)]))
        assert 88 <= tail.floor <= 92
        assert len(tail.between(tail.floor, 100, 100) or []) == 100 - tail.floor


def test_what_is_made_of_rows_is_bounded_too() -> None:
    properties = b"p" * 1_000_000
    tail = Tail(messages_max=1_000, bytes_max=10**9, floor=0)
    for offset in range(1, 40):
        tail.extend(rows_of([Message("t", b"x", offset=offset, properties=properties)]))
        assert tail.between(offset - 1, offset, 10)
        assert len(tail._made) <= 8


def test_a_late_write_empties_it() -> None:
    tail = Tail(messages_max=100, bytes_max=1_000, floor=0)
    tail.extend(rows_of(messages(10, 5)))
    tail.extend(rows_of(messages(5, 2)))
    assert tail.floor == 14
    assert tail.between(13, 20, 10) is None
    tail.extend(rows_of(messages(15, 1)))
    found = tail.between(14, 20, 10)
    assert found is not None
    assert [message.offset for message in found] == [15]


def test_forget_through() -> None:
    tail = Tail(messages_max=100, bytes_max=1_000, floor=0)
    tail.extend(rows_of(messages(1, 10)))
    tail.forget_through(4)
    assert tail.between(3, 20, 10) is None
    assert len(tail.between(4, 20, 10) or []) == 6
    tail.forget_through(50)
    assert tail.between(50, 60, 10) == []


def test_memory_is_given_back() -> None:
    tail = Tail(messages_max=10, bytes_max=1_000, floor=0)
    for first in range(1, 20_000, 100):
        tail.extend(rows_of(messages(first, 100)))
    assert len(tail._chunks) <= 130
    assert not any(chunk.blob for chunk in tail._chunks[: tail._start])


def test_the_index_stays_right_when_the_lists_are_cut() -> None:
    tail = Tail(messages_max=300, bytes_max=10**6, floor=0)
    for offset in range(1, 2_000):
        tail.extend(rows_of([Message("ab"[offset % 2], b"%d" % offset, offset=offset)]))
        whole = tail.between(tail.floor, offset, 300)
        assert whole is not None
        expected = [message for message in whole if message.topic == "a"]
        assert tail.of_topics(["a"], tail.floor, offset, 300) == expected


def test_sessions_that_come_back_share_what_is_made_for_one() -> None:
    tail = Tail(messages_max=100_000, bytes_max=10**8, floor=0)
    tail.extend(rows_of(messages(1, 20, 2_000)))
    one = tail.of_topics(["t"], 0, 20, 20)
    other = tail.between(0, 20, 20)
    assert one is not None
    assert other is not None
    assert all(mine is yours for mine, yours in zip(one, other, strict=True))


def test_what_is_made_is_kept_within_bounds() -> None:
    tail = Tail(messages_max=100_000, bytes_max=10**9, floor=0)
    for first in range(1, 20_001, 1000):
        tail.extend(rows_of(messages(first, 1000)))
    assert len(tail.between(0, 20_000, 20_000) or []) == 20_000
    assert sum(len(made) for made in tail._made.values()) <= 4096
    for at in range(12):
        tail.extend(rows_of(messages(20_001 + at, 1, 1024 * 1024)))
    tail.extend(rows_of(messages(30_000, 1, 9 * 1024 * 1024)))
    assert len(tail.between(20_000, 30_000, 100) or []) == 13
    assert sum(len(message.payload) for made in tail._made.values() for message in made) < 2**23 + 1
