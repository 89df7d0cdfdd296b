"""Every message has one table, and its levels are where they were asked for."""

from __future__ import annotations

import pytest

from perdure.errors import ConfigError

pa = pytest.importorskip("pyarrow")
from perdure.pipeline import tables  # noqa: E402 - needs pyarrow
from perdure.pipeline.schema import BY_NAME, arrow_schema  # noqa: E402
from perdure.pipeline.tables import TableSpec  # noqa: E402


def test_a_pattern_names_its_columns() -> None:
    assert tables.parse_table("rooms=rooms/{room}/+/x/#") == TableSpec(
        "rooms", "rooms/+/+/x/#", ((1, "room"), (2, "level_3")), has_fields=True
    )
    assert tables.parse_tables(["a=a/#"]) == (
        TableSpec("a", "a/#", has_fields=True),
        TableSpec("messages"),
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("rooms", "name=pattern"),
        ("Rooms=a", "name=pattern"),
        ("a=x/{payload}", "'payload' cannot be a column"),
        ("a={x}/{x}", "'x' cannot be a column"),
        ("a={X}", "'X' cannot be a column"),
        ("a=x/#/y", "last level"),
        ("a=", "a"),
    ],
)
def test_what_cannot_be_a_table(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        tables.parse_table(text)
    assert caught.value.path == "table"


@pytest.mark.parametrize("texts", [["a=a", "a=b"], ["messages=a"]])
def test_names_are_unique(texts: list[str]) -> None:
    with pytest.raises(ConfigError, match="two tables"):
        tables.parse_tables(texts)


def batch_of(topics: list[str]) -> object:
    rows = [
        {"topic": topic, "offset": number, "qos": 1, "payload": b"p"}
        for number, topic in enumerate(topics, 1)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=arrow_schema(list(BY_NAME)))


def test_rows_go_to_the_first_table_that_takes_them() -> None:
    specs = tables.parse_tables(["room=rooms/{room}/+", "rest=rooms/{first}/#", "dollar=$SYS/#"])
    topics = ["rooms/1/t", "rooms/2/t/x", "rooms", "$SYS/a", "b", "rooms/3/h", "rooms/4"]
    parts = tables.split(batch_of(topics), specs, [0, 0, 0, 0])
    found = [part.column("topic").to_pylist() for part in parts]
    assert found == [
        ["rooms/1/t", "rooms/3/h"],
        ["rooms/2/t/x", "rooms/4"],
        ["$SYS/a"],
        ["rooms", "b"],
    ]
    assert parts[0].column("room").to_pylist() == ["1", "3"]
    assert parts[0].column("level_3").to_pylist() == ["t", "h"]
    assert parts[1].column("first").to_pylist() == ["2", "4"]
    for part, spec in zip(parts, specs, strict=True):
        part.validate(full=True)
        assert part.schema == tables.table_schema(spec)
    assert parts[0].column("qos").type == pa.int32()


def test_rows_that_a_table_has_are_left_out() -> None:
    specs = tables.parse_tables(["a=a/#"])
    parts = tables.split(batch_of(["a", "b", "a/x", "b", "a"]), specs, [3, 2])
    assert [part.column("offset").to_pylist() for part in parts] == [[5], [4]]
