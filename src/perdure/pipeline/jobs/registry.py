"""What is in a registry of subscriptions: channels, filters, devices and partitions, counted.

The rows are those of one table of everything (``perdure.registry.tables``), kept by an engine as of
``stats``: DuckDB in this process, or Spark. The queries are in SQL that both of them speak.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from perdure.errors import StorageUnavailable
from perdure.pipeline.jobs.stats import Engine

AGES_S: Final = (
    ("in the last hour", 3_600),
    ("in the last day", 86_400),
    ("in the last week", 7 * 86_400),
    ("in the last 30 days", 30 * 86_400),
)
"""Of devices that are not connected, by when something was heard of them."""

_ENTRIES: Final = "select distinct * from {found}"
_ERRORS: Final = "select text from {entries} where kind = 'error' limit 1"
_SUBSCRIPTIONS: Final = "select * from {entries} where kind = 'subscription'"
_TOTALS: Final = """
    select count(distinct channel) as channels, count(*) as subscriptions,
           count(case when filter_id != '' then 1 end) as filtered,
           count(distinct device_id) as subscribed_devices,
           (select count(*) from {entries} where kind = 'filter') as filters,
           (select count(*) from {entries} where kind = 'device') as devices,
           (select count(*) from {entries} where kind = 'device' and connected) as connected,
           count(distinct case when device_id not in
                 (select device_id from {entries} where kind = 'device') then device_id end)
                 as unknown_devices,
           count(case when misplaced then 1 end) as misplaced
    from {subscriptions}
"""
_CHANNELS: Final = """
    select channel, count(*) as subscriptions, count(distinct device_id) as devices,
           count(case when filter_id != '' then 1 end) as filtered,
           count(distinct case when filter_id != '' then filter_id end) as filters
    from {subscriptions} group by channel order by subscriptions desc, channel limit {top}
"""
_SIZES: Final = """
    with sized as (select channel, count(*) as size from {subscriptions} group by channel),
    classes as (
        select case when size = 1 then 1 when size <= 10 then 10 when size <= 100 then 100
                    when size <= 1000 then 1000 when size <= 10000 then 10000
                    when size <= 100000 then 100000 else 1000000 end as up_to, size
        from sized
    )
    select up_to, count(*) as channels, cast(sum(size) as bigint) as subscriptions
    from classes group by up_to order by up_to
"""
"""The last class has no upper bound."""
_FILTERS: Final = """
    with used as (
        select channel, filter_id, count(*) as subscriptions from {subscriptions}
        where filter_id != '' group by channel, filter_id
    ),
    known as (select channel, filter_id, text from {entries} where kind = 'filter')
    select coalesce(known.channel, used.channel) as channel,
           coalesce(known.filter_id, used.filter_id) as filter_id,
           coalesce(subscriptions, 0) as subscriptions, text as filter
    from known full outer join used
         on known.channel = used.channel and known.filter_id = used.filter_id
    order by {order}, 1, 2 limit {top}
"""
_ACTIVITY: Final = """
    with held as (
        select device_id, count(*) as subscriptions from {subscriptions} group by device_id
    ),
    known as (
        select case when connected then 'connected' {ages} when seen_s is null then 'never'
                    else 'longer ago' end as seen,
               case when connected then 0 else coalesce({now_s} - seen_s, 1e12) end as age_s,
               coalesce(subscriptions, 0) as subscriptions
        from (select * from {entries} where kind = 'device') as devices
             left join held on held.device_id = devices.device_id
    )
    select seen, count(*) as devices, cast(sum(subscriptions) as bigint) as subscriptions
    from known group by seen order by min(age_s), seen
"""
_TRANSPORTS: Final = """
    select transport, count(distinct device_id) as devices, count(*) as subscriptions
    from {subscriptions} group by transport order by subscriptions desc, transport limit {top}
"""
_PARTITIONS: Final = """
    select place as partition_id, count(*) as subscriptions, count(distinct channel) as channels
    from {subscriptions} group by place order by subscriptions desc, place
"""


class Analysis(msgspec.Struct, frozen=True):
    """Answers, as rows with plain values.

    Attributes:
        totals: of everything. ``unknown_devices`` subscribe and have no hash; ``misplaced`` are
            subscriptions that are not in the partition of their channel.
        channels: those with most subscriptions first.
        sizes: channels with so many subscriptions, in classes by powers of ten.
        filters: those with most subscriptions first. One without a text cannot be found by workers.
        unused: filters that nobody subscribes with.
        activity: devices by when something was heard of them.
        transports: of subscriptions.
        balance: of the partitions: mean and most subscriptions, and how many times the mean it is.
        partitions: those with most subscriptions first.
    """

    totals: dict[str, Any]
    channels: list[dict[str, Any]]
    sizes: list[dict[str, Any]]
    filters: list[dict[str, Any]]
    unused: list[dict[str, Any]]
    activity: list[dict[str, Any]]
    transports: list[dict[str, Any]]
    balance: dict[str, Any]
    partitions: list[dict[str, Any]]


def collect(engine: Engine, *, top: int, partitions: int, now_s: int) -> Analysis:
    """Count what is in a registry.

    Args:
        engine: whose frame ``found`` has the rows.
        top: rows of each ranking.
        partitions: of the registry.
        now_s: Unix time.

    Raises:
        StorageUnavailable: some of it could not be read.
    """
    engine.keep("entries", _ENTRIES)
    for failed in engine.rows(_ERRORS):
        raise StorageUnavailable(failed["text"])
    engine.keep("subscriptions", _SUBSCRIPTIONS)
    ages = " ".join(f"when {now_s} - seen_s <= {age} then '{name}'" for name, age in AGES_S)

    def rows(query: str, order: str = "subscriptions desc") -> list[dict[str, Any]]:
        values = {"top": top, "now_s": now_s, "ages": ages, "order": order}
        for name, value in values.items():
            query = query.replace(f"{{{name}}}", str(value))
        return engine.rows(query)

    totals = rows(_TOTALS)[0]
    places = rows(_PARTITIONS)
    mean = totals["subscriptions"] / partitions
    most = places[0]["subscriptions"] if places else 0
    balance = {
        "partitions": partitions,
        "in_use": len(places),
        "mean": round(mean, 1),
        "most": most,
        "most_by_mean": round(most / mean, 2) if mean else 0.0,
    }
    return Analysis(
        totals=totals,
        channels=rows(_CHANNELS),
        sizes=rows(_SIZES),
        filters=rows(_FILTERS),
        unused=[each for each in rows(_FILTERS, "3") if not each["subscriptions"]],
        activity=rows(_ACTIVITY),
        transports=rows(_TRANSPORTS),
        balance=balance,
        partitions=places[:top],
    )
