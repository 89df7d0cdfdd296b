"""An entry of a private stream is a value."""

from __future__ import annotations

import copy
import pickle

import pytest

from perdure.model import InboxEntry
from tests.contract.values import message


def test_entries_are_equal_if_all_of_them_is() -> None:
    value = message("a", b"x")
    entry = InboxEntry(7, value, qos=1, retain=True, identifiers=(1,), group_key="g/a")
    same = InboxEntry(7, value, qos=1, retain=True, identifiers=(1,), group_key="g/a")
    assert entry == same
    assert entry != (7, value)
    for name, other in (
        ("offset", 8),
        ("message", None),
        ("qos", 2),
        ("retain", False),
        ("identifiers", ()),
        ("group_key", ""),
        ("serial", 3),
        ("forget_at_us", 1),
    ):
        changed = InboxEntry(7, value, qos=1, retain=True, identifiers=(1,), group_key="g/a")
        setattr(changed, name, other)
        assert entry != changed, name


def test_it_can_be_changed_and_so_has_no_hash() -> None:
    with pytest.raises(TypeError):
        hash(InboxEntry(7, None, qos=1))


def test_a_copy_is_another_entry_that_is_equal() -> None:
    entry = InboxEntry(
        7,
        message("a", b"x"),
        qos=2,
        retain=True,
        identifiers=(1, 2),
        group_key="g/a",
        serial=3,
        forget_at_us=4,
    )
    for copied in (copy.deepcopy(entry), copy.copy(entry), pickle.loads(pickle.dumps(entry))):
        assert copied == entry
        assert copied is not entry
