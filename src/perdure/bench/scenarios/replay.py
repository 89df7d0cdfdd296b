"""Asking for the past: a wildcard out of a recorded fleet. Only Perdure answers it."""

from __future__ import annotations

import time
from typing import Final

from perdure.bench.result import Phase
from perdure.bench.runner import Run
from perdure.bench.subscriber import Subscriber
from perdure.mqtt.packets import V5, Properties

METRICS: Final = ("temperature", "humidity", "pressure", "battery")
"""Each device publishes these; one of them is asked for."""


def replay(run: Run) -> list[Phase]:
    """Devices publish their metrics; a late client replays one metric of all devices."""
    settings, root = run.settings, run.settings.root
    streams = [
        run.stream(f"{root}/{device:06}/{metric}")
        for device in range(settings.subscribers)
        for metric in METRICS
    ]
    wanted = streams[:: len(METRICS)]
    count = min(settings.publishers, settings.subscribers)
    # A device's metrics stay with one publisher.
    publishers = [
        run.publisher(
            f"p{k:04}", [s for i, s in enumerate(streams) if i // len(METRICS) % count == k]
        )
        for k in range(count)
    ]
    since_us = time.time_ns() // 1000
    run.connect(publishers, "connect publishers")
    each = settings.messages * len(METRICS) * (settings.subscribers // count)
    record = run.pump(publishers, "record", each=each)
    run.disconnect(publishers)
    link = run.subscriber("late", f"{root}/+/{METRICS[0]}", streams=wanted)
    late = link.client
    assert isinstance(late, Subscriber)
    late.clean = True
    if settings.version == V5:
        late.subscribe_properties = Properties(user_properties=(("replay-from", f"{since_us}"),))
    else:
        late.filters = ((f"$replay/{since_us}/{root}/+/{METRICS[0]}", settings.qos),)
    phase = run.collect([link], "replay")
    run.disconnect([link])
    return [record, phase]
