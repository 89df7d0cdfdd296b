"""A batch alone; what its calls do to a database is in tests/contract."""

from __future__ import annotations

from itertools import count

import pytest
from tests.contract.values import NOW_US, message, record

from perdure.errors import Fenced, UsageError
from perdure.model import Cursor
from perdure.storage.memory.batch import MemoryBatch
from perdure.storage.memory.state import State


@pytest.fixture
def batch() -> MemoryBatch:
    offsets = count(NOW_US)
    return MemoryBatch({"c1": 5}.get, lambda _now_us: next(offsets))


def test_calls_take_effect_in_their_order(batch: MemoryBatch) -> None:
    assert batch.is_empty()
    batch.put_session(record("c2", epoch=1))
    batch.put_cursor("c2", Cursor(7), epoch=1)
    batch.put_cursor("c2", Cursor(8), epoch=1)
    assert not batch.is_empty()
    state = State()
    for operation in batch.operations:
        operation(state)
    assert state.sessions["c2"].cursor == Cursor(8)


def test_messages_get_their_offsets_at_once(batch: MemoryBatch) -> None:
    first, second = message("a"), message("b")
    assert [batch.append(first, NOW_US), batch.append(second, NOW_US)] == [NOW_US, NOW_US + 1]
    assert (first.offset, second.offset) == (NOW_US, NOW_US + 1)


def test_a_refused_call_leaves_nothing(batch: MemoryBatch) -> None:
    with pytest.raises(Fenced):
        batch.put_cursor("c1", Cursor(1), epoch=4)
    with pytest.raises(Fenced):
        batch.put_session(record("c1", epoch=4))
    with pytest.raises(UsageError):
        batch.put_retained(message("r"))
    assert batch.is_empty()
