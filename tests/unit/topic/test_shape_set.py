"""ShapeSet: after any changes, for each depth the shapes that can match it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from perdure.topic.shape_set import ShapeSet

SHAPES = st.from_regex(r"[.+]{1,4}#?|#", fullmatch=True)


def can_match(shape: str, depth: int) -> bool:
    """[MQTT-4.7.1-2] ``#`` matches its parent level too."""
    return len(shape) - 1 <= depth if shape.endswith("#") else len(shape) == depth


def picked(shape_set: ShapeSet, depth: int) -> list[str]:
    levels = [*("." * depth), "+", "#"]
    return sorted("".join(pick(levels)) for pick in shape_set.plan(depth))


def check(shape_set: ShapeSet, shapes: set[str]) -> None:
    assert set(shape_set.shapes) == shapes
    assert shape_set.places == {shape: at for at, shape in enumerate(shape_set.shapes)}
    for depth in range(1, 7):
        assert picked(shape_set, depth) == sorted(s for s in shapes if can_match(s, depth))


@given(st.lists(SHAPES, max_size=24))
def test_shapes_come_and_go(shapes: list[str]) -> None:
    kept: list[tuple[ShapeSet, set[str]]] = []
    now, there = ShapeSet(()), set[str]()
    for shape in shapes:
        kept.append((now, set(there)))
        if shape in there:
            now = now.without(now.places[shape])
            there.remove(shape)
        else:
            longest = max(
                sum(can_match(each, depth) for each in there)
                for depth in range(1, 9)
                if can_match(shape, depth)
            )
            assert now.most_beside(shape) == longest
            now = now.with_shape(shape)
            there.add(shape)
        check(now, there)
    for before, were in kept:
        check(before, were)  # a set never changes
    check(ShapeSet(tuple(sorted(there))), there)
