"""The storage backends: a line for each, read by everyone who has to tell one from another.

A new one is a package below ``perdure/storage/`` and a line here. In this process: a function
``open_configured(storage: StorageConfig, engine) -> Database``; ``engine`` is RocksDB's seam for
tests, others do without. In a server: a ``storage.remote.driver.Driver`` with a class method
``configured(section, identity)``, where ``section`` is the part of ``StorageConfig`` that has the
backend's name. Neither is imported before it is asked for: each may need an extra that others do
without.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, final

import msgspec

from perdure.config import plugged


@final
class Backend(msgspec.Struct, frozen=True, kw_only=True):
    """What others must know of a backend.

    Attributes:
        opens: ``module:name`` of what opens it in this process; empty = it is in a server.
        driver: ``module:name`` of a server's driver; empty = it is in this process.
        extra: of our package that it needs; empty = none.
        is_directory: its log is in the data directory, where others read it beside the broker.
        is_kept: it outlives the process.
        schemes: of URLs of its servers.
    """

    opens: str = ""
    driver: str = ""
    extra: str = ""
    is_directory: bool = False
    is_kept: bool = True
    schemes: tuple[str, ...] = ()

    @property
    def is_server(self) -> bool:
        """Whether the state is in a server."""
        return bool(self.driver)


BACKENDS: Final[Mapping[str, Backend]] = {
    "rocksdb": Backend(opens="perdure.server.stores:open_rocksdb", is_directory=True),
    "redis": Backend(
        driver="perdure.storage.redis.driver:RedisDriver",
        extra="redis",
        schemes=("redis", "rediss", "redis+cluster", "rediss+cluster"),
    ),
    "postgres": Backend(
        driver="perdure.storage.postgres.driver:PostgresDriver",
        extra="postgres",
        schemes=("postgresql", "postgres"),
    ),
    "memory": Backend(opens="perdure.storage.memory.store:open_configured", is_kept=False),
}
"""By the name that ``storage.backend`` takes."""

if TYPE_CHECKING:
    BackendName: TypeAlias = str
else:
    BackendName = Literal[tuple(BACKENDS)]


def load(name: str, target: str) -> Any:
    """Import what a backend's line names.

    Args:
        name: of the backend.
        target: ``module:name``.

    Raises:
        ConfigError: the extra is not installed.
    """
    return plugged.load(
        target,
        setting="storage.backend",
        what=f"storage.backend {name}",
        extra=BACKENDS[name].extra,
    )
