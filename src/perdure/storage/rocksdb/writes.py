"""Fills a RocksDB write batch from operations on rows.

Compiled apart from ``engine``, which tests replace: it runs for each row that is written.
"""

from __future__ import annotations

from typing import Any


def fill(batch: Any, operations: list[Any], handles: dict[str, Any]) -> None:
    """Add operations to a write batch, in their order.

    Args:
        batch: a ``rocksdict.WriteBatch``.
        operations: flat: table name, key, value (None = delete), table name, key, ...
        handles: of the tables that exist; an operation on any other is left out.
    """
    assert len(operations) % 3 == 0
    put, delete = batch.put, batch.delete
    last: Any = None
    handle: Any = None
    for at in range(0, len(operations), 3):
        table = operations[at]
        if table is not last:
            last = table
            handle = handles.get(table)
            if handle is not None:
                # Named with each operation it would cost a third of it.
                batch.set_default_column_family(handle)
        if handle is None:
            continue
        value = operations[at + 2]
        if value is None:
            delete(operations[at + 1])
        else:
            put(operations[at + 1], value)
