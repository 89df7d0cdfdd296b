"""Measures a stretch of a run: what was done, and what broker, generator and others spent on it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final, final

from perdure.bench.meter import Meter
from perdure.bench.process import ProcessProbe, machine_cpu_s
from perdure.bench.result import Latency, Phase

GENERATOR_LIMIT: Final = 0.9
"""Share of a core from which on the generator may be what limits a closed loop."""
OTHERS_LIMIT: Final = 0.25
"""Share of a core from which on other processes disturb the figures."""

BEHIND_LIMIT: Final = 0.05
"""Share of what was taken that may be missing from what was delivered: what is under way at either
end of a phase."""

Progress = Callable[[str, float, str], None]
"""(what goes on, how much of it is done from 0 to 1, a few words)."""


def silent(what: str, done: float, detail: str) -> None:
    """Tell nobody."""


@final
class Stopwatch:
    """Measures from its making to ``stop``.

    Args:
        meter: what the clients count; its latencies begin anew.
        probe: looks at the broker's process; None if that is not known.
        has_acks: messages are acknowledged (QoS 1 and 2).
        warnings: where doubts about the figures go.
        progress: is told the rates.
        nodes: look at the processes of a cluster, whose CPU stands in ``Phase.extra``
            (``node1_cpu_us`` and so on), microseconds for each of what was done.
    """

    def __init__(
        self,
        meter: Meter,
        probe: ProcessProbe | None,
        *,
        nodes: Sequence[ProcessProbe] = (),
        has_acks: bool = True,
        warnings: list[str],
        progress: Progress = silent,
    ) -> None:
        self._meter = meter
        self._has_acks = has_acks
        self._warnings = warnings
        self._progress = progress
        meter.reset_latencies()
        self._probe = probe
        self._excluded = 0.0
        self._acked, self._received = meter.acked, meter.received
        self._series: list[tuple[float, float, float]] = []
        self._last = (0.0, self._acked, self._received)
        self._cpu = self._probe.cpu_s() if self._probe else 0.0
        self._nodes = [(node, node.cpu_s()) for node in nodes]
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
        meter = self._meter
        rate_in, rate_out = (
            (meter.acked - acked) / (now - at),
            (meter.received - received) / (now - at),
        )
        self._series.append((round(now, 2), round(rate_in, 1), round(rate_out, 1)))
        self._last = (now, meter.acked, meter.received)
        self._progress(what, share, f"{rate_in:,.0f} in/s, {rate_out:,.0f} out/s")

    def stop(
        self, name: str, *, done: int | None = None, fan_out: int = 0, deliveries: bool = False
    ) -> Phase:
        """What happened since.

        Args:
            name: of the phase.
            done: operations; None = acknowledged messages (QoS 0: none are).
            fan_out: connected subscribers that each message is for; 0 = none.
            deliveries: the operations are deliveries.
        """
        meter = self._meter
        seconds = self.seconds
        # What was not counted took CPU all the same.
        elapsed = seconds + self._excluded
        own = time.process_time() - self._own_cpu
        delivered = meter.received - self._received
        if deliveries:
            done = delivered
        elif done is None:
            done = meter.acked - self._acked if self._has_acks else delivered
        phase = Phase(
            name=name,
            seconds=round(seconds, 4),
            done=done,
            done_per_s=round(done / seconds, 1),
            delivered=delivered,
            delivered_per_s=round(delivered / seconds, 1),
            ack=Latency.of(meter.ack_ns),
            delivery=Latency.of(meter.delivery_ns),
            generator_cpu_share=round(own / elapsed, 3),
            series=self._series,
        )
        if meter.late_ns.count:
            phase.late_p99_ms = round(meter.late_ns.percentile(99) / 1e6, 4)
        if self._probe is not None:
            cpu = self._probe.cpu_s() - self._cpu
            counted = delivered if fan_out > 1 else done
            phase.broker_cpu_s = round(cpu, 3)
            phase.broker_cpu_share = round(cpu / elapsed, 3)
            phase.cpu_s_per_million = round(cpu / counted * 1e6, 3) if counted else None
            others = machine_cpu_s() - self._machine_cpu - cpu - own
            phase.others_cpu_share = round(max(0.0, others) / elapsed, 3)
            phase.memory_bytes, phase.memory_peak_bytes = self._probe.memory_bytes()
        for number, (node, before) in enumerate(self._nodes, 1):
            used_us = (node.cpu_s() - before) * 1e6 / max(1, done)
            phase.extra[f"node{number}_cpu_us"] = round(used_us, 2)
        self._warn(phase, fan_out)
        return phase

    def _warn(self, phase: Phase, fan_out: int) -> None:
        owed = phase.done * fan_out
        if phase.delivered < owed * (1 - BEHIND_LIMIT):
            self._warnings.append(
                f"{phase.name}: {phase.delivered / owed:.0%} of what was taken was delivered: "
                "subscribers fall behind, and the rate that is taken does not last"
            )
        share = phase.generator_cpu_share
        others = phase.others_cpu_share
        if others is not None and others > OTHERS_LIMIT:
            self._warnings.append(
                f"{phase.name}: other processes used {others:.0%} of a core: rates and latencies "
                "are worse than they would be alone"
            )
        if share < GENERATOR_LIMIT:
            return
        if phase.broker_cpu_share is not None and phase.broker_cpu_share > share:
            return
        self._warnings.append(
            f"{phase.name}: the generator used {share:.0%} of a core: it may be the limit, and the "
            "broker faster than this"
        )
