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
    put = batch.put
    last: Any = None
    handle: Any = None
    tables: list[Any] = operations[::3]
    row_keys: list[Any] = operations[1::3]
    values: list[Any] = operations[2::3]
    # Lists and no iterator: of them the compiled loop takes the items by itself.
    for table, key, value in zip(tables, row_keys, values):  # noqa: B905 - see the assertion
        if table is not last:
            last = table
            handle = handles.get(table)
        if handle is None:
            continue
        if value is None:
            batch.delete(key, handle)
        else:
            put(key, value, handle)
