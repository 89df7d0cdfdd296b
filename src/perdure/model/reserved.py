"""Topics whose messages are the broker's own records, as small named things; most are retained.

Every backend keeps, commits and replicates them there. No client may publish or subscribe to one.
"""

from __future__ import annotations

from typing import Final

FILTERS_PREFIX: Final = "$filters/"
"""Stored content filters (``content.stored``)."""

BANS_PREFIX: Final = "$bans/"
"""Bans of a cluster (``server.bans``)."""

FORWARDERS_PREFIX: Final = "$forwarders/"
"""Forwarders of a cluster that were added, and those that are paused (``forwarders.service``)."""

NODES_PREFIX: Final = "$nodes/"
"""What each node of a cluster says of itself; nobody keeps it (``server.administration``)."""

RETENTION_PREFIX: Final = "$retention/"
"""What a node asks the others for before it drops something; nobody keeps it
(``broker.retention.asked``)."""

RESERVED: Final = (
    FILTERS_PREFIX,
    BANS_PREFIX,
    FORWARDERS_PREFIX,
    NODES_PREFIX,
    RETENTION_PREFIX,
)


def is_reserved(topic: str) -> bool:
    """Whether a topic, or a topic filter, is below one of them."""
    return topic.startswith(RESERVED)
