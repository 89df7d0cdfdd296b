"""The log as a line of time: its generations, what retention drops next, who stands where on it."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, final

import msgspec

from perdure.admin.operation import Http, Operation, Request

Reason: TypeAlias = Literal["age", "size"]

SESSIONS_SAMPLED_MAX: Final = 500
"""Stored sessions whose cursors are looked at; connected ones come on top, as many."""


@final
class TimelineGeneration(msgspec.Struct, frozen=True, kw_only=True):
    """A time slice of the log.

    Attributes:
        generation: number, from 1.
        since, since_us: when it was begun.
        until, until_us: when the next one was begun; null = it is the current one.
        messages, bytes, streams: what is in it.
        drops_at, drops_at_us: when retention drops it at the latest; null = not by age.
        drops_for: what has been reached already: it goes with the next look.
        waits_for: pipeline that has still to read it; it stays until then.
        sessions: of those looked at, how many stand in it.
    """

    generation: int
    since: str | None
    since_us: int
    until: str | None
    until_us: int | None
    messages: int
    bytes: int
    streams: int
    drops_at: str | None
    drops_at_us: int | None
    drops_for: Reason | None
    waits_for: str | None
    sessions: int


@final
class TimelineCursor(msgspec.Struct, frozen=True, kw_only=True):
    """How far a session has come.

    Attributes:
        client_id: whose.
        at, at_us: the last message up to which all is settled was recorded then.
        connected: it is on its way.
    """

    client_id: str
    at: str | None
    at_us: int
    connected: bool


@final
class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """The whole line.

    Attributes:
        as_of, as_of_us: when it was so.
        generations: oldest first.
        bytes: of the log.
        disk_bytes: of the data directory; null = it is in a server.
        keeps_s, keeps_bytes: retention by age and size; null = without end.
        rotates_s, rotates_bytes: a generation ends when one of them is reached.
        checks_s: how often retention looks.
        cursors: of sessions, the furthest back first.
        cursors_sampled: how many were looked at.
        sessions_total: how many there are.
    """

    as_of: str | None
    as_of_us: int
    generations: list[TimelineGeneration]
    bytes: int
    disk_bytes: int | None
    keeps_s: int | None
    keeps_bytes: int | None
    rotates_s: int
    rotates_bytes: int
    checks_s: int
    cursors: list[TimelineCursor]
    cursors_sampled: int
    sessions_total: int


class GetTimeline(Request[Timeline], frozen=True, kw_only=True):
    """The log as a line of time."""


OPERATIONS: Final = (
    Operation(
        name="storage.timeline",
        summary="The log as a line of time: generations, retention, cursors of sessions",
        request=GetTimeline,
        result=Timeline,
        http=Http("GET", "/storage/timeline"),
    ),
)
