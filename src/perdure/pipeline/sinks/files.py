"""Deletes files below a table's place that nothing needs any more."""

from __future__ import annotations

from collections.abc import Collection

from perdure.pipeline.lake.stores import Store


def delete_unused(
    store: Store, root: str, used: Collection[str], *, before_us: int
) -> tuple[int, int]:
    """Delete files that are not used and were last written before a moment.

    Args:
        store: that has them.
        root: of a table.
        used: as the store names them.
        before_us: wall time; younger files may be part of a commit that is being made.

    Returns:
        How many, and how many bytes they had.
    """
    count = size = 0
    for entry in store.walk(root):
        if entry.path in used or entry.modified_us >= before_us:
            continue
        store.delete(entry.path)
        count, size = count + 1, size + entry.size
    return count, size
