"""What is proposed for topics, in whatever parts they were counted."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyarrow")
import pyarrow as pa

from perdure.pipeline.jobs.learn import (
    LEVELS_MAX,
    THRESHOLD_MAX,
    Sketch,
    count_batches,
    propose,
    varies,
)
from perdure.pipeline.tables import parse_table
from perdure.topic.matching import matches
from perdure.topic.proposal import Proposal, parse_proposal
from perdure.topic.structure import StructureTrie

METRICS = ("temperature", "humidity", "co2")


def proposal(topics: Sequence[str], streams: Sequence[str] = (), **others: int) -> Proposal:
    counts = [(topic, 1) for topic in topics]
    return propose(counts, streams, database="db", through_offset=7, **others)


def patterns(topics: Sequence[str], **others: int) -> list[str]:
    return sorted(each.pattern for each in proposal(topics, **others).structures)


def test_identities_vary_and_words_do_not() -> None:
    topics = [f"site/{s}/pump-{n}/{m}" for s in "ab" for n in range(6) for m in METRICS]
    assert patterns(topics) == sorted(f"site/{s}/+/{m}" for s in "ab" for m in METRICS)


def test_a_level_with_many_values_varies_whatever_they_are() -> None:
    words = ["".join(chr(97 + (n // 26**k) % 26) for k in range(3)) for n in range(150)]
    assert patterns([f"rooms/{word}/t" for word in words]) == ["rooms/+/t"]
    assert len(patterns([f"rooms/{word}/t" for word in words[:90]])) == 90


def test_what_is_below_a_varying_level_is_looked_at_together() -> None:
    # No room has more than two sensors, all of them together have many.
    topics = [f"room{r}/sensor{r}{s}/t" for r in range(50) for s in range(2)]
    assert patterns(topics) == ["+/+/t"]


def test_dollar_topics_are_apart() -> None:
    topics = [f"$SYS/node{n}/up" for n in range(9)] + [f"room{n}/up/x" for n in range(9)]
    assert patterns([*topics, "$other"]) == ["$SYS/+/up", "$other", "+/up/x"]


def test_streams_have_a_bound() -> None:
    words = ["".join(chr(97 + (n // 26**k) % 26) for k in range(2)) for n in range(60)]
    topics = [f"{a}/{b}" for a in words[:20] for b in words]
    assert len(patterns(topics, streams_max=1_200)) == 20 * 60
    assert len(patterns(topics, streams_max=100)) <= 100


def test_thresholds_leave_room_for_what_does_not_vary() -> None:
    words = ["".join(chr(97 + (n // 26**k) % 26) for k in range(2)) for n in range(95)]
    found = proposal([f"{word}/{n}/t" for word in words for n in range(20)])
    assert found.thresholds == (190, 10, 10)
    assert proposal([f"{word}/t" for word in words[:3]]).thresholds == (10, 10)
    assert max(found.thresholds) <= THRESHOLD_MAX


def test_it_says_what_would_change() -> None:
    found = proposal(
        [f"rooms/{n}/t" for n in range(5)] * 2 + ["a"],
        ["rooms/0/t", "rooms/1/t", "rooms/+/t", "a", "rooms/+"],
    )
    told = [(each.pattern, each.messages, each.streams_before) for each in found.structures]
    assert told == [("rooms/+/t", 10, 3), ("a", 1, 1)]
    assert (found.messages, found.database, found.through_offset) == (11, "db", 7)
    assert found.tables == {"rooms_t": "rooms/{level_2}/t"}
    assert parse_table("rooms_t=rooms/{level_2}/t").levels == ((1, "level_2"),)


def test_very_deep_topics_are_left_out() -> None:
    assert patterns(["/" * LEVELS_MAX, "a"]) == ["a"]


def test_values_with_digits_are_told_from_words() -> None:
    assert varies(["s1", "s2", "s3", "main"], 100)
    assert not varies(["s1", "s2", "spare", "main"], 100)
    assert not varies(["1", "2", "3"], 100)
    assert varies(["+"], 100)


def test_a_sketch_stays_small() -> None:
    sketch = Sketch(values_max=64, nodes_max=500)
    for a in range(60):
        for b in range(60):
            sketch.add(f"x/{a}/y/{b}", 1)
    rows = sketch.rows()
    assert len(rows) < 500
    assert sum(messages for _, messages in rows) == 3_600
    for a in range(100):
        sketch.add(f"x/{a}/y/new", 1)
    assert ("x/+/y/+", 3_700) in sketch.rows()


_topics = st.lists(
    st.sampled_from(["", "a", "b", "c1", "c2", "c3", "c4", "$s"]), min_size=1, max_size=4
)


# The first Arrow array of a process takes seconds.
@given(st.lists(_topics.map("/".join).filter(bool), max_size=40), st.integers(0, 40))
def test_parts_do_not_matter_and_every_topic_has_one_home(topics: list[str], cut: int) -> None:
    def counted(*parts: list[str]) -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = []
        for part in parts:
            batch = pa.RecordBatch.from_pydict({"topic": pa.array(part, pa.string())})
            (result,) = count_batches([batch])
            found += [tuple(row.values()) for row in result.to_pylist()]
        return found

    whole = propose(counted(topics), (), database="db", through_offset=7)
    parts = propose(counted(topics[:cut], topics[cut:]), (), database="db", through_offset=7)
    assert whole == parts
    assert whole.messages == len(topics)
    found = [each.pattern for each in whole.structures]
    for topic in topics:
        assert sum(matches(pattern, topic) for pattern in found) == 1
    # What is proposed can be taken up, and then is what the log does.
    trie = StructureTrie(thresholds=whole.thresholds)
    trie.seed(whole.structure.patterns)
    for topic in topics:
        pattern = trie.pattern(trie.resolve(topic).stream)
        assert pattern in found


def test_a_written_proposal_is_read_again() -> None:
    import msgspec

    found = proposal([f"rooms/{n}/t" for n in range(5)])
    assert parse_proposal(msgspec.json.encode(found)) == found
