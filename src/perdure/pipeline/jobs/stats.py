"""Traffic of a log: by topic structure, client and hour, and which clients have gone silent.

What every answer needs is counted for each structure, client and second in one read, and kept by
the engine while answers are drawn from it. An **engine** is whatever runs the queries: DuckDB in
this process (``stats_here``), or Spark. The queries are the same, in SQL that both of them speak.

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

from typing import Any, Final, Protocol

import msgspec
import pyarrow as pa

from perdure.pipeline.structures import covering

SILENT_COUNT_MIN: Final = 10
SILENT_INTERVALS: Final = 10
COLUMNS: Final = ("structure", "client_id", "published_at", "payload")

_SECONDS: Final = """
    select structure, client_id, unix_seconds(published_at) as second,
           count(*) as messages, cast(sum(octet_length(payload)) as bigint) as bytes,
           min(published_at) as first, max(published_at) as last
    from {log} group by all
"""
_TOTALS: Final = """
    select cast(coalesce(sum(messages), 0) as bigint) as messages,
           cast(coalesce(sum(bytes), 0) as bigint) as bytes,
           count(distinct client_id) as clients,
           (select count(distinct covered_by) from {covers}) as structures,
           min(first) as first, max(last) as last
    from {seconds}
"""
_STRUCTURES: Final = """
    select covered_by as structure, cast(sum(messages) as bigint) as messages,
           cast(sum(bytes) as bigint) as bytes, count(distinct client_id) as clients,
           max(last) as last
    from {seconds} join {covers} using (structure)
    group by covered_by order by messages desc, covered_by limit {top}
"""
_CLIENTS: Final = """
    select client_id, cast(sum(messages) as bigint) as messages,
           cast(sum(bytes) as bigint) as bytes, count(distinct covered_by) as structures,
           max(last) as last
    from {seconds} join {covers} using (structure)
    group by client_id order by messages desc, client_id limit {top}
"""
_HOURS: Final = """
    select date_trunc('HOUR', first) as hour, cast(sum(messages) as bigint) as messages,
           cast(sum(bytes) as bigint) as bytes, count(distinct client_id) as clients
    from {seconds} group by 1 order by 1
"""
_SILENT: Final = """
    with moments as (
        select client_id, second, sum(messages) as messages, max(last) as last
        from {seconds} where client_id != '' group by client_id, second
    ),
    gaps as (
        select *, second - lag(second) over (partition by client_id order by second) as gap
        from moments
    ),
    clients as (
        select client_id, cast(sum(messages) as bigint) as messages, max(last) as last,
               percentile_cont(0.5) within group (order by gap) as interval_s
        from gaps group by client_id having sum(messages) >= {count_min}
    ),
    silences as (
        select *, (unix_micros((select max(last) from {seconds})) - unix_micros(last)) / 1e6
               as silent_s
        from clients where interval_s is not null
    )
    select client_id, messages, last, round(interval_s, 3) as interval_s,
           round(silent_s, 3) as silent_s
    from silences where silent_s > {intervals} * interval_s
    order by silent_s / interval_s desc, client_id limit {top}
"""


class Engine(Protocol):
    """Runs queries. A name in braces is a frame: ``log``, or what was kept since."""

    def keep(self, name: str, query: str) -> None:
        """Keep what a query finds, as a frame."""

    def add(self, name: str, table: Any) -> None:
        """Take an Arrow table for a frame."""

    def rows(self, query: str) -> list[dict[str, Any]]:
        """What a query finds."""


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


def collect(engine: Engine, *, top: int) -> Statistics:
    """Count what is in a log.

    Args:
        engine: whose frame ``log`` has ``COLUMNS``.
        top: rows of each ranking.
    """
    engine.keep("seconds", _SECONDS)
    structures = [
        row["structure"] for row in engine.rows("select distinct structure from {seconds}")
    ]
    names = pa.schema([("structure", pa.string()), ("covered_by", pa.string())])
    covers = [
        {"structure": each, "covered_by": general}
        for each, general in sorted(covering(structures).items())
    ]
    engine.add("covers", pa.Table.from_pylist(covers, schema=names))
    values = {"top": top, "count_min": SILENT_COUNT_MIN, "intervals": SILENT_INTERVALS}

    def rows(query: str) -> list[dict[str, Any]]:
        for name, value in values.items():
            query = query.replace(f"{{{name}}}", str(value))
        return engine.rows(query)

    return Statistics(
        totals=rows(_TOTALS)[0],
        structures=rows(_STRUCTURES),
        clients=rows(_CLIENTS),
        hours=rows(_HOURS),
        silent=rows(_SILENT),
    )
