"""What goes to other systems, and how far it is."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeAlias, final

import msgspec
from msgspec import Meta

from perdure.admin.limits import Cursor, Limit, Revision
from perdure.admin.operation import Http, Operation, Page, Request

Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=64)]
Given: TypeAlias = str | int | bool | list[str]
"""A setting as it is given: as a file has it, or as text."""


class Forwarder(msgspec.Struct, frozen=True, kw_only=True):
    """One forwarder.

    Attributes:
        state: ``connecting``, ``running``, ``retrying``, ``paused``, ``stopped`` (somebody has to
            change something) or ``standby`` (another node runs it).
        lag_messages: messages of the log that it has still to look at, at most.
        lag_s: age of the oldest of them.
        forwarded, received: messages since the start of the process, out and in.
        refused, expired, loops, invalid: messages that were passed over, by reason.
        gaps: times that retention has dropped messages before they were forwarded.
        failures: times that its target was lost or could not be reached.
        offset, position: everything up to here is forwarded; null = it has never run.
        error: why it does not run, or what it failed with last.
        node: of a cluster, that runs it; null = none does, or there is no cluster.
    """

    name: str
    type: str
    state: str
    lag_messages: int
    lag_s: int
    forwarded: int
    received: int
    refused: int
    expired: int
    loops: int
    invalid: int
    gaps: int
    failures: int
    offset: int
    position: str | None
    error: str
    node: str | None


@final
class ForwarderDetails(Forwarder, frozen=True, kw_only=True):
    """One forwarder and what it was told.

    Attributes:
        configured: it is in the configuration, and can only be changed there.
        settings: those that are not the defaults; secrets are hidden.
        revision: changes with each setting, hidden ones too; for ``If-Match``.
    """

    configured: bool
    settings: dict[str, Any]
    revision: str = ""


@final
class ForwarderPage(Page[Forwarder], frozen=True, kw_only=True):
    """A page of forwarders."""


@final
class ForwarderChanged(msgspec.Struct, frozen=True, kw_only=True):
    """A forwarder was ``added``, ``changed``, ``removed``, ``paused`` or ``resumed``."""

    name: str
    action: str


class ListForwarders(Request[ForwarderPage], frozen=True, kw_only=True):
    """All forwarders, by name.

    Attributes:
        sort: ``-`` before a column = the greatest first; empty = by the list's own key.
    """

    limit: Limit = 100
    cursor: Cursor = ""
    sort: Literal["", "state", "-state", "lag", "-lag", "failures", "-failures"] = ""


class ShowForwarder(Request[ForwarderDetails], frozen=True, kw_only=True):
    """One forwarder."""

    name: Name


class AddForwarder(Request[ForwarderChanged], frozen=True, kw_only=True):
    """Add a forwarder that lasts through restarts, or change one that was added.

    Attributes:
        settings: as below ``forwarders.<name>`` of the configuration, ``type`` included.
        if_match: over HTTP the header ``If-Match``.
    """

    name: Name
    settings: Annotated[dict[str, Given], Meta(max_length=100)]
    if_match: Revision = ""


class RemoveForwarder(Request[ForwarderChanged], frozen=True, kw_only=True):
    """Remove a forwarder that was added, and its cursor.

    Attributes:
        if_match: over HTTP the header ``If-Match``.
    """

    name: Name
    if_match: Revision = ""


class PauseForwarder(Request[ForwarderChanged], frozen=True, kw_only=True):
    """Let a forwarder rest; what it has to forward is kept."""

    name: Name


class ResumeForwarder(Request[ForwarderChanged], frozen=True, kw_only=True):
    """Let a paused or stopped forwarder go on where it was."""

    name: Name


OPERATIONS: Final = (
    Operation(
        name="forwarders.list",
        summary="Bridges and sinks, and how far they are",
        request=ListForwarders,
        result=ForwarderPage,
        http=Http("GET", "/forwarders"),
    ),
    Operation(
        name="forwarders.show",
        summary="One forwarder, with its settings",
        request=ShowForwarder,
        result=ForwarderDetails,
        http=Http("GET", "/forwarders/{name}"),
    ),
    Operation(
        name="forwarders.add",
        summary="Add a forwarder, or change one that was added",
        request=AddForwarder,
        result=ForwarderChanged,
        right="admin",
        changes=True,
        http=Http("PUT", "/forwarders/{name}"),
        target="name",
        secret=("settings",),
    ),
    Operation(
        name="forwarders.remove",
        summary="Remove a forwarder and its cursor",
        request=RemoveForwarder,
        result=ForwarderChanged,
        right="admin",
        changes=True,
        http=Http("DELETE", "/forwarders/{name}"),
        target="name",
    ),
    Operation(
        name="forwarders.pause",
        summary="Let a forwarder rest",
        request=PauseForwarder,
        result=ForwarderChanged,
        right="operator",
        changes=True,
        http=Http("POST", "/forwarders/{name}/pause"),
        target="name",
    ),
    Operation(
        name="forwarders.resume",
        summary="Let a forwarder go on",
        request=ResumeForwarder,
        result=ForwarderChanged,
        right="operator",
        changes=True,
        http=Http("POST", "/forwarders/{name}/resume"),
        target="name",
    ),
)
