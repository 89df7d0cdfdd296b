"""The whole broker with its state in a server: Redis and PostgreSQL beside the data directory.

Equal durability: ``appendfsync always``, ``synchronous_commit = on``, a synced log. The servers run
on the same machine and share its cores; the CPU stated is the broker's alone.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from benchmarks import suite
from perdure.bench.contestants import Contestant
from perdure.bench.peers import PEERS
from perdure.bench.settings import Settings
from perdure.storebench.servers.postgres import PostgresServer
from perdure.storebench.servers.redis import RedisServer

ON_REDIS, ON_POSTGRES, ON_DISK = (
    "perdure on Redis",
    "perdure on PostgreSQL",
    "perdure on its own disk",
)
"""The first, on Redis, is what the others are compared with."""

SETTINGS = Settings(scenario="p2p", publishers=100, subscribers=100, duration_s=4.0, warmup_s=1.5)
ROUNDS = 3


def run() -> bool:
    """Measure and write the record; whether nothing was lost or repeated."""
    with ExitStack() as stack:
        redis = stack.enter_context(RedisServer(appendfsync="always"))
        postgres = stack.enter_context(PostgresServer(settings={"synchronous_commit": "on"}))
        contestants = [
            contestant("redis", redis.url, ON_REDIS),
            contestant("postgres", postgres.url, ON_POSTGRES),
            Contestant(PEERS["perdure"], SETTINGS, name=ON_DISK),
        ]
        return suite.take("profiles", contestants, rounds=ROUNDS, keep=True, skipped={})


def contestant(backend: str, url: str, name: str) -> Contestant:
    """Perdure with its state in a server."""
    variables = {
        "PERDURE__STORAGE__BACKEND": backend,
        f"PERDURE__STORAGE__{backend.upper()}__URL": url,
    }
    return Contestant(PEERS["perdure"], SETTINGS, name=name, environment=variables)


ALL: dict[str, Callable[[], bool]] = {"profiles": run}
