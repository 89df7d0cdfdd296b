"""Both event loops, and leak checks, for the tests of ``server``."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from tests.unit.fixtures import no_leaks, pytest_asyncio_loop_factories

__all__ = ["no_leaks", "pytest_asyncio_loop_factories"]


@pytest.fixture(autouse=True)
def collector_as_before() -> Iterator[None]:
    """Undo what the start does to the garbage collector."""
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)
