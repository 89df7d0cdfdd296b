"""The order of starting and stopping, and what ends the broker.

::

    parts start in order -> jobs -> listeners open -> slow parts settle -> READY
    signal -> STOPPING -> listeners stop accepting -> DISCONNECT 0x8B to every client
           (a node of a cluster sends them to other nodes before)
           -> wait for them (bounded) -> jobs end -> parts stop in reverse order (storage last)

It knows parts, jobs and listeners, not what they are. Invariants: a client is served only after
every part has started (what one does beside the broker may take longer: ``Settling``); a part is
stopped exactly once if its start was begun and returned; nothing is stopped while something that
was started after it still runs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, Literal, Protocol, TypeAlias, final, runtime_checkable

from perdure.errors import PerdureError
from perdure.mqtt.reason_codes import SERVER_SHUTTING_DOWN
from perdure.net.listener import Listener
from perdure.observe.logs import get_logger
from perdure.server import collector
from perdure.server.listeners import open_listeners
from perdure.server.signals import Signals
from perdure.server.systemd import Notifier

log = get_logger("server")

DRAIN_TIMEOUT_S: Final = 30.0
"""Time for clients to take their leave; service managers kill after 90 s by default."""


class Part(Protocol):
    """Something that is started before clients are served and stopped after them."""

    @property
    def name(self) -> str:
        """For the log."""
        ...

    async def start(self) -> None:
        """Make it ready; what it raises ends the broker's start."""
        ...

    async def stop(self) -> None:
        """Flush and let go."""
        ...


@runtime_checkable
class Settling(Part, Protocol):
    """A part that goes on starting while clients are served already."""

    async def settle(self) -> None:
        """Wait until that is done; what it raises ends the broker."""
        ...


Job: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
"""A task that runs while clients are served; if it raises, the broker stops."""

Phase: TypeAlias = Literal["starting", "serving", "stopping"]

Handover: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
"""Takes leave of clients in its own way; who is connected after it is disconnected as ever."""

Reload: TypeAlias = Callable[[], None]
"""Takes new certificates or settings; a ``PerdureError`` leaves the old ones in force."""


@final
class Lifecycle:
    """Runs a broker from its first part to its last.

    Args:
        parts: in the order in which they start.
        listeners: opened after all parts, closed before any.
        jobs: background tasks by name.
        reloads: called in order on SIGHUP, by name.
        notifier: the service manager, if there is one.
        drain_timeout_s: how long clients may take to go.
        on_ready: called once when clients can connect.
        handover: comes first when clients are to go, within ``drain_timeout_s``.

    Attributes:
        phase: whether clients can connect already, and still.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        listeners: Sequence[Listener],
        *,
        jobs: Mapping[str, Job] | None = None,
        reloads: Mapping[str, Reload] | None = None,
        notifier: Notifier | None = None,
        drain_timeout_s: float = DRAIN_TIMEOUT_S,
        on_ready: Callable[[], None] | None = None,
        handover: Handover | None = None,
    ) -> None:
        self._parts = list(parts)
        self._listeners = list(listeners)
        self._jobs = dict(jobs or {})
        self._reloads = dict(reloads or {})
        self._notifier = notifier or Notifier()
        self._drain_timeout_s = drain_timeout_s
        self._on_ready = on_ready
        self._handover = handover
        self._started: list[Part] = []
        self.phase: Phase = "starting"

    async def run(self) -> None:
        """Start, serve until a signal asks to stop, and stop.

        Raises:
            PerdureError: a part or a listener could not be started, or a part not be stopped.
            Exception: what a job raised; everything was stopped nevertheless.
        """
        with Signals(reload=self.reload) as signals:
            try:
                await self._start_parts(signals.stopping)
                if not signals.stopping.is_set():
                    # Nobody is accepted before the next turn of the loop, when all jobs exist.
                    open_listeners(self._listeners)
                    await self._serve(signals.stopping)
            except BaseExceptionGroup as group:
                if len(group.exceptions) > 1:
                    raise
                raise group.exceptions[0] from None
            finally:
                await self._stop()

    def reload(self) -> dict[str, str]:
        """Run the reload hooks; one that fails is reported and the others still run.

        Returns:
            What failed by name, and why.
        """
        failed: dict[str, str] = {}
        self._notifier.reloading(monotonic_us=time.monotonic_ns() // 1000)
        for name, hook in self._reloads.items():
            try:
                hook()
            except PerdureError as exc:
                failed[name] = exc.message
                log.error(
                    "server.reload_failed",
                    part=name,
                    error=exc.message,
                    hint=exc.hint,
                    kept="what was in force",
                )
            except Exception as exc:  # noqa: BLE001 - a reload costs nobody what runs
                failed[name] = repr(exc)
                log.error(
                    "server.reload_failed", part=name, error=repr(exc), kept="what was in force"
                )
            else:
                log.info("server.reloaded", part=name)
        self._notifier.ready("Serving")
        return failed

    async def _start_parts(self, stopping: asyncio.Event) -> None:
        for part in self._parts:
            if stopping.is_set():
                return
            await part.start()
            self._started.append(part)
            log.debug("server.part_started", part=part.name)

    async def _serve(self, stopping: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(job(), name=name) for name, job in self._jobs.items()]
            if self._notifier.watchdog_interval_s:
                tasks.append(group.create_task(self._keep_watchdog(), name="watchdog"))
            collector.settle()
            self.phase = "serving"
            for part in self._started:
                if isinstance(part, Settling):
                    await part.settle()
            self._notifier.ready("Serving")
            log.info("server.started", listeners=len(self._listeners))
            if self._on_ready is not None:
                self._on_ready()
            await stopping.wait()
            self.phase = "stopping"
            self._notifier.stopping("Disconnecting clients")
            await self._drain()
            for task in tasks:
                task.cancel()

    async def _drain(self) -> None:
        """Take leave of all clients; those that do not go in time are cut off by ``_stop``."""
        for listener in self._listeners:
            listener.stop_accepting()
        connections = sum(listener.connections for listener in self._listeners)
        try:
            async with asyncio.timeout(self._drain_timeout_s):
                if self._handover is not None:
                    await self._handover()
                for listener in self._listeners:
                    await listener.close_connections(SERVER_SHUTTING_DOWN)
                for listener in self._listeners:
                    await listener.wait_idle()
        except TimeoutError:
            left = sum(listener.connections for listener in self._listeners)
            log.warning("server.drain_incomplete", connections=connections, left=left)
        else:
            log.info("server.drained", connections=connections)

    async def _stop(self) -> None:
        """Close what is open, last started first; a part that fails does not keep the others."""
        for listener in self._listeners:
            await listener.close()
        failures: list[Exception] = []
        while self._started:
            part = self._started.pop()
            try:
                await part.stop()
            except Exception as exc:  # noqa: BLE001 - storage must be closed whatever broke above
                log.error("server.part_failed_to_stop", part=part.name, error=repr(exc))
                failures.append(exc)
            else:
                log.debug("server.part_stopped", part=part.name)
        log.info("server.stopped")
        if failures:
            raise failures[0]

    async def _keep_watchdog(self) -> None:
        """Prove to the service manager that the loop turns."""
        while True:
            self._notifier.alive()
            await asyncio.sleep(self._notifier.watchdog_interval_s)
