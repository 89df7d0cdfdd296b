"""Deletes files below a table's directory that nothing needs any more."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path


def delete_unused(root: Path, used: Collection[str], *, before_us: int) -> tuple[int, int]:
    """Delete files that are not used and were last written before a moment.

    Args:
        root: directory of a table.
        used: absolute paths.
        before_us: wall time; younger files may be part of a commit that is being made.

    Returns:
        How many, and how many bytes they had.
    """
    count = size = 0
    for path in sorted(root.rglob("*")):
        if str(path) in used:
            continue
        try:
            stat = path.stat()
            if not path.is_file() or stat.st_mtime_ns // 1_000 >= before_us:
                continue
            path.unlink()
        except FileNotFoundError:
            continue
        count, size = count + 1, size + stat.st_size
    return count, size
