"""Who was refused lately, as it is listed."""

from __future__ import annotations

from typing import Any

from perdure.admin.records.listeners import ListUnauthorized
from perdure.broker.connection.refusal_table import RefusalTable
from perdure.server.administration.listeners import ListenerOperations


async def test_who_asks_twice_is_told_the_same_moment() -> None:
    """The clocks are read one after the other, so their distance is never quite the same."""
    table = RefusalTable()
    table.add(
        "connect", "c", "127.0.0.1", 7,
        username="u", listener="tcp", reason_code=134, reason="no", topic=None,
    )  # fmt: skip
    distances = iter((1_000_000_001, 999_999_998))
    operations = ListenerOperations([], table, lambda: next(distances))
    call: Any = None
    first = await operations.unauthorized(ListUnauthorized(), call)
    assert first == await operations.unauthorized(ListUnauthorized(), call)
    assert [row.first_at_us for row in first.items] == [1_000_000_007]
