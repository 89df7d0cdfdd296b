"""A node of a cluster as a part of the process's life: opened, kept alive, left.

While Kafka takes nothing the node is not ready and reads little more; after ``storage.outage_max``
its clients are sent away. It goes on by itself when Kafka is there again.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from typing import Final, final

from perdure.broker.broker import Broker
from perdure.config.schema import Config
from perdure.config.schema.cluster import ClusterConfig
from perdure.mqtt.reason_codes import SERVER_SHUTTING_DOWN, USE_ANOTHER_SERVER
from perdure.observe.logs import get_logger
from perdure.observe.metrics import Metrics
from perdure.server.log_clock import LogClock
from perdure.storage.ordered.replica import Replica

log = get_logger("cluster")

BEAT_S: Final = 1.0
"""Time between two heartbeats while there is nothing else to say, seconds."""

STALLED_S: Final = 3.0
"""A node that has waited so long for the log is not ready."""

LAG_MAX: Final = 10_000
"""Records that a node may be behind and still be ready."""

LEAVE_S: Final = 10.0
"""How long a stop waits for the log to take what is left."""

SEND_ON_TICK_S: Final = 0.05
SEND_ON_TICK_MIN: Final = 50
"""Clients that are sent to other nodes in one tick, at least: 1,000/s."""

SEND_ON_S: Final = 10.0
"""Time in which a node that stops sends all its clients to others, so that no other is overrun."""


def topic_of(cluster: ClusterConfig) -> str:
    """The topic that has the cluster's log."""
    return f"perdure.{cluster.name}.log"


@final
class LoopEntry:
    """How the log's thread reaches the loop: as asyncio has it, until there is a scheduler.

    Args:
        to_loop: has something run on the loop, in order, from any thread.

    Attributes:
        to_loop: as given; replaced by ``LoopScheduler.hand``.
    """

    def __init__(self, to_loop: Callable[[Callable[[], object]], object]) -> None:
        self.to_loop = to_loop

    def __call__(self, call: Callable[[], object]) -> None:
        self.to_loop(call)


@final
class ClusterStore:
    """A node's store and its end of the log.

    Attributes:
        database: what the broker is given.
        clock: the cluster's time.
        entry: of the log's thread to the loop.
        stalled_s: how long the node has waited for the log, seconds; 0 = it does not.
    """

    def __init__(
        self, database: Replica, clock: LogClock, config: Config, entry: LoopEntry
    ) -> None:
        self.database = database
        self.clock = clock
        self.entry = entry
        self.stalled_s = 0.0
        self._config = config
        self._metrics: Metrics | None = None
        self._beat = (0, 0.0)
        database.peers.on_time = self._heard
        database.peers.on_applied = self._applied

    async def close(self) -> None:
        """Leave the cluster in order, if the log still takes records, and close."""
        try:
            if not self.database.has_failed:
                async with asyncio.timeout(LEAVE_S):
                    await self.database.leave()
        except TimeoutError:
            log.warning("cluster.left_unsaid", hint="the others take the node for dead in a while")
        finally:
            await self.database.shut()
            self.database.close()

    @property
    def problem(self) -> str:
        """Why clients should not come to this node; empty = they may."""
        database = self.database
        if database.has_failed:
            return "this node is no member of the cluster now"
        if self.stalled_s >= STALLED_S:
            reason = database.problem
            return f"Kafka has taken nothing for {self.stalled_s:.0f} s" + (
                f": {reason}" if reason else ""
            )
        if database.lag > LAG_MAX:
            return f"this node is {database.lag} records behind"
        return ""

    async def keep(self, broker: Broker, metrics: Metrics) -> None:
        """Beat, watch the log, and send clients away when it is away for too long; for ever."""
        self._metrics = metrics
        dead_after_us = self._config.cluster.dead_after * 1_000_000
        last = (0, time.monotonic())
        was_ready = True
        while True:
            await asyncio.sleep(BEAT_S)
            database, now_s = self.database, time.monotonic()
            if not database.has_failed:
                if not database.flying_count:
                    self._beat = (database.returned_count + 1, now_s)
                database.beat(dead_after_us=dead_after_us)
            if database.returned_count != last[0] or not database.flying_count:
                last = (database.returned_count, now_s)
            self.stalled_s = now_s - last[1] if database.flying_count else 0.0
            self._show(metrics)
            problem = self.problem
            if bool(problem) == was_ready:
                was_ready = not problem
                if problem:
                    log.error("cluster.not_ready", reason=problem)
                else:
                    log.info("cluster.ready")
            if self.stalled_s >= self._config.storage.outage_max:
                _send_away(broker)

    async def send_on(self, broker: Broker) -> None:
        """Send clients of 5.0 to the other members in turn, as far as those say where they are.

        Clients of 3.1.1 are closed. Without a member that says where it is nobody is sent.
        """
        ids = list(broker.services.registry.live)
        burst = max(SEND_ON_TICK_MIN, math.ceil(len(ids) * SEND_ON_TICK_S / SEND_ON_S))
        sent = 0
        for at in range(0, len(ids), burst):
            places = self.database.peers.others()  # who has gone meanwhile takes nobody
            if not places:
                break
            if at:
                await asyncio.sleep(SEND_ON_TICK_S)
            for client_id in ids[at : at + burst]:
                session = broker.services.registry.live.get(client_id)
                if session is not None:
                    session.connection.disconnect(
                        USE_ANOTHER_SERVER,
                        "this node stops",
                        send_will=True,
                        server_reference=places[sent % len(places)],
                    )
                    sent += 1
        if sent:
            log.info(
                "cluster.clients_sent_on", clients=sent, left=len(broker.services.registry.live)
            )

    def _heard(self, time_us: int) -> None:
        self.clock.heard(time_us)
        number, at_s = self._beat
        if number and self.database.returned_count >= number:
            self._beat = (0, 0.0)
            if self._metrics is not None:
                self._metrics.cluster_log_seconds.observe(
                    round((time.monotonic() - at_s) * 1_000_000)
                )

    def _applied(self, messages: int, cpu_us: int) -> None:
        if self._metrics is not None:
            self._metrics.cluster_applied_messages += messages
            self._metrics.cluster_apply_cpu_seconds.observe(cpu_us)

    def _show(self, metrics: Metrics) -> None:
        database = self.database
        metrics.cluster_members = len(database.members.current())
        metrics.cluster_lag = database.lag
        metrics.cluster_position = database.view.position
        metrics.cluster_in_flight = database.flying_count
        metrics.cluster_stalled_seconds = int(self.stalled_s)


def _send_away(broker: Broker) -> None:
    sessions = list(broker.services.registry.live.values())
    if sessions:
        log.warning("cluster.clients_sent_away", clients=len(sessions))
    for session in sessions:
        session.connection.disconnect(SERVER_SHUTTING_DOWN, "the log is away", send_will=True)
