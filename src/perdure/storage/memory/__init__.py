"""The reference backend: everything in Python containers, nothing on disk."""

from perdure.storage.memory.store import MemoryBatch, MemoryDatabase

__all__ = ["MemoryBatch", "MemoryDatabase"]
