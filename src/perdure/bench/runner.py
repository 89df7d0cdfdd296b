"""Runs clients on the loop and measures stretches of what they do.

A scenario says what happens; this knows how to connect many clients, let messages flow for a
time, wait for the last of them, and what the broker and the generator spent meanwhile.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterable, Sequence
from typing import Final, final

from perdure.bench.client import Client
from perdure.bench.errors import BenchError
from perdure.bench.ledger import Ledger
from perdure.bench.loop import Link, Loop, Pacing, Place, allow_files
from perdure.bench.meter import Meter
from perdure.bench.pacing import ClosedLoop, OpenLoop
from perdure.bench.publisher import Publisher
from perdure.bench.result import Phase, Totals
from perdure.bench.settings import Settings
from perdure.bench.stamp import Stream
from perdure.bench.stopwatch import Progress, Stopwatch, silent
from perdure.bench.subscriber import Subscriber
from perdure.bench.target import Target

CONNECTING_MAX: Final = 100
"""Connections being made at a time: no more than a listener's usual backlog."""
_STEP_NS: Final = 200_000_000
_STALL_S: Final = 60.0


@final
class Run:
    """One run of one scenario.

    Args:
        settings: what to do.
        target: whom to measure.
        progress: is told how far it is, a few times a second.

    Attributes:
        meter: what the clients count.
        places: of the nodes, where the broker is a cluster; else its own.
        warnings: what the reader of the figures should know.
    """

    def __init__(self, settings: Settings, target: Target, *, progress: Progress = silent) -> None:
        self.settings = settings
        self.target = target
        self.meter = Meter()
        self.warnings: list[str] = []
        self.sessions_lost = 0
        self._progress = progress
        self._loop = Loop(target.host, target.port)
        self.places = [_place(node) for node in settings.nodes] or [self._loop.place]
        self._streams = 0
        self._expected: list[tuple[Subscriber, list[Stream]]] = []
        self._publishers: list[Publisher] = []

    def close(self) -> None:
        """Close every connection."""
        self._loop.close()

    def stopwatch(self) -> Stopwatch:
        """Begin to measure."""
        return Stopwatch(
            self.meter,
            self.target.probe,
            nodes=self.target.node_probes,
            has_acks=self.settings.qos > 0,
            warnings=self.warnings,
            progress=self._progress,
        )

    # -- clients ---------------------------------------------------------------------------

    def stream(self, topic: str, *, retain: bool = False) -> Stream:
        """A new stream of the run's QoS and size."""
        settings = self.settings
        self._streams += 1
        return Stream(
            self._streams,
            topic,
            qos=settings.qos,
            version=settings.version,
            payload_size=settings.size,
            retain=retain,
        )

    def publisher(self, name: str, streams: list[Stream], *, node: int = 0) -> Link:
        """A publisher of some streams, at one of ``places``."""
        client = Publisher(
            f"{self.settings.root}-{name}",
            version=self.settings.version,
            streams=streams,
            tag=self.settings.tag,
            meter=self.meter,
            username=self.target.username,
            password=self.target.password,
        )
        self._publishers.append(client)
        return self.link(client, node=node)

    def link(self, client: Client, *, node: int = 0) -> Link:
        """A connection to one of ``places``, for a client."""
        return Link(client, self._loop, self.places[node])

    def subscriber(
        self,
        name: str,
        topic_filter: str,
        *,
        streams: list[Stream],
        follow: bool = False,
        group: Ledger | None = None,
        node: int = 0,
    ) -> Link:
        """A subscriber that should get all of some streams, or its group together; at one of
        ``places``."""
        client = Subscriber(
            f"{self.settings.root}-{name}",
            version=self.settings.version,
            filters=((topic_filter, self.settings.qos),),
            tag=self.settings.tag,
            meter=self.meter,
            clean=not self.settings.durable,
            username=self.target.username,
            password=self.target.password,
            follow=follow and self.settings.qos == 0,
            ledger=group,
        )
        self._expected.append((client, streams))
        return self.link(client, node=node)

    def connect(self, links: Sequence[Link], what: str) -> None:
        """Connect clients, a limited number at a time, until each is ready."""
        allow_files(self._loop.link_count + len(links))
        began = progressed = time.monotonic()
        waiting: list[Link] = []
        started = ready = 0
        reported = 0.0
        while ready < len(links):
            while started < len(links) and len(waiting) < CONNECTING_MAX:
                self._loop.connect(links[started])
                waiting.append(links[started])
                started += 1
            self._loop.turn(100_000_000)
            still = [link for link in waiting if not link.client.is_ready]
            now = time.monotonic()
            if len(still) < len(waiting):
                ready += len(waiting) - len(still)
                waiting, progressed = still, now
            elif now - progressed > _STALL_S:
                raise BenchError(f"{len(still)} clients got no answer for {_STALL_S:.0f} s")
            if now - reported > 0.2:
                reported = now
                rate = ready / (now - began) if now > began else 0.0
                self._progress(what, ready / len(links), f"{rate:,.0f} connections/s")

    def disconnect(self, links: Iterable[Link], *, abruptly: bool = False) -> None:
        """Let clients go, with DISCONNECT, and wait until the broker has closed too."""
        leaving = [link for link in links if link.is_open]
        for link in leaving:
            if abruptly:
                self._loop.drop(link)
                continue
            link.client.close()
            link.flush()
        deadline = time.monotonic() + self.settings.quiet_s
        while any(link.is_open for link in leaving) and time.monotonic() < deadline:
            self._loop.turn(10_000_000)
        for link in leaving:
            if link.is_open:
                self._loop.drop(link)

    def pause(self, links: Iterable[Link]) -> None:
        """Let clients that are connected read nothing more."""
        for link in links:
            self._loop.pause(link)

    def resume(self, links: Iterable[Link]) -> None:
        """Let them read on."""
        for link in links:
            self._loop.watch(link)

    def churn(self, clients: Sequence[Client], what: str) -> None:
        """Connect and disconnect clients, a few at a time."""
        links = [Link(client, self._loop) for client in clients]
        began = time.monotonic()
        for start in range(0, len(links), 500):
            some = links[start : start + 500]
            self.connect(some, what)
            self.disconnect(some)
            done = start + len(some)
            rate = done / (time.monotonic() - began)
            self._progress(what, done / len(links), f"{rate:,.0f} clients/s")

    def discard(self, links: Iterable[Link]) -> None:
        """Make the broker forget the sessions of clients, which are not connected."""
        clients = [
            Client(
                link.client.client_id,
                version=self.settings.version,
                username=self.target.username,
                password=self.target.password,
            )
            for link in links
        ]
        self.churn(clients, "clean up")

    # -- messages --------------------------------------------------------------------------

    def pacing(self, publishers: Sequence[Link], *, limit: int | None = None) -> Pacing:
        """How the run's settings let publishers publish."""
        settings = self.settings
        if settings.rate and limit is None:
            return OpenLoop(
                publishers, rate=settings.rate, window=settings.window_open, meter=self.meter
            )
        return ClosedLoop(publishers, window=settings.window, meter=self.meter, limit=limit)

    def flow(self, publishers: Sequence[Link], name: str, *, fan_out: int = 1) -> Phase:
        """Let messages flow: warm up, measure, stop, and wait for the last ones.

        Args:
            fan_out: how many subscribers get each message; the broker's CPU is counted for each
                delivery if it is more than one.
        """
        settings = self.settings
        pacing = self.pacing(publishers)
        gc.collect()
        gc.freeze()
        gc.disable()
        try:
            self._loop.pacing = pacing
            pacing.start(time.monotonic_ns())
            self._spin(pacing, settings.warmup_s, f"{name}: warm up")
            watch = self.stopwatch()
            self._spin(pacing, settings.duration_s, name, watch)
            phase = watch.stop(name, fan_out=fan_out)
        finally:
            gc.enable()
            gc.unfreeze()
        pacing.stop()
        self.drain(pacing, f"{name}: wait for the last")
        self._loop.pacing = None
        return phase

    def pump(self, publishers: Sequence[Link], name: str, *, each: int) -> Phase:
        """Publish ``each`` messages from every publisher as fast as the window allows."""
        pacing = ClosedLoop(publishers, window=self.settings.window, meter=self.meter, limit=each)
        goal = self.meter.acked + self.meter.refused + each * len(publishers)
        start = self.meter.acked
        self._loop.pacing = pacing
        watch = self.stopwatch()
        pacing.start(time.monotonic_ns())
        progressed, seen = time.monotonic(), -1
        while self.meter.acked + self.meter.refused < goal:
            if self.settings.qos == 0 and self.meter.sent >= goal:
                break
            self._turn(pacing, _STEP_NS)
            if self.meter.acked != seen:
                progressed, seen = time.monotonic(), self.meter.acked
            elif time.monotonic() - progressed > _STALL_S:
                raise BenchError(f"no acknowledgement for {_STALL_S:.0f} s")
            share = (self.meter.acked - start) / max(1, goal - start)
            watch.tick(name, share)
        phase = watch.stop(name)
        self._loop.pacing = None
        return phase

    def drain(self, pacing: Pacing | None, what: str) -> None:
        """Wait until everything sent was acknowledged and received, or nothing comes any more."""
        quiet_since, seen = time.monotonic(), (-1, -1)
        while True:
            if not any(p.inflight or p.waiting for p in self._publishers) and not self.missing():
                return
            progress = (self.meter.acked, self.meter.received)
            now = time.monotonic()
            if progress != seen:
                quiet_since, seen = now, progress
            elif now - quiet_since > self.settings.quiet_s:
                return
            self._progress(what, 1.0, f"{self.missing():,} missing")
            until = time.monotonic_ns() + 20_000_000
            while time.monotonic_ns() < until:
                self._turn(pacing, 5_000_000)

    def collect(self, links: Sequence[Link], name: str) -> Phase:
        """Connect subscribers whose sessions hold messages, and take all of them."""
        before, received = self.missing(), self.meter.received
        watch = self.stopwatch()
        self.connect(links, f"{name}: connect")
        connected = watch.seconds
        quiet_since, seen = time.monotonic(), -1
        # To look for what is missing costs; to count what came does not.
        while self.meter.received - received < before or self.missing():
            self._turn(None, 2_000_000)
            now = time.monotonic()
            if self.meter.received != seen:
                quiet_since, seen = now, self.meter.received
            elif now - quiet_since > self.settings.quiet_s:
                watch.exclude(now - quiet_since)
                break
            watch.tick(name, (self.meter.received - received) / max(1, before))
        phase = watch.stop(name, deliveries=True)
        phase.delivery = None  # how long a message waited for its client says nothing
        phase.extra["connected_s"] = round(connected, 4)
        return phase

    def missing(self) -> int:
        """Messages that were made and that subscribers have not got."""
        return sum(
            subscriber.ledger.missing(stream.number, stream.counter)
            for subscriber, streams in self._expected
            for stream in streams
        )

    def totals(self) -> Totals:
        """The run's balance."""
        meter = self.meter
        ledgers = {id(client.ledger): client.ledger for client, _ in self._expected}.values()
        unacknowledged = sum(len(p.inflight) + len(p.waiting) for p in self._publishers)
        # What the broker never acknowledged it may have dropped.
        readers = max((len(self._readers(p)) for p in self._publishers), default=0)
        excused = (unacknowledged + meter.refused) * max(1, readers)
        return Totals(
            sent=meter.sent,
            acked=meter.acked,
            refused=meter.refused,
            received=meter.received,
            lost=max(0, self.missing() - excused),
            repeated=sum(ledger.repeated for ledger in ledgers),
            out_of_order=sum(ledger.out_of_order for ledger in ledgers),
            foreign=meter.foreign,
            unacknowledged=unacknowledged,
            sessions_lost=self.sessions_lost,
        )

    def _readers(self, publisher: Publisher) -> list[Subscriber]:
        first = publisher.streams[0]
        return [subscriber for subscriber, streams in self._expected if first in streams]

    def sleep(self, seconds: float, what: str) -> None:
        """Let time pass while connections are served."""
        begun = time.monotonic()
        while (passed := time.monotonic() - begun) < seconds:
            self._progress(what, passed / seconds, "")
            self._turn(None, 50_000_000)

    def is_closing(self, closing: bool) -> None:
        """Whether the broker is being stopped, so that connections may end."""
        self._loop.is_closing = closing

    def _spin(
        self, pacing: Pacing, seconds: float, what: str, watch: Stopwatch | None = None
    ) -> None:
        begun = time.monotonic_ns()
        end = begun + int(seconds * 1e9)
        reported = 0
        while (now := time.monotonic_ns()) < end:
            if now - reported > _STEP_NS:
                reported = now
                share = (now - begun) / (end - begun)
                if watch is None:
                    self._progress(what, share, "")
                else:
                    watch.tick(what, share)
            self._turn(pacing, min(end - now, _STEP_NS))

    def _turn(self, pacing: Pacing | None, wait_ns: int) -> None:
        if pacing is not None:
            wait_ns = min(wait_ns, pacing.tick(time.monotonic_ns()))
        self._loop.turn(wait_ns)


def _place(node: str) -> Place:
    host, _, port = node.rpartition(":")
    return Place(host.strip("[]"), int(port))
