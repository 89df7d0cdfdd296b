"""The traces that run, what they have seen, and the connections that they listen to.

A trace listens between a transport and its connection (``tap``). Where none runs, nothing stands
there: a connection that is opened meanwhile is made without a tap, and taps of open ones are taken
out when the last trace has ended.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol, final

from perdure.admin.problems import Refused
from perdure.admin.records.trace import TraceEvent, TraceKind, TraceRow
from perdure.broker.delivery.registry import Registry
from perdure.broker.runtime.stream import (
    ByteStream,
    ConnectionFactory,
    PeerInfo,
    StreamHandler,
)
from perdure.clock import SystemClock
from perdure.config.units import format_time
from perdure.observe.logs import get_logger
from perdure.server.trace.tap import Tap
from perdure.topic.matching import matches

log = get_logger("trace")

RUNNING_MAX: Final = 4
KEPT_MAX: Final = 16
"""Traces that are remembered, those that run among them."""
EVENTS_MAX: Final = 10_000
"""Events of a trace; the oldest go."""
TAPS_MAX: Final = 1_000
"""Connections that traces listen to: each costs its decoding once more."""
TICK_S: Final = 0.5


class TappedShell(Protocol):
    """A transport whose handler may be replaced."""

    handler: StreamHandler


@final
class Trace:
    """One trace.

    Args:
        kind, value: a client identifier, or a topic filter.
        begun_us, until_us: wall time.
        payloads: whether the beginnings of payloads are kept.
    """

    def __init__(
        self, kind: TraceKind, value: str, *, begun_us: int, until_us: int, payloads: bool
    ) -> None:
        self.id = secrets.token_hex(4)
        self.kind: TraceKind = kind
        self.value = value
        self.begun_us = begun_us
        self.until_us = until_us
        self.payloads = payloads
        self.running = True
        self.count = 0
        self.events: deque[TraceEvent] = deque(maxlen=EVENTS_MAX)

    def wants(self, client_id: str, topic: str) -> bool:
        """Whether an event belongs to it."""
        if self.kind == "client":
            return client_id == self.value
        return bool(topic) and matches(self.value, topic)

    def row(self) -> TraceRow:
        """As administrators see it."""
        return TraceRow(
            id=self.id,
            kind=self.kind,
            value=self.value,
            running=self.running,
            payloads=self.payloads,
            begun_at=format_time(self.begun_us),
            begun_at_us=self.begun_us,
            until=format_time(self.until_us),
            until_us=self.until_us,
            events=self.count,
            lost=self.count - len(self.events),
        )


@final
class Traces:
    """All traces of a broker.

    Args:
        registry: the connected sessions.
        clock: wall time.

    Attributes:
        shells: gives the transports that are open.
    """

    def __init__(self, registry: Registry, clock: SystemClock) -> None:
        self._registry = registry
        self._clock = clock
        self._traces: dict[str, Trace] = {}
        self._taps: set[Tap] = set()
        self._dropped: dict[str, int] = {}
        self.shells: Callable[[], Iterable[Any]] = tuple

    def running(self) -> list[Trace]:
        """Those that run."""
        return [trace for trace in self._traces.values() if trace.running]

    def all(self) -> list[Trace]:
        """Those that are remembered, oldest first."""
        return list(self._traces.values())

    def get(self, trace_id: str) -> Trace:
        """One of them.

        Raises:
            Refused: there is none by that name.
        """
        trace = self._traces.get(trace_id)
        if trace is None:
            raise Refused("not_found", f"there is no trace {trace_id!r}")
        return trace

    def start(self, kind: TraceKind, value: str, *, seconds: int, payloads: bool) -> Trace:
        """Begin to listen.

        Raises:
            Refused: too many run, or there are too many connections to listen to.
        """
        if len(self.running()) >= RUNNING_MAX:
            raise Refused(
                "conflict",
                f"{RUNNING_MAX} traces run already",
                hint="perdure trace list, and perdure trace stop",
            )
        shells = [shell for shell in self.shells() if self._is_wanted(shell, kind, value)]
        if len(self._taps) + len(shells) > TAPS_MAX:
            raise Refused(
                "conflict",
                f"{len(shells)} clients are connected, and a trace listens to {TAPS_MAX} at most",
                hint="trace one client: perdure trace client",
            )
        now_us = self._clock.now_us()
        until_us = now_us + seconds * 1_000_000
        trace = Trace(kind, value, begun_us=now_us, until_us=until_us, payloads=payloads)
        while len(self._traces) >= KEPT_MAX:
            oldest = next(each for each in self._traces.values() if not each.running)
            del self._traces[oldest.id]
        self._traces[trace.id] = trace
        for shell in shells:
            self._taps.add(Tap.on_open(self, shell))
        log.warning("trace.started", id=trace.id, kind=kind, value=value, seconds=seconds)
        return trace

    def stop(self, trace: Trace) -> None:
        """End a trace; what it has seen is kept."""
        if not trace.running:
            return
        trace.running = False
        log.info("trace.ended", id=trace.id, events=trace.count)
        if not self.running():
            for tap in list(self._taps):
                tap.detach()
            self._taps.clear()
            self._dropped.clear()

    def factory(self, inner: ConnectionFactory) -> ConnectionFactory:
        """Makes connections as another factory does, with a tap while a trace runs."""

        def make(stream: ByteStream, peer: PeerInfo) -> StreamHandler:
            if not self.running() or len(self._taps) >= TAPS_MAX:
                return inner(stream, peer)
            tap = Tap(self, stream)
            tap.handler = inner(tap, peer)
            self._taps.add(tap)
            return tap

        return make

    def forget(self, tap: Tap) -> None:
        """Its connection has ended, or is none that a trace wants."""
        self._taps.discard(tap)

    def wants_client(self, client_id: str) -> bool:
        """Whether anything of a client may belong to a trace."""
        return any(trace.kind == "topic" or trace.value == client_id for trace in self.running())

    def record(
        self, client_id: str, event: str, topic: str, payload: bytes | None, fields: dict[str, Any]
    ) -> None:
        """Keep an event for the traces that want it."""
        now_us = self._clock.now_us()
        for trace in self.running():
            if trace.until_us <= now_us:
                self.stop(trace)
            elif trace.wants(client_id, topic):
                shown = None
                if payload is not None and trace.payloads:
                    shown = payload[:PAYLOAD_BYTES_MAX].decode("utf-8", "backslashreplace")
                trace.count += 1
                trace.events.append(
                    TraceEvent(
                        number=trace.count,
                        at=format_time(now_us),
                        at_us=now_us,
                        client_id=client_id,
                        event=event,
                        topic=topic or None,
                        payload_bytes=None if payload is None else len(payload),
                        payload=shown,
                        **fields,
                    )
                )

    async def run(self) -> None:
        """End traces whose time is over, and tell of drops, for ever."""
        while True:
            await asyncio.sleep(TICK_S)
            self.tick()

    def tick(self) -> None:
        """One look."""
        now_us = self._clock.now_us()
        for trace in self.running():
            if trace.until_us <= now_us:
                self.stop(trace)
            elif trace.kind == "client":
                session = self._registry.live.get(trace.value)
                dropped = session.record.dropped_count if session is not None else 0
                before = self._dropped.setdefault(trace.value, dropped)
                if dropped > before:
                    told = {"detail": f"{dropped - before} messages, by a limit of the session"}
                    self.record(trace.value, "dropped", "", None, told)
                self._dropped[trace.value] = dropped

    def _is_wanted(self, shell: Any, kind: TraceKind, value: str) -> bool:
        session = getattr(shell.handler, "session", None)
        if session is None:  # not connected yet, or listened to already
            return False
        return kind == "topic" or session.client_id == value


PAYLOAD_BYTES_MAX: Final = 256
"""Of each payload that is shown, where payloads are asked for."""
