"""``python -m benchmarks fleet``, or ``python -m benchmarks.fleet [NAME...] [--rounds N]``: loads
beside Mosquitto in which something is slow or away.

Groups: ten on the same topics, one of a hundred members, one with a member that reads nothing and
one that is offline, QoS 2. Fan-out to a thousand of which a hundred read nothing. A session that
returns to a million messages while the load goes on. What nobody reads is not counted while it is
not read; whoever was slow or away comes back in the end, and nothing may be missing then.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, final

import msgspec

from benchmarks import record
from benchmarks.ending import end_in_order
from perdure.bench.ledger import Ledger
from perdure.bench.loop import Link
from perdure.bench.meter import Meter
from perdure.bench.peers import PEERS
from perdure.bench.result import Phase
from perdure.bench.runner import Run
from perdure.bench.settings import Settings
from perdure.bench.subscriber import Subscriber
from perdure.bench.target import Target

BROKERS: Final = ("perdure", "mosquitto")
PUBLISHERS: Final = 100
SETTLE_S: Final = 20.0
"""How long who comes back is waited for, after the last that came."""
BACKLOG: Final = 1_000_000


@final
class Found(msgspec.Struct, frozen=True):
    """What one run found.

    Attributes:
        broker: its name.
        delivered_per_s: to those that read.
        taken_per_s: acknowledged.
        p99_ms: of the deliveries to those that read.
        ack_p99_ms: of the acknowledgements.
        cpu_s_per_million: of the broker, for a delivery.
        missing: what did not come, in the end.
        others: CPU of other processes, share of a core.
    """

    broker: str
    delivered_per_s: float
    taken_per_s: float
    p99_ms: float
    ack_p99_ms: float
    cpu_s_per_million: float
    missing: int
    others: float


class Fleet:
    """Publishers, and readers of which some are slow or away.

    Args:
        run: has the connections.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.root = f"{run.settings.root}/f"
        self.streams = [
            run.stream(f"{self.root}/{number:03}") for number in range(run.settings.publishers)
        ]
        self.publishers = [
            run.publisher(f"p{number:03}", [stream]) for number, stream in enumerate(self.streams)
        ]
        self.ledgers: list[Ledger] = []
        self.aside = Meter()
        """What those count who are slow or were away."""

    def reader(self, name: str, ledger: Ledger, *, share: str = "", aside: bool = False) -> Link:
        """A subscriber to all streams, or a member of a group."""
        run = self.run
        if ledger not in self.ledgers:
            self.ledgers.append(ledger)
        topic_filter = f"$share/{share}/{self.root}/+" if share else f"{self.root}/+"
        client = Subscriber(
            f"{run.settings.root}-{name}",
            version=run.settings.version,
            filters=((topic_filter, run.settings.qos),),
            tag=run.settings.tag,
            meter=self.aside if aside else run.meter,
            clean=False,
            ledger=ledger,
        )
        return run.link(client)

    def group(self, name: str, count: int) -> list[Link]:
        """The members of a group."""
        ledger = Ledger(is_group=True)
        return [self.reader(f"{name}-{number:03}", ledger, share=name) for number in range(count)]

    def missing(self) -> int:
        """What was sent and did not come."""
        return sum(
            ledger.missing(stream.number, stream.counter)
            for ledger in self.ledgers
            for stream in self.streams
        )

    def settle(self) -> int:
        """Wait until nothing is missing, or nothing comes any more; what is missing then."""
        run, seen, since = self.run, -1, time.monotonic()
        while missing := self.missing():
            now, came = time.monotonic(), run.meter.received + self.aside.received
            if came != seen:
                seen, since = came, now
            elif now - since > SETTLE_S:
                break
            run.sleep(0.05, "wait for the last")
        return missing


Scenario = Callable[[Fleet], tuple[Phase, int]]


def _flow(fleet: Fleet, readers: Sequence[Link], *, fan_out: int = 1) -> tuple[Phase, int]:
    fleet.run.connect(readers, "connect")
    fleet.run.connect(fleet.publishers, "connect")
    phase = fleet.run.flow(fleet.publishers, "flow", fan_out=fan_out)
    return phase, fleet.settle()


def ten_groups(fleet: Fleet) -> tuple[Phase, int]:
    """Each message to ten groups of ten."""
    members = [member for number in range(10) for member in fleet.group(f"g{number}", 10)]
    return _flow(fleet, members, fan_out=10)


def ten(fleet: Fleet) -> tuple[Phase, int]:
    """A group of ten."""
    return _flow(fleet, fleet.group("g", 10))


def hundred(fleet: Fleet) -> tuple[Phase, int]:
    """A group of a hundred."""
    return _flow(fleet, fleet.group("g", 100))


def slow_and_away(fleet: Fleet) -> tuple[Phase, int]:
    """Of a group of ten one reads nothing, and one is offline."""
    run, members = fleet.run, fleet.group("g", 8)
    ledger = fleet.ledgers[0]
    slow = fleet.reader("slow", ledger, share="g", aside=True)
    away = fleet.reader("away", ledger, share="g", aside=True)
    run.connect([*members, slow, away], "connect")
    run.disconnect([away])
    run.pause([slow])
    run.connect(fleet.publishers, "connect")
    phase = run.flow(fleet.publishers, "flow")
    run.resume([slow])
    run.connect([away], "connect")
    return phase, fleet.settle()


def slow_readers(fleet: Fleet) -> tuple[Phase, int]:
    """One to a thousand, of whom a hundred read nothing."""
    run = fleet.run
    readers = [fleet.reader(f"r{number:03}", Ledger()) for number in range(900)]
    slow = [fleet.reader(f"s{number:03}", Ledger(), aside=True) for number in range(100)]
    run.connect([*readers, *slow], "connect")
    run.pause(slow)
    run.connect(fleet.publishers, "connect")
    phase = run.flow(fleet.publishers, "flow", fan_out=len(readers))
    run.resume(slow)
    return phase, fleet.settle()


def backlog(fleet: Fleet) -> tuple[Phase, int]:
    """A session returns to a million messages while the load goes on."""
    run = fleet.run
    reader = fleet.reader("r", Ledger())
    run.connect([reader], "connect")
    run.disconnect([reader])
    run.connect(fleet.publishers, "connect")
    run.pump(fleet.publishers, "store", each=BACKLOG // len(fleet.publishers))
    run.connect([reader], "connect")
    phase = run.flow(fleet.publishers, "return")
    return phase, fleet.settle()


def _settings(
    *,
    publishers: int = PUBLISHERS,
    qos: int = 1,
    warmup_s: float = 1.0,
    duration_s: float = 4.0,
    rate: float = 0.0,
) -> Settings:
    return Settings(
        scenario="fanin",
        publishers=publishers,
        qos=qos,
        duration_s=duration_s,
        warmup_s=warmup_s,
        rate=rate,
    )


RETURN_S: Final = 1.0
"""A million messages take each broker longer (some three seconds, and six): who has come to the end
is given no more than is published, and rates would tell nothing."""

SCENARIOS: Final[dict[str, tuple[str, Settings, Scenario]]] = {
    "ten": ("a group of ten", _settings(), ten),
    "ten-groups": ("ten groups of ten on the same topics", _settings(), ten_groups),
    "hundred": ("a group of a hundred", _settings(), hundred),
    "slow-away": ("a group of ten, one stuck, one offline", _settings(), slow_and_away),
    "qos2": ("a group of ten, QoS 2", _settings(qos=2), ten),
    "slow-readers": ("1 to 1,000, of whom 100 are stuck", _settings(publishers=1), slow_readers),
    "backlog": (
        "back to 1 M messages under load",
        _settings(warmup_s=0.0, duration_s=RETURN_S),
        backlog,
    ),
    "backlog-paced": (
        "back to 1 M messages under 20,000/s",
        _settings(warmup_s=0.0, duration_s=RETURN_S, rate=20_000.0),
        backlog,
    ),
}


def one(broker: str, settings: Settings, scenario: Scenario) -> Found:
    """One run of one scenario on one broker."""
    with tempfile.TemporaryDirectory(prefix="perdure-fleet-") as directory:
        started = PEERS[broker].prepare(Path(directory))
        started.process.start()
        try:
            target = Target("127.0.0.1", started.port, process=started.process)
            run = Run(settings, target)
            try:
                phase, missing = scenario(Fleet(run))
            finally:
                run.is_closing(True)
                run.close()
        finally:
            started.process.stop()
    assert phase.delivery is not None
    assert phase.ack is not None
    return Found(
        broker=broker,
        delivered_per_s=phase.delivered_per_s,
        taken_per_s=phase.done_per_s,
        p99_ms=phase.delivery.p99_ms,
        ack_p99_ms=phase.ack.p99_ms,
        cpu_s_per_million=round((phase.broker_cpu_s or 0.0) / max(1, phase.delivered) * 1e6, 2),
        missing=missing,
        others=phase.others_cpu_share or 0.0,
    )


def measure(names: Sequence[str], rounds: int) -> dict[str, list[Found]]:
    """The brokers in turns."""
    found: dict[str, list[Found]] = {}
    for name in names:
        _, settings, scenario = SCENARIOS[name]
        for number in range(rounds):
            for broker in BROKERS if number % 2 == 0 else reversed(BROKERS):
                each = one(broker, settings, scenario)
                found.setdefault(name, []).append(each)
                print(f"{name} {number + 1}/{rounds}: {each}", file=sys.stderr, flush=True)
    return found


def checks_of(found: dict[str, list[Found]]) -> list[record.Check]:
    """What the record says of them."""
    checks: list[record.Check] = []
    for name, runs in found.items():
        text = SCENARIOS[name][0]
        ours, theirs = ([run for run in runs if run.broker == broker] for broker in BROKERS)
        ratios = [
            mine.delivered_per_s / max(1.0, other.delivered_per_s)
            for mine, other in zip(ours, theirs, strict=True)
        ]
        checks += [
            record.check(f"{text}: delivered", [run.delivered_per_s for run in ours], "/s"),
            record.check(f"{text}: against Mosquitto", ratios, "x", least=1),
            record.check(f"{text}: delivered, p99", [run.p99_ms for run in ours], "ms"),
            record.check(
                f"{text}: CPU of a delivery", [run.cpu_s_per_million for run in ours], "us"
            ),
            record.check(f"{text}: missing", [run.missing for run in ours], "", most=0),
        ]
    return checks


def take(names: Sequence[str], rounds: int) -> bool:
    """Measure, and write the record."""
    started_at = record.now()
    found = measure(names, rounds)
    return record.write(
        "fleet",
        started_at,
        data=Path(tempfile.gettempdir()),
        settings={"rounds": rounds, "publishers": PUBLISHERS, "size": 64, "window": 16},
        checks=checks_of(found),
        values=msgspec.to_builtins(found),
    )


def run() -> bool:
    """All of them, for the page."""
    return take(list(SCENARIOS), 3)


def main() -> None:
    """Measure what is named, and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=list(SCENARIOS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--record", action="store_true", help="write the record")
    given = parser.parse_args()
    if given.record:
        take(given.names, given.rounds)
        return
    for each in checks_of(measure(given.names, given.rounds)):
        print(f"{each.what}: {each.found:g} {each.unit} ({each.low:g} to {each.high:g})")


if __name__ == "__main__":
    end_in_order()
    main()
