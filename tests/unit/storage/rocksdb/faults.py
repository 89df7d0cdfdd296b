"""An engine whose disk fails when the test says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from perdure.config.schema import RocksdbConfig
from perdure.errors import StorageError
from perdure.storage.rocksdb.engine import Engine, Operations


class Disk:
    """The state of a disk: what it does to the engines that are on it.

    Attributes:
        write_error, sync_error, open_error, table_error, scan_error: raised by such calls, until
            cleared.
        opened: engines opened so far.
    """

    def __init__(self) -> None:
        self.write_error: StorageError | None = None
        self.sync_error: StorageError | None = None
        self.open_error: StorageError | None = None
        self.table_error: StorageError | None = None
        self.scan_error: StorageError | None = None
        self.opened = 0
        self.on_reopen: Callable[[Path], None] | None = None

    def engine(self, path: Path, config: RocksdbConfig, *, read_only: bool) -> Engine:
        """Open an engine on this disk."""
        if self.open_error is not None:
            raise self.open_error
        if self.opened and self.on_reopen is not None:
            self.on_reopen(path)
        self.opened += 1
        return _FaultyEngine(self, path, config, read_only=read_only)


class _FaultyEngine(Engine):
    def __init__(self, disk: Disk, path: Path, config: RocksdbConfig, *, read_only: bool) -> None:
        super().__init__(path, config, read_only=read_only)
        self._disk = disk

    def write(self, operations: Operations) -> None:
        if self._disk.write_error is not None:
            raise self._disk.write_error
        super().write(operations)

    def sync(self) -> None:
        if self._disk.sync_error is not None:
            raise self._disk.sync_error
        super().sync()

    def items(self, table: str, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        if self._disk.scan_error is not None:
            raise self._disk.scan_error
        return super().items(table, first, end)

    def create_table(self, name: str) -> None:
        if self._disk.table_error is not None:
            raise self._disk.table_error
        super().create_table(name)

    def drop_table(self, name: str) -> None:
        if self._disk.table_error is not None:
            raise self._disk.table_error
        super().drop_table(name)
