"""Clients that come, stay and go: connects and resumes per second, memory of what is idle."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.bench.loop import Link
from perdure.bench.result import Phase
from perdure.bench.runner import Run


def conn(run: Run) -> list[Phase]:
    """Durable sessions connect and subscribe, disconnect, and resume."""
    links = _sessions(run)
    phases = [_connect(run, links, "connect")]
    run.disconnect(links)
    if run.settings.durable:
        phases.append(_connect(run, links, "resume"))
        run.sessions_lost += sum(not link.client.session_present for link in links)
        run.disconnect(links)
        if run.target.goes_on:
            run.discard(links)
    return phases


def idle(run: Run) -> list[Phase]:
    """Connections that do nothing, then the same sessions offline, then after a restart."""
    links = _sessions(run)
    empty = _memory(run, "empty broker")
    connected = _connect(run, links, "connected")
    _per_item(connected, _memory(run, "settle") - empty, len(links))
    run.disconnect(links)
    watch = run.stopwatch()
    offline_bytes = _memory(run, "settle") - empty
    offline = watch.stop("offline", done=len(links))
    _per_item(offline, offline_bytes, len(links))
    phases = [connected, offline]
    if run.settings.restart:
        seconds = run.target.restart()
        watch = run.stopwatch()
        restarted_bytes = _memory(run, "settle") - empty
        restarted = watch.stop("restarted", done=len(links))
        restarted.extra["restart_s"] = round(seconds, 3)
        _per_item(restarted, restarted_bytes, len(links))
        phases.append(restarted)
    elif run.target.goes_on and run.settings.durable:
        run.discard(links)
    return phases


def _sessions(run: Run) -> list[Link]:
    root = run.settings.root
    return [
        run.subscriber(f"s{number:06}", f"{root}/c/{number:06}", streams=[])
        for number in range(run.settings.subscribers)
    ]


def _connect(run: Run, links: Sequence[Link], name: str) -> Phase:
    watch = run.stopwatch()
    run.connect(links, name)
    return watch.stop(name, done=len(links))


def _memory(run: Run, what: str) -> int:
    run.sleep(run.settings.settle_s, what)
    probe = run.target.probe
    return probe.memory_bytes()[0] if probe else 0


def _per_item(phase: Phase, grown: int, count: int) -> None:
    if phase.memory_bytes is not None:
        phase.extra["bytes_each"] = round(grown / count, 1)
