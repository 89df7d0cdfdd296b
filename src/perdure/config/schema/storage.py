"""Where the state is, and when it is durable: the section `storage` with one for each backend."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias, final

from perdure.config.backends import BACKENDS, Backend, BackendName
from perdure.config.fields import about
from perdure.config.schema.section import MIB, Section

DurabilityLevel: TypeAlias = Literal["memory", "os", "fsync"]

_BUFFER_BESIDE_CACHE: Final = 4
"""A part of ``write_buffer_bytes`` that is there beside the cache. What memory holds beyond that of
writes, for a moment and under load, the cache gives back: both are seldom full at the same time."""


@final
class RocksdbConfig(Section, frozen=True):
    """The embedded log."""

    layout: Annotated[
        Literal["skipscan", "bitmask"],
        about("Key layout of new generations; existing ones keep theirs."),
    ] = "skipscan"
    write_buffer_bytes: Annotated[
        int, about("Memory for writes not yet in a table file.", unit="bytes", ge=1 * MIB)
    ] = 32 * MIB
    block_cache_bytes: Annotated[
        int,
        about(
            "Memory for blocks read from table files; what writes need beyond a quarter of "
            "`write_buffer_bytes` is taken from it for as long.",
            unit="bytes",
            ge=1 * MIB,
        ),
    ] = 24 * MIB
    tail_messages: Annotated[
        int, about("Recent messages kept in memory for fresh reads.", ge=0)
    ] = 50_000
    tail_bytes: Annotated[
        int,
        about(
            "Bytes of recent messages kept in memory, with their properties.", unit="bytes", ge=0
        ),
    ] = 8 * MIB
    max_open_files: Annotated[int, about("Table files held open; -1 = all.", ge=-1)] = 512
    learn_thresholds: Annotated[
        tuple[int, ...],
        about(
            "Children after which a topic level is taken to vary, for the first level, the "
            "second and so on; the last one holds for all deeper levels."
        ),
    ] = (100, 10)

    @property
    def cache_bytes(self) -> int:
        """Memory for blocks and for a part of the writes."""
        return self.block_cache_bytes + self.write_buffer_bytes // _BUFFER_BESIDE_CACHE


class ServerConfig(Section, frozen=True):
    """A server that holds the whole state: what the broker does while it waits for it."""

    durability: Annotated[
        Literal["warn", "refuse", "ignore"],
        about("At the start, if the server may lose what it has acknowledged."),
    ] = "warn"
    connect_timeout_s: Annotated[
        int, about("How long the start waits for the server.", unit="s", ge=0)
    ] = 30
    command_timeout_s: Annotated[
        int, about("Time for an answer; after it the connection is made anew.", unit="s", ge=1)
    ] = 15
    outage_max_s: Annotated[
        int,
        about(
            "How long messages wait for a server that is away before publishers are refused.",
            unit="s",
            ge=0,
        ),
    ] = 30
    pending_bytes_max: Annotated[
        int,
        about(
            "Most bytes that wait for the server; from half of it on, reading from clients pauses.",
            unit="bytes",
            ge=1 * MIB,
        ),
    ] = 64 * MIB


@final
class RedisConfig(ServerConfig, frozen=True):
    """The whole state in Redis (`storage.backend: redis`)."""

    url: Annotated[
        str,
        about(
            "`redis://user:password@host:6379/0`, `rediss://` for TLS, `redis+cluster://a,b,c` "
            "for a cluster.",
            secret=True,
        ),
    ] = "redis://127.0.0.1:6379/0"
    prefix: Annotated[
        str, about("Begins every key that is not a queue's: one broker for each prefix.")
    ] = "perdure"


@final
class PostgresConfig(ServerConfig, frozen=True):
    """The whole state in PostgreSQL (`storage.backend: postgres`)."""

    url: Annotated[str, about("`postgresql://user:password@host:5432/database`.", secret=True)] = (
        "postgresql://127.0.0.1:5432/perdure"
    )


@final
class StorageConfig(Section, frozen=True):
    """What is durable, and when."""

    backend: Annotated[
        BackendName,
        about(
            "`rocksdb` keeps everything in the data directory, `redis` and `postgres` in a server; "
            "`memory` keeps nothing past the process."
        ),
    ] = "rocksdb"
    path: Annotated[str, about("Data directory.", unit="path")] = "perdure-data"
    durability: Annotated[
        DurabilityLevel,
        about(
            "What an acknowledgement means: `fsync` = safe against power loss, `os` = safe "
            "against the death of the broker, `memory` = taken."
        ),
    ] = "fsync"
    commit_interval_us: Annotated[
        int,
        about(
            "Least time between two commits while messages come by themselves; what comes in "
            "between is written, delivered and acknowledged together.",
            unit="us",
            ge=0,
            le=1_000_000,
        ),
    ] = 2000
    commit_messages_max: Annotated[
        int, about("Messages that cause a commit at once, whatever the interval.", ge=1)
    ] = 1000
    commit_queue_max: Annotated[
        int, about("Messages waiting for a commit before reading from clients pauses.", ge=1)
    ] = 50_000
    outage_max: Annotated[
        int,
        about(
            "Of a node of a cluster: how long clients stay connected while Kafka takes nothing; "
            "then they are sent away, to find another node.",
            unit="s",
            ge=1,
        ),
    ] = 30
    record: Annotated[
        tuple[str, ...], about("Topic filters whose QoS 1 and 2 messages are recorded in the log.")
    ] = ("#",)
    record_qos0: Annotated[
        tuple[str, ...], about("Topic filters whose QoS 0 messages are recorded too.")
    ] = ()
    rocksdb: RocksdbConfig = RocksdbConfig()
    redis: RedisConfig = RedisConfig()
    postgres: PostgresConfig = PostgresConfig()

    @property
    def traits(self) -> Backend:
        """What is to be known of the backend."""
        return BACKENDS[self.backend]

    @property
    def server(self) -> ServerConfig:
        """The section of a backend that is in a server."""
        section: ServerConfig = getattr(self, self.backend)
        return section
