"""The high marks: the one record that every batch writes.

::

    "H" -> version=1 (1) | last offset (8) | commit number (8) | sessions (8) | retained (8)

It makes a start cheap and exact: the last offset ever used, also by an inbox entry or a retained
message, and the counts, without a look at anything else. The commit number says after a recovery
whether everything that was synced is there.

Invariant: the record on disk is that of the last batch that was applied.
"""

from __future__ import annotations

import struct
from typing import Final, final

from perdure.errors import FormatTooNew, StorageCorrupt

_MARKS: Final = struct.Struct(">BQQQQQ")
_VERSION: Final = 1


@final
class Marks:
    """What the last applied batch left."""

    __slots__ = ("commit", "last_offset", "retained_bytes", "retained_count", "session_count")

    def __init__(
        self,
        last_offset: int = 0,
        commit: int = 0,
        session_count: int = 0,
        retained_count: int = 0,
        retained_bytes: int = 0,
    ) -> None:
        self.last_offset = last_offset
        self.commit = commit
        self.session_count = session_count
        self.retained_count = retained_count
        self.retained_bytes = retained_bytes

    def encode(self) -> bytes:
        """The record's value."""
        return _MARKS.pack(
            _VERSION,
            self.last_offset,
            self.commit,
            self.session_count,
            self.retained_count,
            self.retained_bytes,
        )

    @classmethod
    def decode(cls, value: bytes | None) -> Marks:
        """The record in a value; None = nothing was ever written."""
        if value is None:
            return cls()
        if value[:1] > bytes([_VERSION]):
            raise FormatTooNew(f"the high marks have version {value[0]}")
        try:
            _, last_offset, commit, session_count, retained_count, size = _MARKS.unpack(value)
        except struct.error as error:
            raise StorageCorrupt("the high marks do not decode") from error
        return cls(last_offset, commit, session_count, retained_count, size)
