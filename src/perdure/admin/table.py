"""The one table of operations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from perdure.admin.operation import Operation, Request
from perdure.admin.records import (
    access,
    applications,
    bans,
    cluster,
    config,
    explain,
    filters,
    forwarders,
    identity,
    listeners,
    messages,
    node,
    pipeline,
    session_parts,
    sessions,
    storage,
    subscriptions,
    timeline,
    tokens,
    trace,
    watch,
)

OPERATIONS: Final[Mapping[str, Operation]] = {
    each.name: each
    for table in (
        node.OPERATIONS,
        cluster.OPERATIONS,
        sessions.OPERATIONS,
        session_parts.OPERATIONS,
        explain.OPERATIONS,
        bans.OPERATIONS,
        filters.OPERATIONS,
        storage.OPERATIONS,
        pipeline.OPERATIONS,
        forwarders.OPERATIONS,
        applications.OPERATIONS,
        identity.OPERATIONS,
        timeline.OPERATIONS,
        watch.OPERATIONS,
        subscriptions.OPERATIONS,
        messages.OPERATIONS,
        listeners.OPERATIONS,
        access.OPERATIONS,
        tokens.OPERATIONS,
        config.OPERATIONS,
        trace.OPERATIONS,
    )
    for each in table
}

_BY_REQUEST: Final[Mapping[type[Request[Any]], Operation]] = {
    each.request: each for each in OPERATIONS.values()
}


def operation_of(request: type[Request[Any]]) -> Operation:
    """The operation that takes requests of a class."""
    return _BY_REQUEST[request]
