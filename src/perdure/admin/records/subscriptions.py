"""Subscriptions of all sessions, who gets a topic, and shared groups."""

from __future__ import annotations

from typing import Annotated, Final, final

import msgspec
from msgspec import Meta

from perdure.admin.limits import ClientId, Cursor, Limit, Topic
from perdure.admin.operation import Http, Operation, Page, Request

Prefix = Annotated[str, Meta(max_length=65_535)]


class SubscriptionRow(msgspec.Struct, frozen=True, kw_only=True):
    """One subscription.

    Attributes:
        client_id: whose.
        connected: its session is connected.
        node: to which node; null = it is not.
        filter: as the client wrote it, ``$share/{group}/`` included.
        group: of a shared subscription; null = it is none.
        qos, no_local, retain_as_published, retain_handling, identifier, where, since, since_us,
        backfilling, given_offset, given_at: see a session's subscriptions.
    """

    client_id: str
    connected: bool
    node: str | None
    filter: str
    group: str | None
    qos: int
    no_local: bool
    retain_as_published: bool
    retain_handling: int
    identifier: int | None
    where: str | None
    since: str | None
    since_us: int
    backfilling: str | None
    given_offset: int | None
    given_at: str | None


@final
class SubscriptionPage(Page[SubscriptionRow], frozen=True, kw_only=True):
    """A page of subscriptions, by client id and filter. If their filters must hold a text, or be of
    a group, those of connected sessions come first, and the others by filter and client id."""


@final
class Match(SubscriptionRow, frozen=True, kw_only=True):
    """A subscription that a topic matches.

    Attributes:
        allowed: the ACL lets the client have the topic; null = its next login says so.
    """

    allowed: bool | None


@final
class MatchPage(Page[Match], frozen=True, kw_only=True):
    """Connected sessions first, by client id; then the others, by filter and client id."""


@final
class SharedGroupRow(msgspec.Struct, frozen=True, kw_only=True):
    """A group of a shared subscription.

    Attributes:
        group, filter: its share name and topic filter.
        where: its content filter; null = none.
        members: connected ones, a hundred at most.
        members_connected, members_durable: how many are connected, and how many are kept.
        position, position_at: everything up to here was given to a member.
        lagging: it reads the log, and is not in the live flow.
        returned: messages that came back from members and are to be given again.
        lag_messages, lag_is_exact: in the log for it and not given yet; else it is at least that.
        created_at, created_at_us: wall time.
    """

    group: str
    filter: str
    where: str | None
    members: list[str]
    members_connected: int
    members_durable: int
    position: int
    position_at: str | None
    lagging: bool
    returned: int
    lag_messages: int
    lag_is_exact: bool
    created_at: str | None
    created_at_us: int


@final
class SharedGroupPage(Page[SharedGroupRow], frozen=True, kw_only=True):
    """A page of groups, by name and filter."""


class ListSubscriptions(Request[SubscriptionPage], frozen=True, kw_only=True):
    """Which subscriptions.

    Attributes:
        limit, cursor: of the page.
        client_id: only of this one; empty = of all.
        prefix: client ids that begin so.
        connected: only of connected sessions, or only of the others.
        filter_like: filters that hold this text.
        group: only of this shared group; empty = only those that are not shared.
        qos: only with this QoS.
    """

    limit: Limit = 100
    cursor: Cursor = ""
    client_id: Prefix = ""
    prefix: Prefix = ""
    connected: bool | None = None
    filter_like: Prefix = msgspec.field(name="filter~", default="")
    group: Prefix | None = None
    qos: Annotated[int, Meta(ge=0, le=2)] | None = None


class SessionSubscriptions(Request[SubscriptionPage], frozen=True, kw_only=True):
    """Subscriptions of one session."""

    client_id: ClientId
    limit: Limit = 100
    cursor: Cursor = ""


class MatchTopic(Request[MatchPage], frozen=True, kw_only=True):
    """Who would be given a message on a topic.

    Attributes:
        topic: topic name.
        connected: only connected sessions, or only the others.
    """

    topic: Topic
    limit: Limit = 100
    cursor: Cursor = ""
    connected: bool | None = None


class ListSharedGroups(Request[SharedGroupPage], frozen=True, kw_only=True):
    """All shared groups."""

    limit: Limit = 100
    cursor: Cursor = ""


OPERATIONS: Final = (
    Operation(
        name="subscriptions.list",
        summary="Subscriptions, filtered",
        request=ListSubscriptions,
        result=SubscriptionPage,
        http=Http("GET", "/subscriptions"),
    ),
    Operation(
        name="subscriptions.of_session",
        summary="Subscriptions of a session",
        request=SessionSubscriptions,
        result=SubscriptionPage,
        http=Http("GET", "/sessions/{client_id}/subscriptions"),
    ),
    Operation(
        name="subscriptions.match",
        summary="Who gets messages on a topic",
        request=MatchTopic,
        result=MatchPage,
        http=Http("GET", "/subscriptions/match"),
        topics=lambda request: [request.topic],
    ),
    Operation(
        name="shared_groups.list",
        summary="Shared groups, their members and how far they are behind",
        request=ListSharedGroups,
        result=SharedGroupPage,
        http=Http("GET", "/shared-groups"),
    ),
)
