"""The rows of one private stream as entries: runs taken apart, tombstones in their places."""

from __future__ import annotations

from collections.abc import Iterable

from perdure.model import InboxEntry
from perdure.storage.codec import decode_entry
from perdure.storage.entry_run import decode_entries


def entries(
    rows: Iterable[tuple[bytes, bytes]],
    owner_size: int,
    *,
    after_offset: int,
    until_offset: int,
    limit: int,
) -> list[InboxEntry]:
    """The entries in rows, by offset.

    A tombstone's row stands before the run that its entry is in, or right behind the row that its
    entry is the last of.

    Args:
        rows: of one owner, in the order of their keys.
        owner_size: length of the owner's prefix.
        after_offset: exclusive.
        until_offset: inclusive.
        limit: most entries.
    """
    found: list[InboxEntry] = []
    buried: dict[int, InboxEntry] = {}
    for key, value in rows:
        offset = int.from_bytes(key[owner_size : owner_size + 8])
        if len(key) > owner_size + 8:
            tombstone = decode_entry(offset, value)
            if found and found[-1].offset == offset:
                found[-1] = tombstone
            else:
                buried[offset] = tombstone
            continue
        if len(found) >= limit or (found and found[-1].offset >= until_offset):
            break
        run = decode_entries(offset, value)
        if buried:
            merged = {entry.offset: entry for entry in run} | buried
            run = [merged[at] for at in sorted(merged)]
            buried = {}
        found += [entry for entry in run if entry.offset > after_offset]
    found += buried.values()  # their entries were never stored
    return [entry for entry in found if entry.offset <= until_offset][:limit]
