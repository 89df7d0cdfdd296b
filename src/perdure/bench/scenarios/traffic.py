"""Messages that flow: one to one, many to one, one to many."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.bench.ledger import Ledger
from perdure.bench.loop import Link
from perdure.bench.result import Phase
from perdure.bench.runner import Run
from perdure.bench.scenarios import background


def p2p(run: Run) -> list[Phase]:
    """Pairs with topics of their own: publisher i -> subscriber i."""
    root, pairs = run.settings.root, run.settings.publishers
    streams = [run.stream(f"{root}/p/{number:06}") for number in range(pairs)]
    subscribers = [
        run.subscriber(f"s{number:06}", stream.topic, streams=[stream], follow=True)
        for number, stream in enumerate(streams)
    ]
    publishers = [run.publisher(f"p{number:06}", [stream]) for number, stream in enumerate(streams)]
    return _measure(run, publishers, subscribers)


def fanin(run: Run) -> list[Phase]:
    """Many publishers with topics of their own; each subscriber takes all with one wildcard, or
    all of them share it."""
    return _wildcard(run, "i", "+")


def fanout(run: Run) -> list[Phase]:
    """Few publishers, one topic each; every subscriber gets everything."""
    return _wildcard(run, "o", "#")


def _wildcard(run: Run, level: str, wildcard: str) -> list[Phase]:
    settings, root = run.settings, f"{run.settings.root}/{level}"
    streams = [run.stream(f"{root}/{number:06}") for number in range(settings.publishers)]
    group = Ledger(is_group=True) if settings.shared else None
    share = "$share/bench/" if settings.shared else ""
    subscribers = [
        run.subscriber(
            f"s{number:06}",
            f"{share}{root}/{wildcard}",
            # What a group misses is missed once.
            streams=[] if group is not None and number else streams,
            follow=group is not None or number == 0,
            group=group,
        )
        for number in range(settings.subscribers)
    ]
    publishers = [run.publisher(f"p{number:06}", [stream]) for number, stream in enumerate(streams)]
    fan_out = 1 if settings.shared else settings.subscribers
    return _measure(run, publishers, subscribers, fan_out=fan_out)


def _measure(
    run: Run, publishers: Sequence[Link], subscribers: Sequence[Link], *, fan_out: int = 1
) -> list[Phase]:
    background.prepare(run)
    run.connect(subscribers, "connect subscribers")
    run.connect(publishers, "connect publishers")
    phase = run.flow(publishers, "flow", fan_out=fan_out)
    run.disconnect([*publishers, *subscribers])
    if run.target.goes_on:
        # Leave it as it was.
        if run.settings.durable:
            run.discard(subscribers)
        background.clear(run)
    return [phase]
