"""Runs clients on the loop and measures stretches of what they do.

A scenario says what happens; this knows how to connect many clients, let messages flow for a
time, wait for the last of them, and what the broker and the generator spent meanwhile.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final, final

from perdure.bench.client import Client
from perdure.bench.errors import BenchError
from perdure.bench.loop import Link, Loop, Pacing, allow_files
from perdure.bench.meter import Meter
from perdure.bench.pacing import ClosedLoop, OpenLoop
from perdure.bench.process import BrokerProcess, ProcessProbe, machine_cpu_s
from perdure.bench.publisher import Publisher
from perdure.bench.result import Latency, Phase, Totals
from perdure.bench.settings import Settings
from perdure.bench.stamp import Stream
from perdure.bench.subscriber import Subscriber

CONNECTING_MAX: Final = 100
"""Connections being made at a time: no more than a listener's usual backlog."""
GENERATOR_LIMIT: Final = 0.9
"""Share of a core from which on the generator may be what limits a closed loop."""
OTHERS_LIMIT: Final = 0.25
"""Share of a core from which on other processes disturb the figures."""
_STEP_NS: Final = 200_000_000
_STALL_S: Final = 60.0

Progress = Callable[[str, float, str], None]
"""(what goes on, how much of it is done from 0 to 1, a few words)."""


def _silent(what: str, done: float, detail: str) -> None:
    """Tell nobody."""


@final
class Target:
    """The broker to measure.

    Args:
        host, port: where it listens.
        process: the one that the tool started; it can be restarted.
        pid: of a broker that runs already.
        username, password: for every client.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        process: BrokerProcess | None = None,
        pid: int | None = None,
        username: str | None = None,
        password: bytes | None = None,
    ) -> None:
        self.host = host
        self.port = port
        self.process = process
        self.username = username
        self.password = password
        self._pid = pid
        self.probe = self._new_probe()

    def restart(self) -> float:
        """Kill the broker and start it again; returns the seconds until it listened."""
        if self.process is None:
            raise BenchError("only a broker that the tool started can be restarted")
        seconds = self.process.restart(kill=True)
        self.probe = self._new_probe()
        return seconds

    def _new_probe(self) -> ProcessProbe | None:
        pid = self.process.pid if self.process else self._pid
        return None if pid is None else ProcessProbe(pid)


@final
class Run:
    """One run of one scenario.

    Args:
        settings: what to do.
        target: whom to measure.
        progress: is told how far it is, a few times a second.

    Attributes:
        meter: what the clients count.
        warnings: what the reader of the figures should know.
    """

    def __init__(self, settings: Settings, target: Target, *, progress: Progress = _silent) -> None:
        self.settings = settings
        self.target = target
        self.meter = Meter()
        self.warnings: list[str] = []
        self.sessions_lost = 0
        self._progress = progress
        self._loop = Loop(target.host, target.port)
        self._streams = 0
        self._expected: list[tuple[Subscriber, list[Stream]]] = []
        self._publishers: list[Publisher] = []

    def close(self) -> None:
        """Close every connection."""
        self._loop.close()

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

    def publisher(self, name: str, streams: list[Stream]) -> Link:
        """A publisher of some streams."""
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
        return Link(client, self._loop)

    def subscriber(
        self, name: str, topic_filter: str, *, streams: list[Stream], follow: bool = False
    ) -> Link:
        """A subscriber that should get all of some streams."""
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
        )
        self._expected.append((client, streams))
        return Link(client, self._loop)

    def connect(self, links: Sequence[Link], what: str) -> None:
        """Connect clients, a limited number at a time, until each is ready."""
        allow_files(self._loop.link_count + len(links))
        began = progressed = time.monotonic()
        waiting: list[Link] = []
        started = ready = 0
        told = 0.0
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
            if now - told > 0.2:
                told = now
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
            watch = Stopwatch(self)
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
        watch = Stopwatch(self)
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
        watch = Stopwatch(self)
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
        meter, ledgers = self.meter, [subscriber.ledger for subscriber, _ in self._expected]
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

    def tell(self, what: str, done: float, detail: str) -> None:
        """Tell how far the run is."""
        self._progress(what, done, detail)

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
        told = 0
        while (now := time.monotonic_ns()) < end:
            if now - told > _STEP_NS:
                told = now
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


@final
class Stopwatch:
    """Measures from its making to ``stop``."""

    def __init__(self, run: Run) -> None:
        self._run = run
        run.meter.reset_latencies()
        self._probe = run.target.probe
        self._excluded = 0.0
        self._acked, self._received = run.meter.acked, run.meter.received
        self._series: list[tuple[float, float, float]] = []
        self._last = (0.0, self._acked, self._received)
        self._cpu = self._probe.cpu_s() if self._probe else 0.0
        self._own_cpu = time.process_time()
        self._machine_cpu = machine_cpu_s()
        self._begun = time.monotonic()

    @property
    def seconds(self) -> float:
        """Since it was made."""
        return time.monotonic() - self._begun - self._excluded

    def exclude(self, seconds: float) -> None:
        """Do not count time in which nothing happened."""
        self._excluded += seconds

    def tick(self, what: str, share: float) -> None:
        """Note a point of the series, at most five a second, and tell the progress."""
        at, acked, received = self._last
        now = self.seconds
        if now - at < 0.2:
            return
        meter = self._run.meter
        rate_in, rate_out = (
            (meter.acked - acked) / (now - at),
            (meter.received - received) / (now - at),
        )
        self._series.append((round(now, 2), round(rate_in, 1), round(rate_out, 1)))
        self._last = (now, meter.acked, meter.received)
        self._run.tell(what, share, f"{rate_in:,.0f} in/s, {rate_out:,.0f} out/s")

    def stop(
        self, name: str, *, done: int | None = None, fan_out: int = 1, deliveries: bool = False
    ) -> Phase:
        """What happened since.

        Args:
            name: of the phase.
            done: operations; None = acknowledged messages (QoS 0: none are).
            fan_out: deliveries of each message.
            deliveries: the operations are deliveries.
        """
        run = self._run
        seconds = self.seconds
        own = time.process_time() - self._own_cpu
        delivered = run.meter.received - self._received
        if deliveries:
            done = delivered
        elif done is None:
            done = run.meter.acked - self._acked if run.settings.qos else delivered
        phase = Phase(
            name=name,
            seconds=round(seconds, 4),
            done=done,
            done_per_s=round(done / seconds, 1),
            delivered=delivered,
            delivered_per_s=round(delivered / seconds, 1),
            ack=Latency.of(run.meter.ack_ns),
            delivery=Latency.of(run.meter.delivery_ns),
            generator_cpu_share=round(own / seconds, 3),
            series=self._series,
        )
        if run.meter.late_ns.count:
            phase.late_p99_ms = round(run.meter.late_ns.percentile(99) / 1e6, 4)
        if self._probe is not None:
            cpu = self._probe.cpu_s() - self._cpu
            counted = delivered if fan_out > 1 else done
            phase.broker_cpu_s = round(cpu, 3)
            phase.broker_cpu_share = round(cpu / seconds, 3)
            phase.cpu_s_per_million = round(cpu / counted * 1e6, 3) if counted else None
            others = machine_cpu_s() - self._machine_cpu - cpu - own
            phase.others_cpu_share = round(max(0.0, others) / seconds, 3)
            phase.memory_bytes, phase.memory_peak_bytes = self._probe.memory_bytes()
        self._warn(phase)
        return phase

    def _warn(self, phase: Phase) -> None:
        run, share = self._run, phase.generator_cpu_share
        others = phase.others_cpu_share
        if others is not None and others > OTHERS_LIMIT:
            run.warnings.append(
                f"{phase.name}: other processes used {others:.0%} of a core: rates and latencies "
                "are worse than they would be alone"
            )
        if share < GENERATOR_LIMIT:
            return
        if phase.broker_cpu_share is not None and phase.broker_cpu_share > share:
            return
        run.warnings.append(
            f"{phase.name}: the generator used {share:.0%} of a core: it may be the limit, and the "
            "broker faster than this"
        )
