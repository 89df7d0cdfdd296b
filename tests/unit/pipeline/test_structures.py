"""Tables for what was learned: named after it, and never taking a topic from an earlier table."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyarrow")

from perdure.pipeline.structures import covering, extended, table_name
from perdure.pipeline.tables import TableSpec, parse_table
from perdure.topic.matching import matches


def test_the_most_general_structure_covers() -> None:
    structures = ["rooms/0/t", "rooms/+/t", "rooms/+/+", "rooms/0", "a/b/c/d", "$SYS/0/t", "+/+/t"]
    assert covering(structures) == {
        "rooms/0/t": "+/+/t",
        "rooms/+/t": "+/+/t",
        "rooms/+/+": "rooms/+/+",
        "rooms/0": "rooms/0",
        "a/b/c/d": "a/b/c/d",
        # A wildcard in the first level does not match a topic that begins with $.
        "$SYS/0/t": "$SYS/0/t",
        "+/+/t": "+/+/t",
    }
    assert covering([]) == {}


def test_structures_that_vary_become_tables() -> None:
    found = extended((), ["rooms/0/t", "rooms/+/t", "a/b", "+/{x}/+", "$SYS/+/up"])
    assert found == (
        TableSpec("rooms_t", "rooms/+/t", ((1, "level_2"),), has_fields=True),
        TableSpec("x", "+/{x}/+", ((0, "level_1"), (2, "level_3")), has_fields=True),
        TableSpec("sys_up", "$SYS/+/up", ((1, "level_2"),), has_fields=True),
    )


def test_an_earlier_table_keeps_its_topics() -> None:
    named = (parse_table("climate=rooms/{room}/#"),)
    assert extended(named, ["rooms/+/t", "rooms/+/t/+"]) == named
    first = extended(named, ["halls/+/t"])
    assert [spec.name for spec in first] == ["climate", "halls_t"]
    second = extended(first, ["halls/+/t", "halls/+/+"])
    assert [(spec.name, spec.filter) for spec in second[1:]] == [
        ("halls_t", "halls/+/t"),
        ("halls", "halls/+/+"),
    ]


def test_tables_have_a_bound() -> None:
    assert len(extended((), [f"{n}/+" for n in range(9)], tables_max=4)) == 4


def test_names_can_be_used_everywhere() -> None:
    assert table_name("rooms/+/Temperature °C", ()) == "rooms_temperature_c"
    assert table_name("+/+", ()) == "levels_2"
    assert table_name("4711/+", ()) == "t_4711"
    assert table_name("rooms/+", {"rooms", "rooms_2"}) == "rooms_3"
    assert table_name("x" * 99 + "/+", ()) == "x" * 48
    assert table_name("messages/+", {"messages"}) == "messages_2"


_levels = st.sampled_from(["a", "b", "+", "", "$x"])
_structures = st.lists(_levels, min_size=1, max_size=3).map("/".join)
_topics = st.lists(st.sampled_from(["a", "b", "", "$x", "c"]), min_size=1, max_size=3)


@given(st.lists(_structures), st.lists(_structures), st.lists(_topics.map("/".join)))
def test_a_plan_only_takes_what_was_in_no_table(
    first: list[str], then: list[str], topics: list[str]
) -> None:
    before = extended((), first)
    after = extended(before, [*first, *then])
    assert after[: len(before)] == before
    assert len({spec.name for spec in after}) == len(after)
    for topic in topics:
        homes = [[s.name for s in plan if matches(s.filter, topic)] for plan in (before, after)]
        assert not homes[0] or homes[0][0] == homes[1][0]
