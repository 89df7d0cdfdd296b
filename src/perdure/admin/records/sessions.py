"""Sessions: listed, shown, ended."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias, final

import msgspec
from msgspec import Meta

from perdure.admin.limits import BULK_MAX, ClientId, Cursor, Limit
from perdure.admin.operation import Http, Operation, Page, Request

State: TypeAlias = Literal["connected", "offline", "expired"]
SessionSort: TypeAlias = Literal[
    "",
    "client_id",
    "changed_at",
    "-changed_at",
    "created_at",
    "-created_at",
    "dropped_count",
    "-dropped_count",
    "state",
    "-state",
    "subscription_count",
    "-subscription_count",
]


class SessionRow(msgspec.Struct, frozen=True, kw_only=True):
    """What a list shows of a session.

    Attributes:
        client_id: the client's identifier.
        state: ``expired`` = it is about to be deleted.
        node: the node that holds it; null = not connected to any.
        username: to whom it belongs; null = anonymous.
        protocol: of its last connection, ``3.1.1`` or ``5.0``; empty = none has come since a backup
            was restored.
        created_at, created_at_us: wall time.
        changed_at, changed_at_us: of its last connect or disconnect.
        expiry_s: Session Expiry Interval; null = never.
        expires_at, expires_at_us: when it ends; null = connected, or never.
        subscription_count: subscriptions that hold.
        dropped_count: messages that a limit has dropped since its creation.
        has_will: a will is waiting.
        epoch: grows with each resume and takeover.
    """

    client_id: str
    state: State
    node: str | None
    username: str | None
    protocol: str
    created_at: str | None
    created_at_us: int
    changed_at: str | None
    changed_at_us: int
    expiry_s: int | None
    expires_at: str | None
    expires_at_us: int | None
    subscription_count: int
    dropped_count: int
    has_will: bool
    epoch: int


@final
class HeldSubscription(msgspec.Struct, frozen=True, kw_only=True):
    """A subscription of one session.

    Attributes:
        filter: as the client wrote it, ``$share/{group}/`` included.
        qos, no_local, retain_as_published, retain_handling: its options.
        identifier: Subscription Identifier; null = none.
        where: its content filter; null = none.
        since, since_us: it holds for messages recorded after this.
        backfilling: ``retained``, ``archived`` or ``recorded`` while it is given older messages:
            those that are retained, and those that the archive or the log has; null = live.
        given_offset, given_at: up to where it was given recorded ones; null = it is live.
    """

    filter: str
    qos: int
    no_local: bool
    retain_as_published: bool
    retain_handling: int
    identifier: int | None
    where: str | None
    since: str | None
    since_us: int
    backfilling: str | None = None
    given_offset: int | None = None
    given_at: str | None = None


@final
class OldestUnacknowledged(msgspec.Struct, frozen=True, kw_only=True):
    """The oldest message that was sent and is not acknowledged.

    Attributes:
        serial, packet_id: its numbers.
        sent_after: messages that were sent after it.
        settled_after: how many of those are acknowledged.
        is_released: PUBREC came, only PUBCOMP is missing.
        is_blocking: no packet identifier is left, so nothing more is sent.
        awaits: what the client has to send.
        topic, published_at, published_at_us: of the message; null = it is not there any more.
    """

    serial: int
    packet_id: int
    sent_after: int
    settled_after: int
    is_released: bool
    is_blocking: bool
    awaits: str
    topic: str | None
    published_at: str | None
    published_at_us: int | None


@final
class SessionWill(msgspec.Struct, frozen=True, kw_only=True):
    """A will that waits.

    Attributes:
        topic, qos, retain, delay_s: as in CONNECT.
        payload_bytes: size of its payload.
        due_at: when it is published; null = not disconnected.
    """

    topic: str
    qos: int
    retain: bool
    delay_s: int
    payload_bytes: int
    due_at: str | None


@final
class LiveView(msgspec.Struct, frozen=True):
    """What memory knows of a connected session.

    Attributes:
        inflight: messages sent and not yet acknowledged.
        inflight_max: the window.
        pending: messages in memory that wait for the window.
        catching_up: it reads the log, and is not in the live flow yet.
        paused: its socket takes no more bytes now.
        address: of the client.
        listener: through which it came.
        position: offset up to which a session that reads the log has been given everything.
    """

    inflight: int
    inflight_max: int
    pending: int
    catching_up: bool
    paused: bool
    address: str = ""
    listener: str = ""
    position: int = 0


@final
class SessionDetail(SessionRow, frozen=True, kw_only=True):
    """Everything about one session.

    Attributes:
        subscriptions: that hold.
        acked_offset, acked_at, acked_serial: everything up to here is settled.
        sent_serial: highest serial number ever sent.
        unacknowledged: messages sent and not settled.
        oldest_unacknowledged: the oldest of them.
        awaiting_release: packet identifiers of QoS 2 messages of the client, between PUBREC and
            PUBREL.
        awaiting_completion: messages whose PUBREC came and whose PUBCOMP did not.
        owed_messages: in the log for it and not acknowledged.
        owed_is_exact: else it is at least that.
        will: that waits.
        live: only of a connected session.
    """

    subscriptions: list[HeldSubscription]
    acked_offset: int
    acked_at: str | None
    acked_serial: int
    sent_serial: int
    unacknowledged: int
    oldest_unacknowledged: OldestUnacknowledged | None
    awaiting_release: list[int]
    awaiting_completion: int
    owed_messages: int
    owed_is_exact: bool
    will: SessionWill | None = None
    live: LiveView | None = None


@final
class SessionPage(Page[SessionRow], frozen=True, kw_only=True):
    """A page of sessions, in client-id order (UTF-8) or the one that was asked for."""


@final
class Outcome(msgspec.Struct, frozen=True):
    """What was done to a session.

    Attributes:
        client_id: whose.
        action: ``kicked``, ``discarded``, ``given``, or ``not_found``.
    """

    client_id: str
    action: str


@final
class OutcomeList(msgspec.Struct, frozen=True):
    """What was done to each of several sessions, in the order in which they were named."""

    items: list[Outcome]


class ListSessions(Request[SessionPage], frozen=True, kw_only=True):
    """Which sessions.

    Attributes:
        limit: items of a page.
        cursor: of the page before.
        prefix: client ids that begin so; found without a scan.
        client_id_like: client ids that hold this text.
        connected: only connected ones (found without a scan), or only the others.
        state: only in this state.
        username: only of this user; empty = of anonymous clients.
        node: only on this node.
        created_from, created_until: RFC 3339, or microseconds.
        sort: a column, ``-`` before it for the greatest first. All but ``client_id`` take a look at
            every session that the filters name for each page: 10,000 of them, or 100,000 where
            ``connected`` leaves only those; more are refused.
    """

    limit: Limit = 100
    cursor: Cursor = ""
    sort: SessionSort = ""
    prefix: Annotated[str, Meta(max_length=65_535)] = ""
    client_id_like: Annotated[str, Meta(max_length=1_024)] = msgspec.field(
        name="client_id~", default=""
    )
    connected: bool | None = None
    state: State | None = None
    username: Annotated[str, Meta(max_length=65_535)] | None = None
    node: Annotated[str, Meta(max_length=256)] | None = None
    created_from: Annotated[str, Meta(max_length=40)] = msgspec.field(
        name="created_at>", default=""
    )
    created_until: Annotated[str, Meta(max_length=40)] = ""


class GetSession(Request[SessionDetail], frozen=True, kw_only=True):
    """One session."""

    client_id: ClientId


class KickSession(Request[Outcome], frozen=True, kw_only=True):
    """Close the connection; the session stays."""

    client_id: ClientId


class DiscardSession(Request[Outcome], frozen=True, kw_only=True):
    """Close the connection and delete the session with all it holds."""

    client_id: ClientId


class GiveSession(Request[Outcome], frozen=True, kw_only=True):
    """Give a session to a user; empty = to anonymous clients."""

    client_id: ClientId
    username: Annotated[str, Meta(max_length=65_535)]


class BulkKick(Request[OutcomeList], frozen=True, kw_only=True):
    """Close several connections."""

    client_ids: Annotated[list[ClientId], Meta(min_length=1, max_length=BULK_MAX)]


class BulkDiscard(Request[OutcomeList], frozen=True, kw_only=True):
    """Delete several sessions."""

    client_ids: Annotated[list[ClientId], Meta(min_length=1, max_length=BULK_MAX)]


OPERATIONS: Final = (
    Operation(
        name="sessions.list",
        summary="Sessions, filtered",
        request=ListSessions,
        result=SessionPage,
        http=Http("GET", "/sessions"),
    ),
    Operation(
        name="sessions.show",
        summary="Everything about a session",
        request=GetSession,
        result=SessionDetail,
        http=Http("GET", "/sessions/{client_id}"),
    ),
    Operation(
        name="sessions.discard",
        summary="Delete a session with all it holds",
        request=DiscardSession,
        result=Outcome,
        right="operator",
        changes=True,
        http=Http("DELETE", "/sessions/{client_id}"),
        target="client_id",
    ),
    Operation(
        name="sessions.kick",
        summary="Disconnect a client; its session stays",
        request=KickSession,
        result=Outcome,
        right="operator",
        changes=True,
        http=Http("DELETE", "/sessions/{client_id}/connection"),
        target="client_id",
    ),
    Operation(
        name="sessions.set_owner",
        summary="Give a session to a user",
        request=GiveSession,
        result=Outcome,
        right="admin",
        changes=True,
        http=Http("PUT", "/sessions/{client_id}/owner"),
        target="client_id",
    ),
    Operation(
        name="sessions.kick_all",
        summary="Disconnect several clients",
        request=BulkKick,
        result=OutcomeList,
        right="operator",
        changes=True,
        http=Http("POST", "/sessions:kick"),
        target="client_ids",
    ),
    Operation(
        name="sessions.discard_all",
        summary="Delete several sessions",
        request=BulkDiscard,
        result=OutcomeList,
        right="operator",
        changes=True,
        http=Http("POST", "/sessions:discard"),
        target="client_ids",
    ),
)
