"""The containers of the reference: bounds of generations, and equal operations, equal states."""

from __future__ import annotations

import pytest

from perdure.errors import UsageError
from perdure.storage.memory.state import GenerationState, State, retained_key
from tests.contract.values import entry, message, record


def test_bounds_of_a_generation() -> None:
    generation = GenerationState(1, 10, 0)
    assert [generation.holds(offset) for offset in (9, 10, 99)] == [False, True, True]
    generation.until_offset = 20
    assert [generation.holds(offset) for offset in (19, 20)] == [True, False]


def test_log_stays_in_order() -> None:
    state = State()
    for offset in (1, 5, 7, 9):
        state.append(message(offset=offset))
    assert [m.offset for m in state.log] == [1, 5, 7, 9]
    assert [m.offset for m in state.log_after(5)] == [7, 9]


def test_messages_of_a_dropped_generation_go() -> None:
    state = State()
    state.append(message(offset=5))
    state.last_offset = 5
    state.rotate(0)
    state.append(message(offset=6))
    with pytest.raises(UsageError):
        state.drop_generation(2)
    with pytest.raises(UsageError):
        state.drop_generation(9)
    state.drop_generation(1)
    assert [m.offset for m in state.log] == [6]


def test_discard_takes_the_inbox() -> None:
    state = State()
    state.put_session(record("c"))
    state.inboxes["c"] = {5: entry(5), 9: entry(9)}
    state.trim_inbox("c", 5)
    assert list(state.inboxes["c"]) == [9]
    state.trim_inbox("nobody", 5)
    state.discard_session("c")
    assert not state.sessions
    assert not state.inboxes


def test_retained_keys_sort_by_level() -> None:
    assert sorted(["a!", "a/b", "a"], key=retained_key) == ["a", "a/b", "a!"]
