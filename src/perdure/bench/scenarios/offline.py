"""Durable sessions that go away, are sent messages, and come back for them."""

from __future__ import annotations

from perdure.bench.errors import BenchError
from perdure.bench.result import Phase
from perdure.bench.runner import Run
from perdure.bench.scenarios import background


def offline(run: Run) -> list[Phase]:
    """Subscribe, disconnect, publish, (kill and restart the broker,) reconnect, drain."""
    settings = run.settings
    if not settings.durable or not settings.qos:
        raise BenchError("messages wait only for durable sessions, at QoS 1 or 2")
    root, sessions = settings.root, settings.subscribers
    streams = [run.stream(f"{root}/q/{number:06}") for number in range(sessions)]
    subscribers = [
        run.subscriber(f"s{number:06}", stream.topic, streams=[stream])
        for number, stream in enumerate(streams)
    ]
    count = min(settings.publishers, sessions)
    publishers = [run.publisher(f"p{k:04}", streams[k::count]) for k in range(count)]
    background.prepare(run)
    run.connect(subscribers, "subscribe")
    run.disconnect(subscribers)
    run.connect(publishers, "connect publishers")
    # Streams are dealt out evenly but for a remainder: round down, the same for each publisher.
    store = run.pump(publishers, "store", each=settings.messages * (sessions // count))
    run.disconnect(publishers)
    phases = [store]
    if settings.restart:
        store.extra["restart_s"] = round(run.target.restart(), 3)
    drain = run.collect(subscribers, "drain")
    run.sessions_lost += sum(not link.client.session_present for link in subscribers)
    phases.append(drain)
    run.disconnect(subscribers)
    if run.target.goes_on:
        run.discard(subscribers)
        background.clear(run)
    return phases
