"""A disk under a real broker that fails when it is told to, and that can lose power.

Two processes meet in a directory beside the data: the test writes ``orders`` (what fails, how slow
a sync is), the broker's engine writes ``synced`` (how long each write-ahead log was when a sync of
it began that has ended well). ``lose_power`` then does to a dead broker's directory what a power
cut does: of each log only what was synced is left, and perhaps a piece more.

Table files, the manifest and the directory need no record: RocksDB syncs them before it refers to
them. A log that is no longer written to is synced by RocksDB itself before a table is flushed.

Invariant: ``lose_power`` never takes what a completed sync covered.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, final

import msgspec

from perdure.config.schema import RocksdbConfig
from perdure.storage.rocksdb.engine import Engine, Operations
from perdure.storage.rocksdb.iterators import Seeker
from perdure.storage.rocksdb.status import storage_error

FULL: Final = "IO error: No space left on device"
BROKEN: Final = "IO error: Input/output error"


class Orders(msgspec.Struct, frozen=True):
    """What the disk is to do.

    Attributes:
        fail: the error of each operation that fails: ``open``, ``read``, ``write``, ``sync``,
            ``table`` (making and dropping one).
        sync_delay_s: how much longer a sync takes.
    """

    fail: dict[str, str] = {}
    sync_delay_s: float = 0.0


_NO_ORDERS: Final = Orders()


@final
class Disk:
    """The test's end.

    Args:
        path: the directory in which both ends meet; made if it is not there.
        data: the broker's data directory.
    """

    def __init__(self, path: Path, data: Path) -> None:
        path.mkdir(exist_ok=True)
        self.path = path
        self._data = data
        self._sync_delay_s = 0.0

    def fail(self, **errors: str) -> None:
        """Let operations fail from now on, each with the text of its error."""
        self._order(Orders(errors, self._sync_delay_s))

    def heal(self) -> None:
        """Let nothing fail any more."""
        self._order(Orders({}, self._sync_delay_s))

    def slow_down(self, sync_delay_s: float) -> None:
        """Let each sync take so much longer; nothing fails meanwhile."""
        self._sync_delay_s = sync_delay_s
        self.heal()

    def lose_power(self, chance: random.Random | None = None) -> int:
        """Take from a dead broker's directory what was not synced.

        Args:
            chance: decides how much of it survives after all; None = nothing.

        Returns:
            Bytes lost.
        """
        synced = read_synced(self.path)
        logs = sorted(self._data.glob("*.log"))
        tables = [int(table.stem) for table in self._data.glob("*.sst")]
        lost = 0
        left: dict[str, int] = {}
        for index, log in enumerate(logs):
            size = log.stat().st_size
            kept = min(size, synced.get(log.name, 0))
            is_closed = index + 1 < len(logs)
            if is_closed and any(table > int(logs[index + 1].stem) for table in tables):
                kept = size
            if chance is not None and chance.random() < 0.5:
                kept = chance.randint(kept, size)
            if log.name not in synced and not kept:
                log.unlink()
            else:
                os.truncate(log, kept)
                left[log.name] = kept
            lost += size - kept
        (self.path / "synced").write_bytes(msgspec.json.encode(left) + b"\n")
        return lost

    def _order(self, orders: Orders) -> None:
        fresh = self.path / "orders.new"
        fresh.write_bytes(msgspec.json.encode(orders))
        fresh.replace(self.path / "orders")


def read_synced(path: Path) -> dict[str, int]:
    """The synced length of each log that was recorded in a directory of orders."""
    found: dict[str, int] = {}
    try:
        lines = (path / "synced").read_bytes().splitlines()
    except FileNotFoundError:
        return found
    for line in lines:
        found.update(msgspec.json.decode(line, type=dict[str, int]))
    return found


@final
class OrderedEngine(Engine):
    """The broker's end: an engine on the disk.

    Args:
        orders: the directory in which both ends meet.
        path: the data directory.
        config: sizes.
        read_only: as for ``Engine``.
    """

    def __init__(
        self, orders: Path, path: Path, config: RocksdbConfig, *, read_only: bool = False
    ) -> None:
        self._orders = orders
        self._data = path
        self._obey("open")
        super().__init__(path, config, read_only=read_only)

    def write(self, operations: Operations) -> None:
        """As told."""
        self._obey("write")
        super().write(operations)

    def sync(self) -> None:
        """As told; what it covered is written down."""
        lengths: dict[str, int] = {}
        for log in self._data.glob("*.log"):
            with contextlib.suppress(FileNotFoundError):  # RocksDB needs it no more
                lengths[log.name] = log.stat().st_size
        time.sleep(self._obey("sync").sync_delay_s)
        super().sync()
        self._record(lengths)

    def create_table(self, name: str) -> None:
        """As told."""
        self._obey("table")
        super().create_table(name)

    def drop_table(self, name: str) -> None:
        """As told."""
        self._obey("table")
        super().drop_table(name)

    def get(self, table: str, key: bytes) -> bytes | None:
        """As told."""
        self._obey("read")
        return super().get(table, key)

    def items(self, table: str, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """As told."""
        self._obey("read")
        return super().items(table, first, end)

    def keys(self, table: str, first: bytes, end: bytes) -> Iterator[bytes]:
        """As told."""
        self._obey("read")
        return super().keys(table, first, end)

    def seeker(self, table: str, end: bytes) -> Seeker:
        """As told."""
        self._obey("read")
        return super().seeker(table, end)

    def _obey(self, operation: str) -> Orders:
        """Raise the error that was ordered for an operation; returns the other orders."""
        try:
            data = (self._orders / "orders").read_bytes()
        except FileNotFoundError:
            return _NO_ORDERS
        orders = msgspec.json.decode(data, type=Orders)
        error = orders.fail.get(operation)
        if error is not None:
            raise storage_error(OSError(error))
        return orders

    def _record(self, lengths: Mapping[str, int]) -> None:
        # One write in append mode: a kill leaves the line out or has it whole.
        file = os.open(self._orders / "synced", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, msgspec.json.encode(lengths) + b"\n")
        finally:
            os.close(file)
