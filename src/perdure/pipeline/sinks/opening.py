"""Opens the tables of an archive in the format that it has."""

from __future__ import annotations

from perdure.config import plugged
from perdure.errors import ConfigError
from perdure.pipeline.lake.lake import Lake
from perdure.pipeline.sinks.contract import Sink
from perdure.pipeline.sinks.formats import SINKS


def open_sink(lake: Lake, database_id: str) -> Sink:
    """The tables of a lake.

    Args:
        lake: where they are; a directory is there already.
        database_id: whose log is in the tables.

    Raises:
        ConfigError: there is no such format, its packages are missing, or the catalog cannot be
            used.
        StorageUnavailable: the catalog is not there now.
    """
    if lake.format not in SINKS:
        raise ConfigError(f"{lake.format!r} is no table format", hint=f"one of {', '.join(SINKS)}")
    opened = plugged.load(
        f"{SINKS[lake.format]}:open_sink",
        setting="--format",
        what=f"--format {lake.format}",
        extra="spark",
    )
    sink: Sink = opened(lake, database_id)
    return sink
