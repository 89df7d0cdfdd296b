"""Iterators over a RocksDB table, which end with an error where the data are damaged.

Compiled with the layouts that use them: a replay makes several calls here for each message.
rocksdict's own ``items()`` ends silently at a damaged block; only ``chunks`` uses it, because it is
the fastest, and looks behind its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import Any, Final, final

import rocksdict

from perdure.errors import StorageUnavailable
from perdure.storage.rocksdb.status import storage_error

CHUNK_ROWS_MIN: Final = 8
CHUNK_ROWS_MAX: Final = 256
"""Rows that are read at once, few while values are large."""
_LARGE_BYTES: Final = 4096


@final
class Seeker:
    """An iterator over the keys of a table that can jump forward."""

    __slots__ = ("_iterator", "_options")

    def __init__(self, iterator: rocksdict.RdictIter, options: rocksdict.ReadOptions) -> None:
        self._iterator = iterator
        # Kept alive for the bound in them.
        self._options = options

    def seek(self, key: bytes) -> bytes | None:
        """Go to the first key at or after this one, and return it; None = there is none."""
        iterator = self._iterator
        iterator.seek(key)
        if iterator.valid():
            found: bytes = iterator.key()
            return found
        check_status(iterator)
        return None

    def next(self) -> bytes | None:
        """Go to the next key and return it; None = there is none."""
        iterator = self._iterator
        iterator.next()
        if iterator.valid():
            found: bytes = iterator.key()
            return found
        check_status(iterator)
        return None

    def value(self) -> bytes:
        """The value of the key that was returned last."""
        value: bytes = self._iterator.value()
        return value


def bounded(end: bytes) -> rocksdict.ReadOptions:
    """Options to read below a key.

    RocksDB reads the bound where the options hold it, and the iterator does not keep them: they
    must live as long as it does.
    """
    options = rocksdict.ReadOptions()
    options.set_iterate_upper_bound(end)
    return options


def check_status(iterator: rocksdict.RdictIter) -> None:
    """Raise what stopped an iterator, if it was not the end."""
    try:
        iterator.status()
    except Exception as error:
        raise storage_error(error) from error


def items(table: Any, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of a table in ``[first, end)``."""
    options = bounded(end)
    iterator = table.iter(options)
    valid, key, value, forward = iterator.valid, iterator.key, iterator.value, iterator.next
    iterator.seek(first)
    while valid():
        yield key(), value()
        forward()
    check_status(iterator)


def keys(table: Any, first: bytes, end: bytes) -> Iterator[bytes]:
    """Keys of a table in ``[first, end)``."""
    options = bounded(end)
    iterator = table.iter(options)
    valid, key, forward = iterator.valid, iterator.key, iterator.next
    iterator.seek(first)
    while valid():
        yield key()
        forward()
    check_status(iterator)


def chunks(table: Any, first: bytes, end: bytes) -> Iterator[list[bytes]]:
    """Keys and values of a table in ``[first, end)``, in turn, some rows at a time.

    A reader joins the rows of a chunk while they are in the processor's cache, and lets them go.
    Blocks are not kept for another read: a scan would only push out those that are read again.
    """
    options = bounded(end)
    untyped: Any = options  # rocksdict's stub leaves the argument out
    untyped.fill_cache(False)
    fields = chain.from_iterable(table.items(from_key=first, read_opt=options))
    rows = CHUNK_ROWS_MIN
    while True:
        found: list[bytes] = list(islice(fields, 2 * rows))
        if not found:
            break
        first = found[-2] + b"\x00"
        large = len(found[-1]) > _LARGE_BYTES
        rows = CHUNK_ROWS_MIN if large else min(rows * 2, CHUNK_ROWS_MAX)
        yield found
    iterator = table.iter(options)
    iterator.seek(first)
    if iterator.valid():
        raise StorageUnavailable("a table could not be read to its end")
    check_status(iterator)


def last_key(table: Any, first: bytes, end: bytes) -> bytes | None:
    """The last key of a table in ``[first, end)``, or None."""
    options = rocksdict.ReadOptions()
    iterator = table.iter(options)
    iterator.seek_for_prev(end)
    if iterator.valid() and iterator.key() == end:
        iterator.prev()
    found: bytes | None = iterator.key() if iterator.valid() else None
    check_status(iterator)
    return found if found is not None and found >= first else None
