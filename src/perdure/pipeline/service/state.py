"""How a pipeline's jobs are going: ``run.json`` beside the archive, for status and metrics."""

from __future__ import annotations

from typing import Final

import msgspec

from perdure.errors import PerdureError
from perdure.pipeline.lake.stores import Store, below
from perdure.storage.pipeline_runs import RunState

NAME: Final = "run.json"


def load_run(place: str, store: Store) -> RunState | None:
    """The state beside an archive; None = there is none that can be read."""
    try:
        return read_run(place, store)
    except PerdureError:
        return None


def read_run(place: str, store: Store) -> RunState | None:
    """The state beside an archive; None = there is none.

    Raises:
        StorageUnavailable, ConfigError: its store cannot be reached.
    """
    try:
        return msgspec.json.decode(store.read(below(place, NAME)), type=RunState)
    except (FileNotFoundError, ValueError):
        return None


def save_run(place: str, store: Store, state: RunState) -> None:
    """Replace it."""
    store.write(below(place, NAME), msgspec.json.encode(state))
