"""The reference backend: everything in Python containers, nothing on disk."""

from perdure.storage.memory.device_queue import MemoryDeviceQueue
from perdure.storage.memory.store import MemoryDatabase

__all__ = ["MemoryDatabase", "MemoryDeviceQueue"]
