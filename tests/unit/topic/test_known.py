"""Topics of bytes: one object for those that come again, and bounded."""

from __future__ import annotations

import pytest

from perdure.topic.known import TOPIC_BYTES_MAX, TOPICS_MAX, KnownTopics


def test_a_topic_that_comes_again_is_one_object() -> None:
    known = KnownTopics()
    found = [known.topic("häuser/1".encode()) for _ in range(4)]
    assert set(found) == {"häuser/1"}
    # The first time it may be one that never comes again; from the second on it is kept.
    assert found[1] is found[2] is found[3]
    assert found[0] is not found[1]


def test_a_topic_that_comes_once_is_not_kept() -> None:
    known = KnownTopics()
    for number in range(1000):
        assert known.topic(b"once/%d" % number) == f"once/{number}"
    assert known.count < 10


def test_a_long_topic_is_not_kept() -> None:
    known = KnownTopics()
    name = b"t" * (TOPIC_BYTES_MAX + 1)
    for _ in range(3):
        assert known.topic(name) == name.decode()
    assert known.count == 0
    for _ in range(3):
        known.topic(name[1:])
    assert known.count == 1


def test_no_more_than_a_number_of_topics_are_kept() -> None:
    known = KnownTopics()
    most = 0
    for number in range(TOPICS_MAX + 10):
        name = b"again/%d" % number
        assert known.topic(name) == known.topic(name) == name.decode()
        most = max(most, known.count)
    assert most == TOPICS_MAX
    assert known.count == 10


def test_what_is_no_text_is_refused() -> None:
    known = KnownTopics()
    for _ in range(3):
        with pytest.raises(UnicodeDecodeError):
            known.topic(b"\xff\xfe")
    assert known.count == 0
