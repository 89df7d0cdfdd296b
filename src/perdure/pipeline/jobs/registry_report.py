"""What is in a registry as one HTML page, of the same make as that of statistics. Pure."""

from __future__ import annotations

from perdure.pipeline.jobs.registry import Analysis
from perdure.pipeline.jobs.stats_report import number, page, table


def render(found: Analysis, *, title: str) -> str:
    """The page."""
    totals, balance = found.totals, found.balance
    summary = (
        f"<p>{number(totals['subscriptions'])} subscriptions of "
        f"{number(totals['subscribed_devices'])} devices to {number(totals['channels'])} channels, "
        f"{number(totals['filtered'])} with one of {number(totals['filters'])} filters; "
        f"{number(totals['devices'])} devices are known, {number(totals['connected'])} of them "
        f"connected. The busiest of {number(balance['partitions'])} partitions has "
        f"{number(balance['most'])} subscriptions, {number(balance['most_by_mean'])} times the "
        f"mean.</p>"
    )
    unused = table(found.unused) if found.unused else "<p>None.</p>"
    return page(
        title,
        summary,
        [
            ("Channels", table(found.channels, bar="subscriptions")),
            ("Sizes of channels, up to", table(found.sizes, bar="channels")),
            ("Filters by use", table(found.filters, bar="subscriptions")),
            ("Filters that nobody uses", unused),
            ("Devices by activity", table(found.activity, bar="devices")),
            ("Transports", table(found.transports, bar="subscriptions")),
            ("Partitions", table(found.partitions, bar="subscriptions")),
        ],
    )
