"""The cursor is a plain value."""

from __future__ import annotations

import copy
import pickle

import pytest

from perdure.model import Cursor

FULL = (7, 5, (6, 8), (9,), 11)


def test_equal_in_every_field() -> None:
    assert Cursor(*FULL) == Cursor(*FULL)


@pytest.mark.parametrize("name", ["offset", "serial", "settled", "released", "sent"])
def test_any_other_field_makes_it_unequal(name: str) -> None:
    other = Cursor(*FULL)
    setattr(other, name, getattr(Cursor(), name))
    assert other != Cursor(*FULL)


def test_it_is_no_other_thing() -> None:
    assert Cursor(*FULL) != FULL


def test_copies_are_equal() -> None:
    cursor = Cursor(*FULL)
    assert copy.copy(cursor) == cursor
    assert pickle.loads(pickle.dumps(cursor)) == cursor


def test_its_text_makes_it() -> None:
    assert eval(repr(Cursor(*FULL))) == Cursor(*FULL)
