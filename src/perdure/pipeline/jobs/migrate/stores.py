"""Opens the two sides of a migration; the only module that knows which class serves which URL."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from perdure.errors import ConfigError
from perdure.pipeline.jobs.migrate.contract import Source, Target
from perdure.pipeline.jobs.migrate.endpoints import Endpoint

if TYPE_CHECKING:
    from perdure.storage.rocksdb import RocksDatabase


def open_source(endpoint: Endpoint) -> Source:
    """The source at an endpoint; it connects when it is first asked."""
    if endpoint.kind == "postgres":
        from perdure.pipeline.jobs.migrate.postgres import PostgresSource

        return PostgresSource(endpoint.url)
    raise ConfigError(f"{endpoint.shown} cannot be read")


async def open_target(endpoint: Endpoint, *, now_us: int) -> Target:
    """The target at an endpoint that many tasks can write."""
    raise ConfigError(f"{endpoint.shown} cannot be written")


def open_directory(path: Path) -> RocksDatabase:
    """The data directory that is written; made if it is not there.

    Raises:
        StorageLocked: a broker uses it.
    """
    from perdure.storage.rocksdb import RocksDatabase

    return RocksDatabase.open(path)
