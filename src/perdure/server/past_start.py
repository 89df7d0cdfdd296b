"""Whether a broker reads the archive of its log for replays, and the part that does."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from perdure.broker.broker import Broker
from perdure.config.schema import Config
from perdure.errors import ConfigError
from perdure.pipeline.lake.lake import checked_place
from perdure.server.cluster_part import ClusterStore
from perdure.server.past_part import PastPart
from perdure.server.stores import RemoteStore, identity_of
from perdure.storage.contract import Database
from perdure.storage.rocksdb import RocksDatabase

EXTRA: Final = {
    "iceberg": ("pyarrow", "pyiceberg"),
    "delta": ("pyarrow", "deltalake"),
    "parquet": ("pyarrow",),
}
"""What the process needs for each format of tables."""


def reads_archive(config: Config) -> bool:
    """Whether replays are to go on in the archive.

    Raises:
        ConfigError: they are, and cannot.
    """
    replay, tables = config.replay, config.pipeline.tables
    if replay.archive == "off" or not config.storage.traits.is_kept:
        return False
    wanted = replay.archive == "on"
    if not tables.place:
        if wanted:
            raise ConfigError(
                "replays are to go on in the archive, and no place of it is named",
                path="replay.archive",
                hint="pipeline.tables.place",
            )
        return False
    for module in EXTRA[tables.format]:
        if importlib.util.find_spec(module) is None:
            if wanted:
                raise ConfigError(
                    f"reading the archive needs the package {module}",
                    path="replay.archive",
                    hint="pip install 'perdure[spark]'",
                )
            return False
    checked_place(tables.place)
    return True


def past_parts(
    config: Config, broker: Broker, store: Database | RemoteStore | ClusterStore
) -> Iterator[PastPart]:
    """The part that reads the archive, if the broker is to; it is given to the broker."""
    if not reads_archive(config):
        return
    part = PastPart(
        config.replay,
        config.pipeline,
        Path(config.storage.path),
        database=lambda: _identity(config, store),
        metrics=broker.services.metrics,
    )
    broker.services.past = part
    yield part


def _identity(config: Config, store: Database | RemoteStore | ClusterStore) -> str:
    """What tells this log from every other, as the pipeline has it."""
    if isinstance(store, ClusterStore):
        return store.database.view.identity
    if isinstance(store, RemoteStore):
        return identity_of(Path(config.storage.path))
    return store.format.database_id if isinstance(store, RocksDatabase) else ""
