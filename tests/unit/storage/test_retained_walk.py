"""The walk over retained topics: it jumps over what cannot match, and over nothing else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from perdure.storage import retained_walk
from perdure.storage.retained_walk import Walk
from perdure.topic.matching import matches

LEVELS = ["", "a", "aa", "b", "$x", "é", "\x01"]
TOPICS = st.lists(st.sampled_from(LEVELS), min_size=1, max_size=4).map("/".join).filter(bool)
FILTERS = (
    st.tuples(st.lists(st.sampled_from([*LEVELS, "+"]), max_size=4), st.booleans())
    .map(lambda parts: "/".join([*parts[0], "#"] if parts[1] else parts[0]))
    .filter(bool)
)


def walk(topic_filter: str, topics: set[str]) -> tuple[list[str], int]:
    """What a walk finds, and how many keys it looks at."""
    stored = sorted(retained_walk.retained_key(topic) for topic in topics)
    plan = Walk(topic_filter)
    position, found, looked = plan.start, [], 0
    while True:
        key = next((key for key in stored if position <= key < plan.end), None)
        if key is None:
            return found, looked
        looked += 1
        jump = plan.jump(key)
        if jump is None:
            found.append(retained_walk.retained_topic(key))
            jump = key + b"\0"
        assert jump > key
        position = jump


@given(FILTERS, st.sets(TOPICS, max_size=40))
def test_it_finds_exactly_what_matches(topic_filter: str, topics: set[str]) -> None:
    found, _ = walk(topic_filter, topics)
    assert sorted(found) == sorted(topic for topic in topics if matches(topic_filter, topic))


def test_it_looks_at_few_keys() -> None:
    topics = {f"d/{device:03}/{metric}" for device in range(50) for metric in range(40)}
    found, looked = walk("d/+/7", topics)
    assert len(found) == 50
    assert looked <= 150
    found, looked = walk("d/007/#", topics)
    assert (len(found), looked) == (40, 40)
    found, looked = walk("+", topics | {"top"})
    assert (found, looked) == (["top"], 2)
