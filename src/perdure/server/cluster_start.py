"""The start of a node: its store is opened, and it waits for Kafka for as long as it may."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeVar, final

from perdure.backup.filling import is_empty, removed_if_refused
from perdure.clock import SystemClock
from perdure.config import plugged
from perdure.config.cluster_rules import options_of
from perdure.config.schema import Config
from perdure.errors import ConfigError, StorageError, StorageUnavailable
from perdure.observe.logs import get_logger
from perdure.server.cluster_log_note import keep_to_log
from perdure.server.cluster_part import ClusterStore, LoopEntry, topic_of
from perdure.server.log_clock import LogClock
from perdure.server.scheduler import LoopGate
from perdure.server.stores import open_embedded
from perdure.server.systemd import Notifier
from perdure.server.waiting_room import WaitingRoom
from perdure.storage.ordered.contract import OrderedLog
from perdure.storage.ordered.earlier import IN_FLIGHT_MAX
from perdure.storage.ordered.replica import Replica
from perdure.storage.rocksdb.engine import Engine, EngineFactory
from perdure.storage.rocksdb.store import RocksDatabase

T = TypeVar("T")

log = get_logger("cluster")

TRY_S: Final = 5.0
"""How long one attempt to open the log takes at most, seconds."""

RETRY_S: Final = 0.5

TELL_S: Final = 30.0
"""Time between two lines about a start that waits."""

NEAR_US: Final = 30_000
"""What a node's time may be late by, microseconds: all of them, while it runs."""

PROBES_MAX: Final = 10
SETTLE_S: Final = 1.0
"""How often, and for how long, a start tries to come so near."""

LONGER_S: Final = 60.0
"""What a service manager is asked to wait beyond each attempt."""


async def open_cluster(config: Config, *, engine: EngineFactory = Engine) -> ClusterStore:
    """Open the node's store, read the log to its end, and become a member.

    A start that is refused leaves an empty directory as it was: nothing is made there before Kafka
    has let us in, and what was made is removed if the log turns out not to be for it.

    Raises:
        ConfigError: the topic or the options can't be used, the directory was another cluster's,
            or the extra is not installed.
        StorageError: Kafka was not there in time, it does not let us, or its log is not the one
            that this node has read.
    """
    setting = "cluster.kafka"
    kafka = plugged.load(
        "perdure.storage.kafka.log:KafkaLog", setting=setting, what=setting, extra="kafka"
    )
    kafka_settings = plugged.load(
        "perdure.storage.kafka.settings:KafkaSettings", setting=setting, what=setting, extra="kafka"
    )
    settings = kafka_settings(
        config.cluster.kafka,
        topic_of(config.cluster),
        fsync=config.cluster.durability == "fsync",
        options=options_of(config.cluster),
    )
    settings.check()
    entry = LoopEntry(asyncio.get_running_loop().call_soon_threadsafe)

    async def open_log() -> OrderedLog:
        opened: OrderedLog = await kafka.open(settings, timeout_s=TRY_S, to_loop=entry)
        try:
            check_packets(config, opened.record_bytes_max)
        except ConfigError:
            await opened.close()
            raise
        return opened

    directory = Path(config.storage.path)
    async with WaitingRoom(config.http) as room:
        patience = _Patience(config.cluster.start_timeout_s, room)
        if not is_empty(directory):
            return await _joined(config, engine, open_log, patience, entry)
        first = await patience.wait_for(open_log)
        with removed_if_refused(directory):
            return await _joined(config, engine, open_log, patience, entry, first)


async def _joined(
    config: Config,
    engine: EngineFactory,
    open_log: Callable[[], Awaitable[OrderedLog]],
    patience: _Patience,
    entry: LoopEntry,
    first: OrderedLog | None = None,
) -> ClusterStore:
    """Open the store, and become a member as soon as Kafka lets us.

    Args:
        config, engine: of the store.
        open_log: opens the node's end of the log.
        patience: waits for Kafka.
        entry: of the log's thread to the loop.
        first: an end that is open already.

    Raises:
        ConfigError, StorageError: as ``open_cluster``.
    """
    ready = [] if first is None else [first]

    async def next_log() -> OrderedLog:
        return ready.pop() if ready else await open_log()

    try:
        local = open_embedded(config, engine=engine)
        assert isinstance(local, RocksDatabase)
    except BaseException:
        for log_end in ready:
            await log_end.close()
        raise
    loop = asyncio.get_running_loop()
    clock = LogClock(SystemClock())
    replica = Replica(
        local,
        next_log,
        node=config.node.name,
        incarnation=lambda: secrets.randbits(62) + 1,
        later=loop.call_soon,
        gate=lambda: LoopGate(loop),
        cpu_us=lambda: time.thread_time_ns() // 1000,
        advertise=config.node.advertise,
        database=local.format.database_id,
    )
    store = ClusterStore(replica, clock, config, entry)
    topic = topic_of(config.cluster)
    try:
        keep_to_log(Path(config.storage.path), topic, has_read=replica.view.position > 0)
        await patience.wait_for(replica.open)
        await settle(replica.probe, clock)
    except BaseException:
        local.close()
        raise
    log.info(
        "cluster.joined",
        node=config.node.name,
        cluster=config.cluster.name,
        position=replica.view.position,
        members=[member.name for member in replica.members.current()],
    )
    return store


def check_packets(config: Config, record_bytes_max: int) -> None:
    """Whether every message that clients may send fits into the log.

    One is split where it is larger than a record; more is on its way than one message of a turn.

    Raises:
        ConfigError: it would not fit.
    """
    most = record_bytes_max * IN_FLIGHT_MAX // 2
    if config.mqtt.packet_size_max > most:
        raise ConfigError(
            f"clients may send {config.mqtt.packet_size_max} bytes, and the log takes {most} at "
            f"once: a record of topic {topic_of(config.cluster)} has {record_bytes_max}",
            path="mqtt.packet_size_max",
            hint="lower it, or raise max.message.bytes of the topic",
        )


async def settle(probe: Callable[[], Awaitable[None]], clock: LogClock) -> None:
    """Wait until the clock is near the log's time.

    What the broker counts down goes by a clock that begins where this one is, and is looked at by
    all nodes. A loop that has just begun reads its first records late, and after them it may hear
    of nothing for a second. A record that is back soon was not on its way for longer.

    Args:
        probe: submits a record and waits for it.
        clock: hears of it.
    """
    with contextlib.suppress(TimeoutError, StorageError):  # the broker sees what becomes of it
        async with asyncio.timeout(SETTLE_S):
            for _ in range(PROBES_MAX):
                begun_us = clock.monotonic_us()
                await probe()
                if clock.monotonic_us() - begun_us <= NEAR_US:
                    return


@final
class _Patience:
    """Tries again until Kafka lets us, and says meanwhile why it does not yet.

    Args:
        timeout_s: how long in all, seconds; 0 = for as long as it takes.
        room: answers that it waits.
    """

    def __init__(self, timeout_s: int, room: WaitingRoom) -> None:
        self._timeout_s = timeout_s
        self._room = room
        self._notifier = Notifier.from_environment(os.environ, pid=os.getpid())
        self._begun_s = self._told_s = time.monotonic()
        self._is_told = False

    async def wait_for(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """What an attempt gives, once one does.

        Raises:
            StorageError: none did in time, or none will.
        """
        while True:
            try:
                found = await attempt()
            except StorageUnavailable as error:
                self._wait_on(error)
            else:
                if self._is_told:
                    self._is_told = False
                    waited_s = time.monotonic() - self._begun_s
                    log.info("cluster.waited", seconds=round(waited_s, 1))
                return found
            await asyncio.sleep(RETRY_S)

    def _wait_on(self, error: StorageUnavailable) -> None:
        """Say why, unless it was long enough."""
        now_s = time.monotonic()
        waited_s = round(now_s - self._begun_s)
        if self._timeout_s and waited_s >= self._timeout_s:
            # Not retriable any more: whoever started us has to look.
            raise StorageError(
                f"{error.message} (waited {waited_s} s)",
                hint=error.hint or "is Kafka running? cluster.kafka",
            ) from error
        self._room.reason = f"it waits for Kafka: {error.message}"
        self._notifier.waiting(f"Waiting for Kafka: {error.message}", longer_s=LONGER_S)
        if not self._is_told or now_s - self._told_s >= TELL_S:
            self._is_told, self._told_s = True, now_s
            log.warning(
                "cluster.waiting",
                reason=error.message,
                hint=error.hint,
                waited_s=waited_s,
                gives_up_after_s=self._timeout_s or None,
            )
