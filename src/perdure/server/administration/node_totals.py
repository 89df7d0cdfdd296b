"""The overviews of several nodes as one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from perdure.admin.records.node import ALL_NODES, Overview, Rates
from perdure.server.administration.history import LATENCIES

WORST_FIRST: Final = ("failed", "stalled", "refusing", "ok")
"""States of a store."""

SUMMED: Final = (
    "connections",
    "sessions_connected",
    "subscriptions_connected",
    "inflight_messages",
    "pending_messages",
    "messages_received",
    "messages_delivered",
    "messages_dropped",
)
"""What each node has of its own."""


def total(overviews: Sequence[Overview], *, unheard: Sequence[str] = ()) -> Overview:
    """All of them together.

    Args:
        overviews: of the members; what all nodes have alike is taken from the first one.
        unheard: members of which there is none.
    """
    first = overviews[0]
    sums = {name: sum(getattr(each, name) for each in overviews) for name in SUMMED}
    dropped: Counter[str] = Counter()
    for each in overviews:
        dropped.update(each.messages_dropped_by)
    oldest = min(overviews, key=lambda each: each.as_of_us)
    youngest = min(overviews, key=lambda each: each.uptime_s)
    wrong = [each for each in overviews if each.storage != "ok"]
    return msgspec.structs.replace(
        first,
        **sums,
        node=ALL_NODES,
        phase=next((each.phase for each in overviews if each.phase != "serving"), "serving"),
        version=", ".join(sorted({each.version for each in overviews})),
        build=", ".join(sorted({each.build for each in overviews})),
        started_at=youngest.started_at,
        started_at_us=youngest.started_at_us,
        uptime_s=youngest.uptime_s,
        storage=min((each.storage for each in overviews), key=_rank),
        storage_reason="; ".join(f"{each.node}: {each.storage_reason}" for each in wrong),
        subscriptions=sums["subscriptions_connected"] + first.subscriptions_offline,
        messages_dropped_by=dict(dropped),
        as_of=oldest.as_of,
        as_of_us=oldest.as_of_us,
        unheard=list(unheard),
        cluster_lag=max(
            (each.cluster_lag for each in overviews if each.cluster_lag is not None), default=None
        ),
        rates=_rates([each.rates for each in overviews]),
        open_files=_sum(each.open_files for each in overviews),
        memory_bytes=_sum(each.memory_bytes for each in overviews),
        cpu_s=round(sum(each.cpu_s for each in overviews), 3),
        event_loop_lag_us=max(each.event_loop_lag_us for each in overviews),
    )


def _rank(storage: str) -> int:
    """The worse the lower; what a later release says is the worst."""
    return WORST_FIRST.index(storage) if storage in WORST_FIRST else -1


def _rates(found: Sequence[Rates]) -> Rates:
    made: dict[str, float | None] = {}
    for name in Rates.__struct_fields__:
        values = [getattr(each, name) for each in found]
        if name == "window_s" or name in LATENCIES:
            made[name] = max((each for each in values if each is not None), default=None)
        else:
            # What one does not know yet, nobody knows of all.
            made[name] = None if None in values else round(sum(values), 3)
    return msgspec.convert(made, Rates)


def _sum(values: Iterable[int | None]) -> int | None:
    found = list(values)
    return None if None in found else sum(each for each in found if each is not None)
