"""Nodes of a cluster: what a message costs on one, between them, and what moving costs."""

from __future__ import annotations

import time
from typing import Final

from perdure.bench.client import Client
from perdure.bench.histogram import Histogram
from perdure.bench.loop import Link
from perdure.bench.result import Latency, Phase
from perdure.bench.runner import Run

TAKEOVERS: Final = 50
"""Moves of a client from one node to the next that are measured."""


def cluster(run: Run) -> list[Phase]:
    """Pairs whose clients are both at the first node; pairs whose subscribers are at the others; a
    client that goes from node to node while its last connection is open."""
    phases = [_flow(run, "local")]
    if len(run.places) > 1:
        phases += [_flow(run, "across"), _takeover(run)]
    return phases


def _flow(run: Run, name: str) -> Phase:
    settings, others = run.settings, len(run.places) - 1
    streams = [
        run.stream(f"{settings.root}/{name}/{number:06}") for number in range(settings.publishers)
    ]
    subscribers = [
        run.subscriber(
            f"{name}-s{number:06}",
            stream.topic,
            streams=[stream],
            follow=True,
            node=1 + number % others if name == "across" else 0,
        )
        for number, stream in enumerate(streams)
    ]
    publishers = [
        run.publisher(f"{name}-p{number:06}", [stream]) for number, stream in enumerate(streams)
    ]
    run.connect(subscribers, f"{name}: connect subscribers")
    run.connect(publishers, f"{name}: connect publishers")
    phase = run.flow(publishers, name)
    run.disconnect([*publishers, *subscribers])
    if settings.durable:
        run.discard(subscribers)
    return phase


def _takeover(run: Run) -> Phase:
    """CONNECT to CONNACK, in ``ack``."""
    took_ns = Histogram()
    watch = run.stopwatch()
    last: Link | None = None
    for number in range(TAKEOVERS + 1):
        client = Client(
            f"{run.settings.root}-wanderer",
            version=run.settings.version,
            clean=False,
            username=run.target.username,
            password=run.target.password,
        )
        link = run.link(client, node=number % len(run.places))
        if last is not None:
            last.client.is_wanted = False  # the broker ends it
        begun_ns = time.monotonic_ns()
        run.connect([link], "takeover")
        if last is not None:
            took_ns.record(client.connected_ns - begun_ns)
            run.disconnect([last], abruptly=True)
        last = link
    phase = watch.stop("takeover", done=TAKEOVERS)
    phase.ack = Latency.of(took_ns)
    assert last is not None
    run.disconnect([last])
    run.discard([last])
    return phase
