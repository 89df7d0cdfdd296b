"""Owners and deadlines against a plain dictionary."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from perdure.model import SessionRecord
from perdure.storage.remote.sessions import Owners

CLIENTS = st.sampled_from(["a", "b", "ä", "c"])
STEPS = st.lists(st.tuples(CLIENTS, st.integers(-1, 9)), max_size=200)


@given(STEPS, st.integers(0, 10), st.integers(1, 5))
def test_deadlines_come_in_order(steps: list[tuple[str, int]], now_us: int, limit: int) -> None:
    owners, held = Owners(), {}
    for epoch, (client_id, deadline_us) in enumerate(steps):
        if deadline_us < 0:
            owners.discard(client_id)
            held.pop(client_id, None)
            continue
        owners.put(SessionRecord(client_id, epoch, 0, 0, False, 0, expires_at_us=deadline_us))
        held[client_id] = (epoch, deadline_us)
    assert len(owners) == len(held)
    for client_id in "abä":
        assert owners.epoch(client_id) == held.get(client_id, (None,))[0]
    due = sorted(
        (deadline_us, client_id.encode())
        for client_id, (_, deadline_us) in held.items()
        if 0 < deadline_us <= now_us
    )
    for _ in range(2):
        assert [name.encode() for name in owners.due(now_us, limit)] == [
            client_id for _, client_id in due
        ][:limit]
    deadlines = [deadline_us for _, deadline_us in held.values() if deadline_us]
    assert owners.next_deadline_us() == min(deadlines, default=0)
