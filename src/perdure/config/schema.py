"""The sections of the configuration: names, types, defaults, units.

Every room takes its own section and never the whole; only ``server`` holds ``Config``. Sections
are frozen: a reload makes a new ``Config``. Durations and sizes are ints in the unit that the
name ends with (or that the annotation states) and may be written ``30s`` or ``64MiB``.
The reference page is generated from here (``config.reference``).
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias, final

import msgspec

from perdure import limits
from perdure.config.fields import about

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
DAY_S = 86_400

DurabilityLevel: TypeAlias = Literal["memory", "os", "fsync"]


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of the configuration: frozen, every field has a default, no other key."""


@final
class NodeConfig(Section, frozen=True):
    """This broker."""

    name: Annotated[str, about("Name of this broker, in `$SYS`, logs and metrics.")] = (
        "perdure@localhost"
    )


@final
class Listener(Section, frozen=True):
    """One listening address. `tcp`, `tls`, `ws` and `wss` each take one of these or a list."""

    enabled: Annotated[bool, about("Whether this listener is opened.")] = True
    bind: Annotated[
        str,
        about(
            "`host:port` to listen on; the default port is 1883 (tcp), 8883 (tls), 8083 (ws) or "
            "8084 (wss). Port 0 lets the system choose.",
            unit="address",
        ),
    ] = "127.0.0.1:1883"
    connections_max: Annotated[
        int, about("Connections that this listener holds at once.", ge=1)
    ] = 100_000
    durability: Annotated[
        Literal["", "memory", "os", "fsync"],
        about("Durability for what arrives here; empty means `storage.durability`."),
    ] = ""
    proxy_protocol: Annotated[
        bool, about("Expect a PROXY protocol header (v1 or v2) before the first packet.")
    ] = False
    backlog: Annotated[
        int, about("Connections that the kernel holds until they are accepted.", ge=1)
    ] = 1024
    path: Annotated[str, about("HTTP path of the WebSocket (ws, wss).")] = "/mqtt"
    certificate: Annotated[
        str, about("PEM file with the certificate chain (tls, wss; required there).", unit="path")
    ] = ""
    private_key: Annotated[
        str, about("PEM file with the private key (tls, wss; required there).", unit="path")
    ] = ""
    client_ca: Annotated[
        str,
        about("PEM file with the authorities that client certificates come from.", unit="path"),
    ] = ""
    require_client_certificate: Annotated[
        bool, about("Refuse a client without a valid certificate; needs `client_ca`.")
    ] = False
    username_from_certificate: Annotated[
        bool, about("Take the common name of the client certificate as the user name.")
    ] = False


@final
class ListenersConfig(Section, frozen=True):
    """Where clients connect. Without any setting: TCP on localhost, port 1883."""

    tcp: tuple[Listener, ...] = (Listener(),)
    tls: tuple[Listener, ...] = ()
    ws: tuple[Listener, ...] = ()
    wss: tuple[Listener, ...] = ()


@final
class MqttConfig(Section, frozen=True):
    """What the protocol allows; announced to MQTT 5.0 clients in CONNACK."""

    packet_size_max: Annotated[
        int,
        about(
            "Largest packet accepted.",
            unit="bytes",
            ge=1 * KIB,
            le=limits.REMAINING_LENGTH_MAX + 5,
        ),
    ] = 16 * MIB
    receive_maximum: Annotated[
        int,
        about(
            "QoS 1 and 2 messages that a client may have unacknowledged towards the broker.",
            ge=1,
            le=65_535,
        ),
    ] = 1024
    topic_alias_maximum: Annotated[
        int, about("Topic aliases that a client may set; 0 = none.", ge=0, le=65_535)
    ] = 128
    keep_alive_max_s: Annotated[
        int,
        about(
            "Longest keep alive. A client that asks for more, or for none, is given this one "
            "(5.0) or held to it (3.1.1); 0 = as the client asks.",
            unit="s",
            ge=0,
            le=65_535,
        ),
    ] = 0
    maximum_qos: Annotated[
        int, about("Highest QoS that a client may publish with.", ge=0, le=2)
    ] = 2
    retain_available: Annotated[bool, about("Accept retained messages.")] = True
    wildcard_subscription_available: Annotated[bool, about("Accept `+` and `#` in filters.")] = True
    shared_subscription_available: Annotated[bool, about("Accept `$share/` subscriptions.")] = True
    subscription_identifier_available: Annotated[
        bool, about("Accept subscription identifiers.")
    ] = True
    topic_levels_max: Annotated[
        int, about("Levels that a topic name or filter may have.", ge=1, le=65_536)
    ] = 200
    client_id_bytes_max: Annotated[
        int, about("Longest client identifier.", unit="bytes", ge=23, le=65_535)
    ] = 65_535
    allow_empty_client_id: Annotated[
        bool, about("Assign an identifier to a client that sends none.")
    ] = True
    connect_timeout_ms: Annotated[
        int, about("Time in which CONNECT must arrive after the connection.", unit="ms", ge=1)
    ] = 10_000
    response_information: Annotated[
        str, about("Response information given to 5.0 clients that ask for it; empty = none.")
    ] = ""


@final
class SessionConfig(Section, frozen=True):
    """What one session may hold."""

    expiry_max_s: Annotated[
        int,
        about(
            "Longest session expiry granted; 4294967295 = never.",
            unit="s",
            ge=0,
            le=limits.SESSION_EXPIRY_NEVER_S,
        ),
    ] = limits.SESSION_EXPIRY_NEVER_S
    expiry_persistent_s: Annotated[
        int,
        about(
            "Session expiry of a 3.1.1 client that connects with clean session 0.",
            unit="s",
            ge=1,
            le=limits.SESSION_EXPIRY_NEVER_S,
        ),
    ] = limits.SESSION_EXPIRY_NEVER_S
    inflight_max: Annotated[
        int,
        about(
            "QoS 1 and 2 messages sent to a client and not yet acknowledged; a client's own "
            "receive maximum may lower it.",
            ge=1,
            le=65_535,
        ),
    ] = 1000
    pending_messages_max: Annotated[
        int,
        about("Messages kept for a session; the oldest are dropped beyond; 0 = no limit.", ge=0),
    ] = 0
    pending_bytes_max: Annotated[
        int,
        about("Payload bytes kept for a session; 0 = no limit.", unit="bytes", ge=0),
    ] = 0
    pending_age_max_s: Annotated[
        int, about("Oldest message kept for a session; 0 = no limit.", unit="s", ge=0)
    ] = 0
    memory_pending_max: Annotated[
        int,
        about(
            "Messages held in memory for a connected session; one that falls further behind "
            "reads the log instead.",
            ge=1,
        ),
    ] = 1000
    subscriptions_max: Annotated[int, about("Subscriptions of one session.", ge=1)] = 10_000
    outbound_buffer_bytes: Annotated[
        int,
        about(
            "Bytes waiting in a connection's socket buffer before delivery to it pauses.",
            unit="bytes",
            ge=4 * KIB,
        ),
    ] = 1 * MIB
    feed_chunk: Annotated[
        int, about("Messages read at once for a session that catches up.", ge=1, le=65_535)
    ] = 256


@final
class RocksdbConfig(Section, frozen=True):
    """The embedded log."""

    layout: Annotated[
        Literal["skipscan", "bitmask"],
        about("Key layout of new generations; existing ones keep theirs."),
    ] = "skipscan"
    write_buffer_bytes: Annotated[
        int, about("Memory for writes not yet in a table file.", unit="bytes", ge=1 * MIB)
    ] = 64 * MIB
    block_cache_bytes: Annotated[
        int, about("Memory for blocks read from table files.", unit="bytes", ge=1 * MIB)
    ] = 32 * MIB
    tail_messages: Annotated[
        int, about("Recent messages kept in memory for fresh reads.", ge=0)
    ] = 150_000
    tail_bytes: Annotated[
        int, about("Payload bytes of recent messages kept in memory.", unit="bytes", ge=0)
    ] = 32 * MIB
    max_open_files: Annotated[int, about("Table files held open; -1 = all.", ge=-1)] = 512
    learn_thresholds: Annotated[
        tuple[int, ...],
        about(
            "Children after which a topic level is taken to vary, for the first level, the "
            "second and so on; the last one holds for all deeper levels."
        ),
    ] = (100, 10)


@final
class RedisConfig(Section, frozen=True):
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
class PostgresConfig(Section, frozen=True):
    """The whole state in PostgreSQL (`storage.backend: postgres`)."""

    url: Annotated[str, about("`postgresql://user:password@host:5432/database`.", secret=True)] = (
        "postgresql://127.0.0.1:5432/perdure"
    )
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
class StorageConfig(Section, frozen=True):
    """What is durable, and when."""

    backend: Annotated[
        Literal["rocksdb", "redis", "postgres", "memory"],
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
            "Least time between two commits under load; what comes in between is written, "
            "delivered and acknowledged together.",
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
    record: Annotated[
        tuple[str, ...],
        about("Topic filters whose QoS 1 and 2 messages are recorded in the log."),
    ] = ("#",)
    record_qos0: Annotated[
        tuple[str, ...], about("Topic filters whose QoS 0 messages are recorded too.")
    ] = ()
    rocksdb: RocksdbConfig = RocksdbConfig()
    redis: RedisConfig = RedisConfig()
    postgres: PostgresConfig = PostgresConfig()


@final
class RetentionConfig(Section, frozen=True):
    """How long the log is kept. What a session has still to get outlives it."""

    time_s: Annotated[
        int,
        about("Age at which a generation is dropped; 0 = never.", unit="s", live=True, ge=0),
    ] = 7 * DAY_S
    bytes: Annotated[
        int,
        about(
            "Size of the log beyond which the oldest generation is dropped; 0 = no limit.",
            unit="bytes",
            live=True,
            ge=0,
        ),
    ] = 0
    generation_time_s: Annotated[
        int, about("Age at which a new generation is begun.", unit="s", live=True, ge=1)
    ] = 1 * DAY_S
    generation_bytes: Annotated[
        int,
        about("Size at which a new generation is begun.", unit="bytes", live=True, ge=1 * MIB),
    ] = 4 * GIB
    disk_bytes_max: Annotated[
        int,
        about(
            "Most disk space for the data directory; 0 = no limit.", unit="bytes", live=True, ge=0
        ),
    ] = 0
    disk_policy: Annotated[
        Literal["refuse", "drop_oldest"],
        about(
            "At `disk_bytes_max`: `refuse` publishes (reason code 0x97) or `drop_oldest` "
            "generation, and count what sessions lost by it.",
            live=True,
        ),
    ] = "refuse"
    check_interval_s: Annotated[
        int, about("Time between two looks at age and size.", unit="s", live=True, ge=1)
    ] = 60


@final
class AuthConfig(Section, frozen=True):
    """Who may connect, and who may do what."""

    allow_anonymous: Annotated[
        Literal["loopback", "always", "never"],
        about(
            "Who may connect without credentials: clients on this machine, everyone, nobody.",
            live=True,
        ),
    ] = "loopback"
    password_file: Annotated[
        str,
        about(
            "Users and their hashes, SCRAM entries included, as `perdure passwd` writes them; "
            "empty = none.",
            unit="path",
            live=True,
        ),
    ] = ""
    acl_file: Annotated[
        str,
        about("Access rules; empty = every client may use every topic.", unit="path", live=True),
    ] = ""
    verify_threads: Annotated[int, about("Threads that verify passwords.", ge=1, le=64)] = 2
    verify_queue_max: Annotated[
        int,
        about("Verifications waiting before a connection is refused as `server busy`.", ge=1),
    ] = 1000
    verify_cache_max: Annotated[
        int, about("Users whose last good password is remembered (hashed) in memory.", ge=0)
    ] = 10_000


@final
class LimitsConfig(Section, frozen=True):
    """Bounds over all clients, or on the rate of one."""

    connections_max: Annotated[int, about("Connections of the whole broker.", live=True, ge=1)] = (
        100_000
    )
    connections_per_ip_max: Annotated[
        int,
        about("Connections from one address (IPv6: from one /64); 0 = no limit.", live=True, ge=0),
    ] = 0
    connect_rate: Annotated[
        int, about("New connections per second; 0 = no limit.", live=True, ge=0)
    ] = 0
    publish_rate: Annotated[
        int, about("Messages per second from one connection; 0 = no limit.", live=True, ge=0)
    ] = 0
    publish_bytes_rate: Annotated[
        int,
        about("Bytes per second from one connection; 0 = no limit.", unit="bytes", live=True, ge=0),
    ] = 0
    subscribe_rate: Annotated[
        int,
        about("SUBSCRIBE packets per second from one connection; 0 = no limit.", live=True, ge=0),
    ] = 0


@final
class SharedConfig(Section, frozen=True):
    """Shared subscriptions."""

    strategy: Annotated[
        Literal[
            "round_robin", "random", "sticky", "hash_publisher", "hash_topic", "least_inflight"
        ],
        about("Which member of a group is given the next message."),
    ] = "round_robin"


@final
class SysConfig(Section, frozen=True):
    """The `$SYS/broker/` topics."""

    interval_s: Annotated[
        int, about("Time between two updates; 0 = no `$SYS` topics.", unit="s", ge=0)
    ] = 10


@final
class LogConfig(Section, frozen=True):
    """What the broker tells on standard error."""

    level: Annotated[
        Literal["debug", "info", "warning", "error"], about("Least level written.", live=True)
    ] = "info"
    format: Annotated[
        Literal["auto", "console", "json"],
        about("`auto` is `console` on a terminal and `json` otherwise.", live=True),
    ] = "auto"
    repeat_max: Annotated[
        int,
        about(
            "Times that one event is written in `repeat_window_s`; the rest is counted and "
            "told with the next one; 0 = no limit.",
            live=True,
            ge=0,
        ),
    ] = 20
    repeat_window_s: Annotated[int, about("Window of `repeat_max`.", unit="s", live=True, ge=1)] = (
        10
    )


@final
class MetricsConfig(Section, frozen=True):
    """Prometheus."""

    bind: Annotated[
        str,
        about("`host:port` that serves `/metrics` over HTTP; empty = off.", unit="address"),
    ] = ""


@final
class HttpConfig(Section, frozen=True):
    """The HTTP interface: health, and the log for Spark on other machines."""

    bind: Annotated[
        str,
        about(
            "`host:port` that serves `/api/v1`; empty = off. The default port is 18083; port 0 "
            "lets the system choose.",
            unit="address",
        ),
    ] = ""
    token_file: Annotated[
        str,
        about(
            "File with the tokens that may read, one on a line, each 32 characters or more; read "
            "again when it changes. Empty = `http.token` in the data directory, made with a "
            "random token at the first start.",
            unit="path",
        ),
    ] = ""
    certificate: Annotated[
        str, about("PEM file with the certificate chain; empty = no TLS.", unit="path")
    ] = ""
    private_key: Annotated[
        str, about("PEM file with the private key; required with `certificate`.", unit="path")
    ] = ""
    processes: Annotated[
        int, about("Processes that answer; each can use a core while the log is read.", ge=1, le=64)
    ] = 1
    reads_max: Annotated[
        int,
        about("Reads of the log at once in each process; more wait their turn.", ge=1, le=256),
    ] = 4
    connections_max: Annotated[
        int, about("Connections that each process holds at once.", ge=8, le=65_536)
    ] = 512
    page_bytes: Annotated[
        int,
        about(
            "Payload bytes after which a page of a read is sent.",
            unit="bytes",
            ge=64 * KIB,
            le=32 * MIB,
        ),
    ] = 8 * MIB


@final
class Config(Section, frozen=True):
    """Everything an operator can set."""

    node: NodeConfig = NodeConfig()
    listeners: ListenersConfig = ListenersConfig()
    mqtt: MqttConfig = MqttConfig()
    session: SessionConfig = SessionConfig()
    storage: StorageConfig = StorageConfig()
    retention: RetentionConfig = RetentionConfig()
    auth: AuthConfig = AuthConfig()
    limits: LimitsConfig = LimitsConfig()
    shared: SharedConfig = SharedConfig()
    sys: SysConfig = SysConfig()
    log: LogConfig = LogConfig()
    metrics: MetricsConfig = MetricsConfig()
    http: HttpConfig = HttpConfig()
