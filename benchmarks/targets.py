"""What was to be reached, and what the records say of it.

A target is a line of the table on the page of benchmarks: a bound that must hold, one to aim at,
and where in the records the figure is. Where a figure falls short, the page says what limits it.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, final

import msgspec

from benchmarks.profiles import ON_POSTGRES
from benchmarks.record import Record
from benchmarks.suite import OFFLINE, PURE, QOS_2, RECORDED, RESTART, RETAINED, V5
from perdure.bench.compare import Comparison, Spread
from perdure.bench.stopwatch import OTHERS_LIMIT

Verdict = Literal["aim", "must", "short", "not measured"]


@final
class Findings(msgspec.Struct, frozen=True):
    """The newest records, by name."""

    records: Mapping[str, Record]
    comparisons: Mapping[str, Comparison]

    def value(self, name: str, phase: str, measure: str, broker: str = "") -> Spread | None:
        """A broker's figure in a comparison; Perdure's if none is named."""
        line = self._line(name, phase, measure, broker or "perdure")
        return None if line is None else line[0]

    def against(self, name: str, phase: str, measure: str, broker: str) -> Spread | None:
        """The first contestant's figure as a multiple of another's, within the rounds."""
        line = self._line(name, phase, measure, broker)
        return None if line is None else line[1]

    def of_ours(self, name: str, phase: str, measure: str, variation: str) -> Spread | None:
        """The figure of a variation as a multiple of plain Perdure's."""
        found = self.against(name, phase, measure, f"perdure {variation}")
        if found is None:
            return None
        return Spread(1 / found.median, 1 / found.high, 1 / found.low)

    def check(self, name: str, begins: str) -> Spread | None:
        """A check of a record."""
        record = self.records.get(name)
        for check in record.checks if record is not None else ():
            if check.what.startswith(begins):
                return Spread(check.found, check.low, check.high)
        return None

    def faults(self) -> Spread | None:
        """Messages lost, repeated or out of order in all runs of Perdure."""
        counts = [
            totals.lost + totals.repeated + totals.out_of_order + totals.sessions_lost
            for comparison in self.comparisons.values()
            for run in comparison.runs
            if run.broker.name.split()[0] == "perdure" and (totals := run.totals)
        ]
        return Spread(sum(counts), min(counts), max(counts)) if counts else None

    def busy(self) -> dict[str, float]:
        """Comparisons that others disturbed: the median of the cores that they used."""
        found = {}
        for name, comparison in self.comparisons.items():
            shares = [
                phase.others_cpu_share
                for run in comparison.runs
                for phase in run.phases
                if phase.others_cpu_share is not None
            ]
            if shares and statistics.median(shares) > OTHERS_LIMIT:
                found[name] = statistics.median(shares)
        return found

    def _line(
        self, name: str, phase: str, measure: str, broker: str
    ) -> tuple[Spread, Spread | None] | None:
        comparison = self.comparisons.get(name)
        for line in comparison.lines if comparison is not None else ():
            if (line.phase, line.measure, line.broker) == (phase, measure, broker):
                return line.value, line.ratio
        return None


@final
class Target(msgspec.Struct, frozen=True):
    """One line.

    Attributes:
        what: the measure.
        must, aim: bounds.
        unit: of all figures.
        find: the figure.
        record: where it is.
        is_most: the bounds are upper ones.
        limit: what limits it, told where the aim was missed.
    """

    what: str
    must: float
    aim: float
    unit: str
    find: Callable[[Findings], Spread | None]
    record: str
    is_most: bool = False
    limit: str = ""

    def verdict(self, found: Spread | None) -> Verdict:
        """Which bound the median keeps."""
        if found is None:
            return "not measured"
        sign = -1 if self.is_most else 1
        if sign * found.median >= sign * self.aim:
            return "aim"
        return "must" if sign * found.median >= sign * self.must else "short"


_P2P, _P2P_100, _SPARSE = "p2p-1000-saturated", "p2p-100-saturated", "p2p-1000-sparse"
_CPU, _RATE, _DELIVERED = "cpu_s_per_million", "done_per_s", "delivered_per_s"


def _idle(what: str, variation: str) -> Target:
    return Target(
        f"broker CPU for a message beside {what}, against none",
        1.1,
        1.05,
        "x",
        lambda f: f.of_ours("idle-cost", "flow", _CPU, variation),
        "idle-cost",
        is_most=True,
        limit="nothing of what is idle is looked at; files that it filled are merged now and then, "
        "and memory that has seen more loads is in less order (ADR 0015)",
    )


TARGETS: Final[Sequence[Target]] = (
    Target(
        "p2p, 1000 pairs, 64 B, saturated: broker CPU, compiled",
        5,
        2.5,
        "s per million",
        lambda f: f.value(_P2P, "flow", _CPU),
        _P2P,
        is_most=True,
        limit="objects and dicts of CPython, two socket calls for each burst: see the stages above",
    ),
    Target(
        "the same, pure Python",
        9,
        6,
        "s per million",
        lambda f: f.value(_P2P, "flow", _CPU, f"perdure {PURE}"),
        _P2P,
        is_most=True,
        limit="the interpreter: about as much again as everything else",
    ),
    Target(
        "p2p, 1000 pairs, saturated: messages/s against Mosquitto",
        2.4,
        5,
        "x",
        lambda f: f.against(_P2P, "flow", _RATE, "mosquitto"),
        _P2P,
        limit="one thread runs the loop; generator and broker share the cores of one machine",
    ),
    Target(
        "p2p, 100 pairs: messages/s against NATS JetStream",
        5,
        8,
        "x",
        lambda f: f.against(_P2P_100, "flow", _RATE, "nats"),
        _P2P_100,
        limit="NATS uses both cores where the generator leaves it room",
    ),
    Target(
        "p2p, 100 pairs: messages/s against RabbitMQ",
        8,
        12,
        "x",
        lambda f: f.against(_P2P_100, "flow", _RATE, "rabbitmq"),
        _P2P_100,
        limit="RabbitMQ uses both cores where the generator leaves it room",
    ),
    Target(
        "p2p, 1000 pairs at 10,000/s: broker CPU",
        45,
        30,
        "s per million",
        lambda f: f.value(_SPARSE, "flow", _CPU),
        _SPARSE,
        is_most=True,
        limit="two reads and two writes for each message; only wake-ups and commits are shared",
    ),
    Target(
        "the same: PUBACK p99 from the intended time",
        10,
        5,
        "ms",
        lambda f: f.value(_SPARSE, "flow", "ack_p99_ms"),
        _SPARSE,
        is_most=True,
        limit="commits are spaced, and generator, broker and disk share two cores",
    ),
    Target(
        "the same: PUBACK median",
        3,
        2,
        "ms",
        lambda f: f.value(_SPARSE, "flow", "ack_p50_ms"),
        _SPARSE,
        is_most=True,
        limit="half a beat of commits, a sync, and what is read and sent in a turn",
    ),
    Target(
        "the same: broker CPU against Mosquitto, which keeps nothing",
        1.6,
        1.3,
        "x",
        lambda f: f.against(_SPARSE, "flow", _CPU, "mosquitto"),
        _SPARSE,
        is_most=True,
        limit="over half of it is the kernel's, for the same reads and writes; syncs are 7 %",
    ),
    Target(
        "fan-in, 100 to 1: delivered messages/s against Mosquitto with a wide window",
        2,
        2.5,
        "x",
        lambda f: f.against("fanin-100", "flow", _DELIVERED, "mosquitto"),
        "fanin-100",
        limit="one subscriber: its window and its one socket pace everybody",
    ),
    Target(
        "the same: delivered p99, end to end",
        200,
        50,
        "ms",
        lambda f: f.value("fanin-100", "flow", "delivery_p99_ms"),
        "fanin-100",
        is_most=True,
    ),
    Target(
        "fan-in, 100 to 10, each of which gets all: deliveries/s against Mosquitto",
        2,
        4,
        "x",
        lambda f: f.against("fanin-10", "flow", _DELIVERED, "mosquitto"),
        "fanin-10",
        limit="one thread runs the loop",
    ),
    Target(
        "the same: delivered p99, end to end",
        200,
        50,
        "ms",
        lambda f: f.value("fanin-10", "flow", "delivery_p99_ms"),
        "fanin-10",
        is_most=True,
    ),
    Target(
        "fan-in, 100 to a shared group of 10: delivered messages/s against Mosquitto",
        2,
        4,
        "x",
        lambda f: f.against("fanin-shared", "flow", _DELIVERED, "mosquitto"),
        "fanin-shared",
        limit="what a member is given is an entry of its own beside the log",
    ),
    Target(
        "the same: delivered p99, end to end",
        200,
        50,
        "ms",
        lambda f: f.value("fanin-shared", "flow", "delivery_p99_ms"),
        "fanin-shared",
        is_most=True,
    ),
    Target(
        "fan-out, 1 to 100: deliveries/s against Mosquitto",
        1,
        3,
        "x",
        lambda f: f.against("fanout-100", "flow", _DELIVERED, "mosquitto"),
        "fanout-100",
        limit="one publisher with a window of 16, each round trip with a commit in it",
    ),
    Target(
        "offline, 1000 sessions x 100: stored",
        100_000,
        150_000,
        "messages/s",
        lambda f: f.value("offline-1000", "store", _RATE),
        "offline-1000",
        limit="100,000 messages are stored in about a second, and the start of the load is in it",
    ),
    Target(
        "the same: drained",
        200_000,
        400_000,
        "messages/s",
        lambda f: f.value("offline-1000", "drain", _RATE),
        "offline-1000",
        limit="1000 connects with resumption are within the measured time",
    ),
    Target(
        "drained after kill -9 and a start, from the disk",
        100_000,
        250_000,
        "messages/s",
        lambda f: f.value("offline-1000", "drain", _RATE, f"perdure {RESTART}"),
        "offline-1000",
        limit="1000 connects with resumption are within the measured time; the newest messages are "
        "read into memory in one go when the broker starts, which takes part of the start",
    ),
    Target(
        "p2p: QoS 2 against QoS 1, messages/s",
        0.4,
        0.5,
        "x",
        lambda f: f.of_ours(_P2P, "flow", _RATE, QOS_2),
        _P2P,
        limit="four packets instead of two on each side, and two more commits in the way",
    ),
    Target(
        "p2p: MQTT 5.0 against 3.1.1, messages/s",
        0.85,
        0.95,
        "x",
        lambda f: f.of_ours(_P2P, "flow", _RATE, V5),
        _P2P,
        limit="properties and reason codes are parsed and written for each packet",
    ),
    Target(
        "memory of an idle connection with a durable session",
        8,
        4,
        "KiB",
        lambda f: f.check("memory", "a connected idle"),
        "memory",
        is_most=True,
        limit="transport, connection and session objects of CPython",
    ),
    Target(
        "memory of an offline session, after a restart",
        3,
        1,
        "KiB",
        lambda f: f.check("memory", "an offline session, after"),
        "memory",
        is_most=True,
    ),
    Target(
        "connects with a subscription of durable sessions",
        5_000,
        15_000,
        "1/s",
        lambda f: f.value("conn-5000", "connect", _RATE),
        "conn-5000",
        limit="session record and subscription are on disk before CONNACK and SUBACK",
    ),
    Target(
        "p2p, 100 pairs, state in a server: messages/s on Redis against PostgreSQL, both synced",
        1.5,
        2,
        "x",
        lambda f: f.against("profiles", "flow", _RATE, ON_POSTGRES),
        "profiles",
        limit="the broker's own share is the same on either, and all share two cores",
    ),
    _idle("100,000 offline sessions on a wildcard", OFFLINE),
    _idle("1,000,000 retained messages", RETAINED),
    _idle("1,000,000 recorded messages", RECORDED),
    Target(
        "lost, repeated beyond QoS, out of order, sessions lost: all runs together",
        0,
        0,
        "",
        lambda f: f.faults(),
        "all",
        is_most=True,
    ),
)
"""In the order of the table."""


def table(findings: Findings) -> str:
    """The table, and below it what limits the figures that do not reach the aim."""
    rows, notes = [], []
    for target in TARGETS:
        found = target.find(findings)
        verdict = target.verdict(found)
        sign = "<=" if target.is_most else ">="
        cells = [
            target.what + (f", {target.unit}" if target.unit else ""),
            f"{sign} {target.must:,g}",
            f"{sign} {target.aim:,g}",
            "" if found is None else _figures(found),
            "**short**" if verdict == "short" else verdict,
            f"`{target.record}`",
        ]
        rows.append(f"| {' | '.join(cells)} |")
        if verdict in ("short", "must") and target.limit:
            notes.append(f"- {target.what}: {target.limit}.")
    head = "| measure | must | aim | measured | reached | record |\n|---|---|---|---|---|---|\n"
    text = head + "\n".join(rows)
    busy = findings.busy()
    if busy:
        text += (
            "\n\nOther processes used the machine meanwhile: "
            + ", ".join(f"{share:.1f} cores in `{name}`" for name, share in busy.items())
            + ". Rates and latencies are worse there than they would be alone, and a load at a "
            "fixed rate comes in batches, which makes its CPU less than it would be."
        )
    if notes:
        text += "\n\nWhat limits those that do not reach the aim:\n\n" + "\n".join(notes)
    return text


def _figures(found: Spread) -> str:
    return f"{figure(found.median)} ({figure(found.low)} to {figure(found.high)})"


def figure(value: float) -> str:
    """A number with three digits that count, or whole if it is large."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
