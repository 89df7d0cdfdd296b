"""Nodes of a cluster: what a message costs on one, between them, and what moving costs."""

from __future__ import annotations

import time
from typing import Final

from perdure.bench.applied import Applied
from perdure.bench.client import Client
from perdure.bench.histogram import Histogram
from perdure.bench.loop import Link
from perdure.bench.result import Latency, Phase
from perdure.bench.runner import Run

TAKEOVERS: Final = 50
"""Moves of a client from one node to the next that are measured."""

SETTLE_S: Final = 2.0
"""How long nodes are left alone before it is measured what they cost at rest, seconds."""
REST_S: Final = 5.0
"""How long that is measured, seconds."""


def cluster(run: Run) -> list[Phase]:
    """Pairs whose clients are both at the first node; pairs whose subscribers are at the others; a
    client that goes from node to node while its last connection is open."""
    rest = _rest(run) if run.target.node_probes else None
    phases = [_flow(run, "local", rest)]
    if len(run.places) > 1:
        phases += [_flow(run, "across", rest), _takeover(run)]
    return phases


def _rest(run: Run) -> Phase:
    """Nobody is there: what each node takes in a second is what is done."""
    run.sleep(SETTLE_S, "nodes settle")
    watch = run.stopwatch()
    run.sleep(REST_S, "nodes at rest")
    return watch.stop("rest", done=round(REST_S))


def tell_added(phase: Phase, rest: Phase) -> None:
    """What a message adds to what a node costs without any, ``node2_added_us`` and so on: at a node
    that nobody is connected to, what applying it costs."""
    for name, rest_us in rest.extra.items():
        added_us = phase.extra[name] - rest_us * phase.seconds / max(1, phase.done)
        phase.extra[name.replace("_cpu_us", "_added_us")] = round(max(0.0, added_us), 2)


def tell_applied(phase: Phase, before: list[Applied], after: list[Applied]) -> None:
    """What a message costs each node to apply, ``node1_apply_us`` and so on, microseconds; of one
    that has applied none nothing is told."""
    for number, (then, now) in enumerate(zip(before, after, strict=True), 1):
        messages = now.messages - then.messages
        if messages > 0:
            took_us = (now.cpu_s - then.cpu_s) * 1e6 / messages
            phase.extra[f"node{number}_apply_us"] = round(took_us, 2)


def _flow(run: Run, name: str, rest: Phase | None) -> Phase:
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
    # Not while messages are due: who asks waits for the answer. So the warm-up counts here.
    before = [node.look() for node in run.target.node_metrics]
    phase = run.flow(publishers, name)
    tell_applied(phase, before, [node.look() for node in run.target.node_metrics])
    run.disconnect([*publishers, *subscribers])
    if settings.durable:
        run.discard(subscribers)
    if rest is not None:
        tell_added(phase, rest)
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
