"""Who was refused lately."""

from __future__ import annotations

import pytest

from perdure.broker.connection import refusal_table
from perdure.broker.connection.refusal_table import RefusalTable


def add(table: RefusalTable, client_id: str, now_us: int, reason: str = "why") -> None:
    table.add(
        "connect",
        client_id,
        "192.0.2.1",
        now_us,
        username=None,
        listener="tcp",
        reason_code=0x87,
        reason=reason,
        topic=None,
    )


def test_one_row_for_each_client_with_its_last_reason() -> None:
    table = RefusalTable()
    add(table, "a", 1)
    add(table, "b", 2)
    add(table, "a", 3, "other")
    assert [(row.client_id, row.count, row.reason) for row in table.latest()] == [
        ("a", 2, "other"),
        ("b", 1, "why"),
    ]
    assert (table.latest()[0].first_us, table.latest()[0].last_us) == (1, 3)


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusal_table, "ROWS_MAX", 3)
    table = RefusalTable()
    for number in range(10):
        add(table, f"c{number}", number)
        add(table, "c0", number)
    assert [row.client_id for row in table.latest()] == ["c0", "c9", "c8"]
