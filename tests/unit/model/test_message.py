"""The application message is a plain value."""

from __future__ import annotations

import copy
import pickle

import pytest

from perdure.model import Message


def full() -> Message:
    return Message("a/b", b"x", 2, True, "c", b"\x26", 5, 4, 3)


def test_equal_in_every_field() -> None:
    assert full() == full()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("topic", "other"),
        ("payload", b"other"),
        ("qos", 1),
        ("retain", False),
        ("publisher", "other"),
        ("properties", b""),
        ("expires_at_us", 0),
        ("published_at_us", 0),
        ("offset", 0),
    ],
)
def test_any_other_field_makes_it_unequal(name: str, value: object) -> None:
    other = full()
    setattr(other, name, value)
    assert other != full()


def test_it_equals_nothing_else_and_has_no_hash() -> None:
    assert full() != "a/b"
    with pytest.raises(TypeError):
        hash(full())


def test_the_representation_hides_the_payload() -> None:
    text = repr(Message("a", b"secret", 1, publisher="p", offset=9))
    assert text == "Message('a', 6 B, qos=1, retain=False, publisher='p', offset=9)"


def test_it_takes_no_other_attribute() -> None:
    with pytest.raises(AttributeError):
        full().other = 1  # type: ignore[attr-defined]


def test_copies_are_equal() -> None:
    message = Message("t", b"p", 2, True, "c", b"\x01\x01", 5, 6, 7)
    assert copy.deepcopy(message) == message
    assert pickle.loads(pickle.dumps(message)) == message
