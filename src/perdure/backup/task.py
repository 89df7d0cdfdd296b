"""What a broker and the process that makes its backups say to each other."""

from __future__ import annotations

from typing import final

import msgspec

from perdure.config.schema import RocksdbConfig


@final
class Task(msgspec.Struct, frozen=True):
    """What is to be done.

    Attributes:
        data: data directory, absolute.
        to: place.
        make: a backup; else only look when the last one was made.
        keep: backups that stay; 0 = all.
        rate: bytes per second; 0 = no bound.
        rocksdb: of the database.
    """

    data: str
    to: str
    make: bool
    keep: int = 0
    rate: int = 0
    rocksdb: RocksdbConfig = RocksdbConfig()


@final
class Report(msgspec.Struct, frozen=True):
    """What came of it.

    Attributes:
        error, hint: why it failed; empty = it did not.
        made_at_us: wall time of the backup, or of the last that there is; 0 = there is none.
        id, position, size, copied, seconds: of the backup.
        pruned: older backups that were deleted.
    """

    error: str = ""
    hint: str = ""
    made_at_us: int = 0
    id: str = ""
    position: int = 0
    size: int = 0
    copied: int = 0
    seconds: float = 0.0
    pruned: int = 0
