"""Databases as a release before layout 4 of the log has begun them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from perdure.storage.rocksdb import store
from perdure.storage.rocksdb.layout_v1 import SINGLES_LAYOUT


@contextmanager
def earlier_layout() -> Iterator[None]:
    """Stores that are opened meanwhile begin generations in layout 1."""
    kept = store.LAYOUTS["skipscan"]
    store.LAYOUTS["skipscan"] = SINGLES_LAYOUT
    try:
        yield
    finally:
        store.LAYOUTS["skipscan"] = kept
