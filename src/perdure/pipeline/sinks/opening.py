"""Opens the tables of an archive in the format that it has."""

from __future__ import annotations

from pathlib import Path

from perdure.config import plugged
from perdure.errors import ConfigError
from perdure.pipeline.sinks.contract import Place, Sink
from perdure.pipeline.sinks.formats import SINKS


def open_sink(kind: str, directory: Path, catalog: str | None, database_id: str) -> Sink:
    """The tables in an archive's directory.

    Args:
        kind: a name in ``SINKS``.
        directory: of the archive; exists.
        catalog: an Iceberg catalog of the user's settings; None = the one in the directory.
        database_id: whose log is in the tables.

    Raises:
        ConfigError: there is no such format, its packages are missing, or the catalog cannot be
            used.
    """
    if kind not in SINKS:
        raise ConfigError(f"{kind!r} is no table format", hint=f"one of {', '.join(SINKS)}")
    opened = plugged.load(
        f"{SINKS[kind]}:open_sink", setting="--format", what=f"--format {kind}", extra="spark"
    )
    sink: Sink = opened(Place(directory.resolve(), database_id, catalog))
    return sink
