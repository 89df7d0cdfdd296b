"""What a run found: plain records, written as JSON and read again by reports."""

from __future__ import annotations

from typing import final

import msgspec

from perdure.bench.histogram import Histogram
from perdure.bench.settings import Settings

_CURVE_POINTS_MAX = 200


@final
class Latency(msgspec.Struct, frozen=True):
    """Percentiles of a histogram, milliseconds.

    Attributes:
        curve: (milliseconds, share of the values up to it), for plots.
    """

    count: int
    mean_ms: float
    p50_ms: float
    p90_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float
    curve: list[tuple[float, float]] = []

    @classmethod
    def of(cls, histogram: Histogram) -> Latency | None:
        """From a histogram of nanoseconds; None if it is empty."""
        if not histogram.count:
            return None

        def at(percent: float) -> float:
            return round(histogram.percentile(percent) / 1e6, 4)

        curve = [(round(value / 1e6, 4), round(share, 6)) for value, share in histogram.curve()]
        step = -(-len(curve) // _CURVE_POINTS_MAX)
        thinned = curve[::step]
        if thinned[-1] != curve[-1]:
            thinned.append(curve[-1])
        return cls(
            histogram.count,
            round(histogram.mean / 1e6, 4),
            at(50),
            at(90),
            at(99),
            at(99.9),
            round(histogram.high / 1e6, 4),
            thinned,
        )


@final
class Phase(msgspec.Struct, kw_only=True):
    """One measured stretch of a run.

    Attributes:
        name: what happened.
        seconds: how long.
        done: operations: acknowledged messages, or connections.
        done_per_s: of them per second.
        delivered, delivered_per_s: messages that subscribers got.
        ack, delivery: latencies; None where nothing was measured.
        late_p99_ms: open loop: how late the generator sent.
        broker_cpu_s: CPU seconds of the broker; None if its process is not known.
        broker_cpu_share: of one core.
        cpu_s_per_million: for each million operations, or for each million delivered where one
            message goes to many.
        memory_bytes, memory_peak_bytes: of the broker, at the end.
        generator_cpu_share: of one core.
        others_cpu_share: cores that neither the broker nor the generator used; None if the broker
            is not known.
        extra: what only this phase has.
        series: (second, done per second, delivered per second), for plots.
    """

    name: str
    seconds: float
    done: int
    done_per_s: float
    delivered: int = 0
    delivered_per_s: float = 0.0
    ack: Latency | None = None
    delivery: Latency | None = None
    late_p99_ms: float | None = None
    broker_cpu_s: float | None = None
    broker_cpu_share: float | None = None
    cpu_s_per_million: float | None = None
    memory_bytes: int | None = None
    memory_peak_bytes: int | None = None
    generator_cpu_share: float = 0.0
    others_cpu_share: float | None = None
    extra: dict[str, float] = {}
    series: list[tuple[float, float, float]] = []


@final
class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """Every message of the run, warm-up included.

    Attributes:
        lost: acknowledged (QoS 0: sent), and not received by a subscriber who should.
        repeated: received again.
        out_of_order: received after a later one of its stream.
        foreign: received and not of this run.
        unacknowledged: without an answer at the end.
        sessions_lost: durable sessions that the broker did not have any more.
    """

    sent: int = 0
    acked: int = 0
    refused: int = 0
    received: int = 0
    lost: int = 0
    repeated: int = 0
    out_of_order: int = 0
    foreign: int = 0
    unacknowledged: int = 0
    sessions_lost: int = 0


@final
class Broker(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured.

    Attributes:
        name: ``perdure``, ``mosquitto``, ... or the address.
        version: as it says itself.
        durability: what an acknowledgement means with this configuration.
        configuration: how it was started; empty if it ran already.
    """

    name: str
    version: str = ""
    durability: str = "not known: it was running already"
    configuration: str = ""


@final
class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """Where it was measured."""

    cpu: str
    cores: int
    memory_bytes: int
    kernel: str
    python: str
    perdure: str
    disk: str


@final
class Result(msgspec.Struct, kw_only=True):
    """One run.

    Attributes:
        started_at: UTC, RFC 3339.
        warnings: what makes the figures less than they seem.
    """

    settings: Settings
    broker: Broker
    machine: Machine
    started_at: str
    phases: list[Phase]
    totals: Totals
    warnings: list[str] = []

    def phase(self, name: str) -> Phase:
        """A phase by its name."""
        return next(phase for phase in self.phases if phase.name == name)
