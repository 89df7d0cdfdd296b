"""An engine that reads on behind what cannot be read, and remembers where that was.

For those who look for damage or save what is left; a broker does not skip anything.

Invariant: what it gives was verified by RocksDB; what it leaves out lies in ``gaps``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import rocksdict

from perdure.errors import StorageCorrupt, StorageError, StorageUnavailable
from perdure.storage.rocksdb.engine import Engine

_PLACE: Final = re.compile(r"(\d{6,})\.sst(?: offset (\d+) size (\d+))?")

_ALL_END: Final = b"\xff" * 64

_KEY_BYTES: Final = 32
"""Of a key as a number: two keys that agree in so many bytes are one place."""

_KEY_MAX: Final = (1 << 8 * _KEY_BYTES) - 1


def file_number(error: str) -> int:
    """Of the table file that RocksDB speaks of; 0 = not known."""
    found = _PLACE.search(error)
    return int(found[1]) if found else 0


class Gap(NamedTuple):
    """A part of a table that cannot be read.

    Attributes:
        table: its name.
        first: from this key on,
        end: to this one, which can be read; or to the end of what was asked for.
        error: what RocksDB said.
    """

    table: str
    first: bytes
    end: bytes
    error: str

    @property
    def file_number(self) -> int:
        """Of the table file; 0 = not known."""
        return file_number(self.error)

    @property
    def place(self) -> str:
        """File and bytes, for people."""
        found = _PLACE.search(self.error)
        if not found:
            return self.error
        if found[2] is None:
            return self.error
        start = int(found[2])
        return f"{found[1]}.sst: bytes {start} to {start + int(found[3])} are damaged"


class SkippingEngine(Engine):
    """An engine for a damaged directory; arguments as for ``Engine``."""

    gaps: list[Gap]
    """What could not be read so far."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.gaps = []
        super().__init__(*args, **kwargs)

    def _table_options(self, name: str) -> rocksdict.Options:
        # A merge of files in the background ends at the first block that cannot be read, and with
        # it all writing.
        options = super()._table_options(name)
        options.set_disable_auto_compactions(True)
        return options

    def get(self, table: str, key: bytes) -> bytes | None:
        """The value of a key; None if it cannot be read."""
        if self._gap_with(table, key) is not None:
            return None
        try:
            return super().get(table, key)
        except (StorageCorrupt, StorageUnavailable) as error:
            self._skip(table, key, _ALL_END, error)
            return None

    def items(self, table: str, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Keys and values in ``[first, end)`` that can be read."""
        while first < end:  # RocksDB reads a block for an empty range, too
            try:
                for key, value in super().items(table, first, end):
                    first = key + b"\0"
                    yield key, value
                return
            except (StorageCorrupt, StorageUnavailable) as error:
                first = self._skip(table, first, end, error)

    def keys(self, table: str, first: bytes, end: bytes) -> Iterator[bytes]:
        """Keys in ``[first, end)`` that can be read."""
        while first < end:  # RocksDB reads a block for an empty range, too
            try:
                for key in super().keys(table, first, end):
                    first = key + b"\0"
                    yield key
                return
            except (StorageCorrupt, StorageUnavailable) as error:
                first = self._skip(table, first, end, error)

    def _gap_with(self, table: str, key: bytes) -> Gap | None:
        for gap in self.gaps:
            if gap.table == table and gap.first <= key < gap.end:
                return gap
        return None

    def _note(self, gap: Gap) -> None:
        """Remember a gap, as one with what is known of the same place."""
        for index, known in enumerate(self.gaps):
            if known.table == gap.table and known.place == gap.place:
                first, end = min(known.first, gap.first), max(known.end, gap.end)
                self.gaps[index] = Gap(gap.table, first, end, gap.error)
                return
        self.gaps.append(gap)

    def _skip(self, table: str, first: bytes, end: bytes, error: StorageError) -> bytes:
        """The first key after some that cannot be read."""
        known = self._gap_with(table, first)
        if known is not None:
            return min(known.end, end)
        low, high = _number(first), _number(end)
        step = 1
        while low + step < high and not self._is_readable(table, _key(low + step), end):
            step *= 2
        bad, good = low + step // 2, min(low + step, high)
        while good - bad > 1:
            middle = (bad + good) // 2
            if self._is_readable(table, _key(middle), end):
                good = middle
            else:
                bad = middle
        if good >= high:
            self._note(Gap(table, first, end, error.message))
            return end
        behind = next(super().keys(table, _key(good), end), end)
        self._note(Gap(table, first, behind, error.message))
        return behind

    def _is_readable(self, table: str, key: bytes, end: bytes) -> bool:
        try:
            next(super().keys(table, key, end), None)
        except (StorageCorrupt, StorageUnavailable):
            return False
        return True


def _number(key: bytes) -> int:
    return int.from_bytes(key[:_KEY_BYTES].ljust(_KEY_BYTES, b"\0"))


def _key(number: int) -> bytes:
    return min(number, _KEY_MAX).to_bytes(_KEY_BYTES)
