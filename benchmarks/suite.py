"""The comparisons that the page of benchmarks is made of: Perdure beside others, and beside itself.

Each is one ``perdure bench compare`` with stated settings, short enough for all of them to be
repeated in ten minutes. A comparison with a peer that is not installed is made without it and says
so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import final

import msgspec

from benchmarks import record
from perdure.bench import compare
from perdure.bench.contestants import Contestant, vary
from perdure.bench.result import Result
from perdure.bench.settings import Settings
from perdure.bench.stopwatch import Progress


@final
class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One comparison.

    Attributes:
        settings: what all are asked to do.
        peers: brokers to compare with.
        variations: of Perdure.
        rounds: runs of each.
        keep: brokers go on from round to round.
    """

    settings: Settings
    peers: tuple[str, ...] = ()
    variations: tuple[str, ...] = ()
    rounds: int = 3
    keep: bool = False


PURE = "build=pure"
QOS_2 = "qos=2"
V5 = "version=5"
RESTART = "restart=true"
OFFLINE, RETAINED, RECORDED = "offline=100000", "retained=1000000", "recorded=1000000"

PARTS: dict[str, Part] = {
    "p2p-1000-saturated": Part(
        settings=Settings(
            scenario="p2p", publishers=1000, subscribers=1000, duration_s=3.0, warmup_s=1.0
        ),
        peers=("mosquitto", "rumqttd", "mochi"),
        variations=(PURE, QOS_2, V5),
        rounds=5,
    ),
    "p2p-100-saturated": Part(
        settings=Settings(
            scenario="p2p", publishers=100, subscribers=100, duration_s=3.0, warmup_s=1.0
        ),
        peers=("mosquitto", "nats", "rabbitmq"),
    ),
    "p2p-1000-sparse": Part(
        settings=Settings(
            scenario="p2p",
            publishers=1000,
            subscribers=1000,
            rate=10_000,
            duration_s=4.0,
            warmup_s=1.5,
        ),
        peers=("mosquitto",),
        rounds=5,
    ),
    "fanin-100": Part(
        settings=Settings(
            scenario="fanin", publishers=100, subscribers=1, duration_s=3.0, warmup_s=1.0
        ),
        peers=("mosquitto",),
        rounds=5,
    ),
    "fanin-10": Part(
        settings=Settings(
            scenario="fanin", publishers=100, subscribers=10, duration_s=3.0, warmup_s=1.0
        ),
        peers=("mosquitto",),
    ),
    "fanin-shared": Part(
        settings=Settings(
            scenario="fanin",
            publishers=100,
            subscribers=10,
            shared=True,
            duration_s=3.0,
            warmup_s=1.0,
        ),
        peers=("mosquitto",),
    ),
    "fanout-100": Part(
        settings=Settings(
            scenario="fanout", publishers=1, subscribers=100, duration_s=3.0, warmup_s=1.0
        ),
        peers=("mosquitto", "rumqttd", "mochi"),
        rounds=5,
    ),
    "offline-1000": Part(
        settings=Settings(scenario="offline", subscribers=1000, messages=100, publishers=100),
        peers=("mosquitto",),
        variations=(RESTART,),
    ),
    "conn-5000": Part(settings=Settings(scenario="conn", subscribers=5000), peers=("mosquitto",)),
    "idle-cost": Part(
        settings=Settings(
            scenario="p2p", publishers=1000, subscribers=1000, duration_s=2.5, warmup_s=0.5
        ),
        variations=(OFFLINE, RETAINED, RECORDED),
        rounds=16,
        keep=True,
    ),
}


def measure(name: str, part: Part) -> bool:
    """Make one comparison and write its records; whether nothing was lost or repeated."""
    peers, skipped = compare.available(("perdure", *part.peers), part.settings.version)
    contestants = [Contestant(peer, part.settings) for peer in peers]
    contestants += [vary(text, part.settings) for text in part.variations]
    return take(name, contestants, rounds=part.rounds, keep=part.keep, skipped=skipped)


def take(
    name: str,
    contestants: Sequence[Contestant],
    *,
    rounds: int,
    keep: bool,
    skipped: Mapping[str, str],
) -> bool:
    """Let contestants take turns and write the records of it."""
    found = compare.compare(
        name, contestants, rounds=rounds, keep=keep, skipped=skipped, progress=told
    )
    stem = record.place(name, found.started_at)
    stem.with_suffix(".json").write_bytes(compare.record(found))
    text = compare.markdown(found)
    stem.with_suffix(".md").write_text(text, encoding="utf-8")
    print(text, flush=True)
    return all(is_clean(run) for run in found.runs)


def is_clean(run: Result) -> bool:
    """Nothing was lost, repeated or out of order."""
    totals = run.totals
    return not (totals.lost or totals.repeated or totals.out_of_order or totals.sessions_lost)


def told(who: str) -> Progress:
    """Progress as lines, one for each run and each thing of it that begins."""
    last = ""

    def tell(what: str, done: float, detail: str) -> None:
        nonlocal last
        if what != last:
            last = what
            print(f"  {who}: {what} ...", flush=True)

    return tell


def _runner(name: str, part: Part) -> Callable[[], bool]:
    return lambda: measure(name, part)


ALL: dict[str, Callable[[], bool]] = {name: _runner(name, part) for name, part in PARTS.items()}
