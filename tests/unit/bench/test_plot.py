"""Charts are well-formed and say what they were given."""

from __future__ import annotations

from itertools import pairwise
from xml.etree import ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from perdure.bench.plot import HEIGHT, WIDTH, Axis, Bar, Series, bars, lines

finite = st.just(0.0) | st.floats(1e-6, 1e9)
scales = st.sampled_from(["linear", "log"])


def parsed(chart: str) -> ET.Element:
    return ET.fromstring(f"<div>{chart}</div>")


@given(st.lists(st.tuples(finite, finite), min_size=1, max_size=30), scales, scales)
def test_every_point_is_inside_the_picture(
    points: list[tuple[float, float]], x: str, y: str
) -> None:
    chart = lines("t", Axis("x", x), Axis("y", y), [Series("s", sorted(points))])  # type: ignore[arg-type]
    if not chart:
        assert all((a <= 0 and x == "log") or (b <= 0 and y == "log") for a, b in points)
        return
    for line in parsed(chart).iter("polyline"):
        for pair in line.attrib["points"].split():
            at, height = (float(part) for part in pair.split(","))
            assert 0 <= at <= WIDTH
            assert 0 <= height <= HEIGHT


def test_larger_is_further_right_and_higher() -> None:
    chart = lines("t", Axis("x"), Axis("y"), [Series("s", [(1, 1), (2, 4)])])
    line = next(parsed(chart).iter("polyline")).attrib["points"]
    (x1, y1), (x2, y2) = (pair.split(",") for pair in line.split())
    assert float(x1) < float(x2)
    assert float(y1) > float(y2)


def test_shares_near_one_are_spread() -> None:
    points = [(0.0, 1.0), (0.9, 1.0), (0.99, 1.0), (0.999, 1.0)]
    chart = lines("t", Axis("share", "percentile"), Axis("y"), [Series("s", points)])
    line = next(parsed(chart).iter("polyline")).attrib["points"]
    at = [float(pair.split(",")[0]) for pair in line.split()]
    steps = [b - a for a, b in pairwise(at)]
    assert max(steps) - min(steps) < 0.2
    assert "99.9 %" in chart


def test_names_are_escaped_and_in_the_legend() -> None:
    chart = lines("a < b", Axis("x"), Axis("y"), [Series("<script>", [(1, 1)], dashed=True)])
    assert "<script>" not in chart
    assert parsed(chart).find(".//li") is not None
    assert "a &lt; b" in chart


def test_a_name_is_once_in_the_legend_and_the_key_only_where_it_is_needed() -> None:
    solid = Series("perdure", [(1, 1), (2, 2)], 1)
    dashed = Series("perdure", [(1, 2), (2, 3)], 1, dashed=True)
    both = lines("t", Axis("x"), Axis("y"), [solid, dashed], key="solid: a; dashed: b")
    assert [item.text or item[0].tail for item in parsed(both).iter("li")] == [
        "perdure",
        "solid: a; dashed: b",
    ]
    assert "dashed: b" not in lines("t", Axis("x"), Axis("y"), [solid], key="solid: a; dashed: b")


def test_bars_are_as_long_as_their_values() -> None:
    chart = bars("t", [Bar("a", 10, 8, 12, "10/s"), Bar("b", 5, 5, 5, "5/s", 1)])
    first, second = parsed(chart).iter("rect")
    ratio = float(first.attrib["width"]) / float(second.attrib["width"])
    assert 1.99 < ratio < 2.01
    assert len(list(parsed(chart).iter("path"))) == 1
    assert "10/s" in chart


def test_nothing_to_draw_is_nothing() -> None:
    assert lines("t", Axis("x"), Axis("y"), []) == ""
    assert lines("t", Axis("x"), Axis("y"), [Series("s", [])]) == ""
    assert bars("t", []) == ""
