"""The backends under the contract: a later one joins with one more entry in ``BACKENDS``."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from perdure.config.schema import RocksdbConfig
from perdure.storage.contract import Database
from perdure.storage.device_queue import DeviceQueue
from perdure.storage.memory import MemoryDatabase
from perdure.storage.postgres.driver import PostgresDriver
from perdure.storage.redis.driver import RedisDriver
from perdure.storage.remote.store import RemoteDatabase, Settings
from perdure.storage.rocksdb import RocksDatabase
from tests import servers
from tests.contract.queues import QUEUES, parameters
from tests.contract.values import NOW_US
from tests.support.bounds import HANG_S
from tests.support.cluster_node import SteppedReplica
from tests.support.database_servers import PostgresServer, RedisServer
from tests.support.earlier_layout import earlier_layout
from tests.support.ordered_log import LateDatabase, OrderedLog
from tests.support.redis_cluster import RedisCluster
from tests.support.remote import MemoryDriver, ServerState
from tests.support.shared_log import SharedLog


class Backend:
    """One database, and how to take it through a clean stop and start."""

    def __init__(self, start: Callable[[Database | None], Database]) -> None:
        self._start = start
        self.database = start(None)

    def restart(self) -> Database:
        """Close the database and open it again."""
        self.database.close()
        self.database = self._start(self.database)
        return self.database

    def now_and_restarted(self) -> Iterator[Database]:
        """The database as it is, then the database after a restart."""
        yield self.database
        yield self.restart()


def _memory(_path: Path) -> Callable[[Database | None], Database]:
    def start(previous: Database | None) -> Database:
        if previous is None:
            return MemoryDatabase()
        assert isinstance(previous, MemoryDatabase)
        return previous.reopened()

    return start


def _rocksdb(path: Path) -> Callable[[Database | None], Database]:
    return lambda _previous: RocksDatabase.open(path, now_us=NOW_US)


def _bitmask(path: Path) -> Callable[[Database | None], Database]:
    config = RocksdbConfig(layout="bitmask", tail_messages=0)
    return lambda _previous: RocksDatabase.open(path, config=config, now_us=NOW_US)


def _no_tail(path: Path) -> Callable[[Database | None], Database]:
    # Every read goes to the tables, and new tokens vary from the third on.
    config = RocksdbConfig(tail_messages=0, learn_thresholds=(2,))
    return lambda _previous: RocksDatabase.open(path, config=config, now_us=NOW_US)


def _upgraded(path: Path) -> Callable[[Database | None], Database]:
    # An earlier release has begun it.
    config = RocksdbConfig(tail_messages=0, learn_thresholds=(2,))

    def start(previous: Database | None) -> Database:
        if previous is None:
            with earlier_layout():
                return RocksDatabase.open(path, config=config, now_us=NOW_US)
        return RocksDatabase.open(path, config=config, now_us=NOW_US)

    return start


def _remote(_path: Path) -> Callable[[Database | None], Database]:
    state = ServerState()
    return lambda _previous: RemoteDatabase.open_blocking(
        lambda: MemoryDriver(state), now_us=NOW_US
    )


def _remote_no_tail(_path: Path) -> Callable[[Database | None], Database]:
    # Every read goes to the server.
    state = ServerState()
    settings = Settings(tail_messages_max=0)
    return lambda _previous: RemoteDatabase.open_blocking(
        lambda: MemoryDriver(state), now_us=NOW_US, settings=settings
    )


def _postgres(_path: Path) -> Callable[[Database | None], Database]:
    url = servers.postgres_place()
    return lambda _previous: RemoteDatabase.open_blocking(
        lambda: PostgresDriver(url, connect_timeout_s=HANG_S, command_timeout_s=HANG_S),
        now_us=NOW_US,
    )


def _redis(_path: Path) -> Callable[[Database | None], Database]:
    url, prefix = servers.redis().url, servers.redis_prefix()
    return lambda _previous: RemoteDatabase.open_blocking(
        lambda: RedisDriver(url, prefix=prefix, command_timeout_s=HANG_S), now_us=NOW_US
    )


def _redis_cluster(_path: Path) -> Callable[[Database | None], Database]:
    url, prefix = servers.redis_cluster().url, servers.redis_prefix()
    return lambda _previous: RemoteDatabase.open_blocking(
        lambda: RedisDriver(url, prefix=prefix, command_timeout_s=HANG_S), now_us=NOW_US
    )


def _late(_path: Path) -> Callable[[Database | None], Database]:
    """A log elsewhere, which a second node reads and writes too."""
    log = OrderedLog()
    LateDatabase(log=log)

    def start(previous: Database | None) -> Database:
        if previous is None:
            return LateDatabase(log=log)
        assert isinstance(previous, LateDatabase)
        return previous.reopened()

    return start


def _replica(_path: Path) -> Callable[[Database | None], Database]:
    """A node of a cluster, beside another one that reads the same log."""
    log, incarnations = SharedLog(), itertools.count(1)
    SteppedReplica(log, "other", None, incarnations).join()

    def start(previous: Database | None) -> Database:
        local = None
        if previous is not None:
            assert isinstance(previous, SteppedReplica)
            assert isinstance(previous.local, MemoryDatabase)
            local = previous.local.reopened()
        return SteppedReplica(log, "here", local, incarnations).join()

    return start


def _replica_rocksdb(path: Path) -> Callable[[Database | None], Database]:
    log, incarnations = SharedLog(), itertools.count(1)

    def start(_previous: Database | None) -> Database:
        local = RocksDatabase.open(path, now_us=NOW_US)
        return SteppedReplica(log, "here", local, incarnations).join()

    return start


BACKENDS = {
    "memory": _memory,
    "late": _late,
    "replica": _replica,
    "replica-rocksdb": _replica_rocksdb,
    "rocksdb": _rocksdb,
    "rocksdb-no-tail": _no_tail,
    "rocksdb-bitmask": _bitmask,
    "rocksdb-upgraded": _upgraded,
    "remote": _remote,
    "remote-no-tail": _remote_no_tail,
    "postgres": _postgres,
    "redis": _redis,
    "redis-cluster": _redis_cluster,
}
REDIS_MARKS = [pytest.mark.redis]
BACKEND_MARKS = {
    "redis": REDIS_MARKS,
    "redis-cluster": REDIS_MARKS,
    "postgres": [
        pytest.mark.postgres,
    ],
}


@pytest.fixture(params=[pytest.param(name, marks=BACKEND_MARKS.get(name, [])) for name in BACKENDS])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    """A backend with an empty database, closed afterwards."""
    backend = Backend(BACKENDS[request.param](tmp_path / "data"))
    yield backend
    backend.database.close()


@pytest.fixture
def database(backend: Backend) -> Database:
    """An empty database."""
    return backend.database


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """A Redis server; each user empties it first."""
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="session")
def redis_cluster() -> Iterator[RedisCluster]:
    """A Redis cluster of three masters; each user empties it first."""
    with RedisCluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One PostgreSQL for all tests; nothing here needs it to survive a power cut."""
    with PostgresServer(durable=False) as server:
        yield server


@pytest_asyncio.fixture(params=parameters())
async def queue(request: pytest.FixtureRequest) -> AsyncIterator[DeviceQueue]:
    """An empty store of device queues."""
    async with QUEUES[request.param](request) as opened:
        yield opened
