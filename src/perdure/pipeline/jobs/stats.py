"""Traffic of a log: by topic structure, client and hour, and which clients have gone silent.

What all answers but one need is counted for each structure, client and hour in one read, and kept
by Spark while they are drawn from it.

Where the log learned that a level varies only after it had seen some values, those have structures
of their own (``rooms/0/humidity`` beside ``rooms/+/humidity``); they are counted with the one that
covers them.

A client is **silent** if it used to publish (``SILENT_COUNT_MIN`` messages or more) and has not
for ``SILENT_INTERVALS`` times its usual interval, as seen from the end of what was read. Its usual
interval is the median of those between the seconds in which it published: a device that publishes
five values at once each minute has one of a minute, and a night without it does not change that.

A session is **slow** if it has not settled what it is owed (``slow``).
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from perdure.pipeline.structures import covering

SILENT_COUNT_MIN: Final = 10
SILENT_INTERVALS: Final = 10
COLUMNS: Final = ("structure", "client_id", "published_at", "payload")

_CELLS: Final = """
    select structure, client_id, date_trunc('HOUR', published_at) as hour,
           count(*) as messages, sum(length(payload)) as bytes,
           min(published_at) as first, max(published_at) as last
    from {log} group by all
"""
_TOTALS: Final = """
    select coalesce(sum(messages), 0) as messages, coalesce(sum(bytes), 0) as bytes,
           count(distinct client_id) as clients,
           (select count(distinct covered_by) from {covers}) as structures,
           min(first) as first, max(last) as last
    from {cells}
"""
_STRUCTURES: Final = """
    select covered_by as structure, sum(messages) as messages, sum(bytes) as bytes,
           count(distinct client_id) as clients, max(last) as last
    from {cells} join {covers} using (structure)
    group by covered_by order by messages desc, covered_by limit {top}
"""
_CLIENTS: Final = """
    select client_id, sum(messages) as messages, sum(bytes) as bytes,
           count(distinct covered_by) as structures, max(last) as last
    from {cells} join {covers} using (structure)
    group by client_id order by messages desc, client_id limit {top}
"""
_HOURS: Final = """
    select hour, sum(messages) as messages, sum(bytes) as bytes,
           count(distinct client_id) as clients
    from {cells} group by hour order by hour
"""
_SILENT: Final = """
    with seconds as (
        select client_id, unix_seconds(published_at) as second, count(*) as messages,
               max(published_at) as last
        from {log} where client_id != '' group by client_id, second
    ),
    gaps as (
        select *, second - lag(second) over (partition by client_id order by second) as gap
        from seconds
    ),
    clients as (
        select client_id, sum(messages) as messages, max(last) as last,
               percentile_cont(0.5) within group (order by gap) as interval_s
        from gaps group by client_id having sum(messages) >= {count_min}
    ),
    silences as (
        select *, (unix_micros((select max(last) from {cells})) - unix_micros(last)) / 1e6
               as silent_s
        from clients where interval_s is not null
    )
    select client_id, messages, last, round(interval_s, 3) as interval_s,
           round(silent_s, 3) as silent_s
    from silences where silent_s > {intervals} * interval_s
    order by silent_s / interval_s desc, client_id limit {top}
"""


class Statistics(msgspec.Struct, frozen=True):
    """Answers, as rows with plain values; moments are aware datetimes.

    Attributes:
        totals: of everything that was read.
        structures, clients: those with most messages first.
        hours: in order.
        silent: the most conspicuous first.
        slow: sessions with most pending messages first; not from Spark, and so None from
            ``collect``: not looked at.
    """

    totals: dict[str, Any]
    structures: list[dict[str, Any]]
    clients: list[dict[str, Any]]
    hours: list[dict[str, Any]]
    silent: list[dict[str, Any]]
    slow: list[dict[str, Any]] | None = None


def collect(spark: Any, log: Any, *, top: int) -> Statistics:
    """Count what is in a log.

    Args:
        spark: a session.
        log: a frame with ``COLUMNS``.
        top: rows of each ranking.
    """
    cells = spark.sql(_CELLS, log=log).persist()
    try:
        structures = [row.structure for row in cells.select("structure").distinct().collect()]
        covers = spark.createDataFrame(
            sorted(covering(structures).items()), "structure string, covered_by string"
        )

        def rows(query: str, **values: int) -> list[dict[str, Any]]:
            text = query.replace("{top}", str(top))
            for name, value in values.items():
                text = text.replace(f"{{{name}}}", str(value))
            known = {"cells": cells, "covers": covers, "log": log}
            frames = {name: frame for name, frame in known.items() if f"{{{name}}}" in text}
            found: list[dict[str, Any]] = spark.sql(text, **frames).toArrow().to_pylist()
            return found

        return Statistics(
            totals=rows(_TOTALS)[0],
            structures=rows(_STRUCTURES),
            clients=rows(_CLIENTS),
            hours=rows(_HOURS),
            silent=rows(_SILENT, count_min=SILENT_COUNT_MIN, intervals=SILENT_INTERVALS),
        )
    finally:
        cells.unpersist()
