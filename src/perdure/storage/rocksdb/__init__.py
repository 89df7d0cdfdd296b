"""The embedded store: RocksDB in the broker's process."""

from perdure.storage.rocksdb.store import RocksDatabase

__all__ = ["RocksDatabase"]
