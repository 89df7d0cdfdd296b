"""Ranges that hold a value, against going through all of them."""

from __future__ import annotations

import random

import pytest

from perdure.content.ranges import Ranges


@pytest.mark.parametrize("texts", [False, True])
def test_equal_to_going_through_them_while_they_come_and_go(texts: bool) -> None:
    chance = random.Random(4)

    def value() -> float | str:
        number = chance.choice([chance.randrange(60), chance.random() * 60, 2**60])
        return f"{number:040.9f}" if texts else number

    ranges = Ranges()
    held: set[tuple[object, object, str]] = set()
    for step in range(1_500):
        low, high = value(), value()
        kind = chance.randrange(4)
        one = (None if kind == 0 else low, None if kind == 1 else high, f"f{step % 900}")
        if held and chance.random() < (0.2 if step < 900 else 0.8):
            gone = chance.choice(sorted(held, key=repr))
            held.remove(gone)
            ranges.remove(*gone)
        else:
            held.add(one)
            ranges.add(*one)
        assert len(ranges) == len(held)
        if step % 7:
            continue
        asked = value()
        found: dict[str, None] = {}
        ranges.find(asked, found)
        wanted = {
            who
            for low, high, who in held
            if (low is None or low <= asked) and (high is None or asked <= high)  # type: ignore[operator]
        }
        assert wanted <= found.keys()
    assert held


def test_what_was_removed_is_forgotten_in_the_end() -> None:
    ranges = Ranges()
    for number in range(100):
        ranges.add(number, number + 1, str(number))
    found: dict[str, None] = {}
    ranges.find(50, found)
    assert sorted(found) == ["49", "50"]
    for number in range(100):
        ranges.remove(number, number + 1, str(number))
    found = {}
    ranges.find(50, found)
    assert not found
