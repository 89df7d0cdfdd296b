"""What one session holds: messages on their way, messages that wait, and subscriptions that an
administrator makes for it."""

from __future__ import annotations

from typing import Annotated, Final, Literal, final

import msgspec
from msgspec import Meta

from perdure.admin.limits import ClientId, Cursor, Filter, Limit, Qos
from perdure.admin.operation import Http, Operation, Page, Request
from perdure.admin.records.messages import MessageHead
from perdure.admin.records.sessions import HeldSubscription

CONTENT_FILTER_CHARS_MAX: Final = 8_192


class OwedMessage(MessageHead, frozen=True, kw_only=True):
    """A message that a session is owed, without its payload.

    Attributes:
        serial: its number in the session's order.
        granted_qos: with which it is delivered.
    """

    serial: int
    granted_qos: int


@final
class InflightMessage(OwedMessage, frozen=True, kw_only=True):
    """A message that was sent and is not acknowledged.

    Attributes:
        packet_id: its packet identifier.
        awaits: what the client has to send: ``PUBACK``, ``PUBREC`` or ``PUBCOMP``.
    """

    packet_id: int
    awaits: Literal["PUBACK", "PUBREC", "PUBCOMP"]


@final
class InflightPage(Page[InflightMessage], frozen=True, kw_only=True):
    """A page of messages on their way, oldest first."""


@final
class PendingPage(Page[OwedMessage], frozen=True, kw_only=True):
    """A page of messages that wait, oldest first."""


@final
class InboundPacket(msgspec.Struct, frozen=True):
    """A QoS 2 message of the client, between PUBREC and PUBREL."""

    packet_id: int


@final
class AwaitingReleasePage(Page[InboundPacket], frozen=True, kw_only=True):
    """A page of packet identifiers, ascending."""


class ListInflight(Request[InflightPage], frozen=True, kw_only=True):
    """Messages that were sent to a client and that it has not acknowledged."""

    client_id: ClientId
    limit: Limit = 100
    cursor: Cursor = ""


class ListPending(Request[PendingPage], frozen=True, kw_only=True):
    """Messages that wait until a client is there, or its window has room."""

    client_id: ClientId
    limit: Limit = 100
    cursor: Cursor = ""


class ListAwaitingRelease(Request[AwaitingReleasePage], frozen=True, kw_only=True):
    """QoS 2 messages of a client that it has not released yet."""

    client_id: ClientId
    limit: Limit = 100
    cursor: Cursor = ""


class SubscribeSession(Request[HeldSubscription], frozen=True, kw_only=True):
    """Subscribe for a client, or change its subscription of that name.

    It is as durable as if the client had sent SUBSCRIBE, and bound by the same limits and the same
    ACL rules; each message is held to them as well. A session that is not connected has it from
    now on, and gets what was retained when it comes back. A shared subscription needs the client
    to be connected.

    Attributes:
        filter: topic filter; `$share/<group>/<filter>` for a shared one.
        qos, no_local, retain_as_published, retain_handling: its options.
        identifier: Subscription Identifier; 0 = none.
        where: content filter; empty = none.
    """

    client_id: ClientId
    filter: Filter
    qos: Qos = 1
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: Annotated[int, Meta(ge=0, le=2)] = 0
    identifier: Annotated[int, Meta(ge=0, le=268_435_455)] = 0
    where: Annotated[str, Meta(max_length=CONTENT_FILTER_CHARS_MAX)] = ""


@final
class SubscriptionEnded(msgspec.Struct, frozen=True):
    """A subscription that was ended."""

    client_id: str
    filter: str
    action: str = "unsubscribed"


class UnsubscribeSession(Request[SubscriptionEnded], frozen=True, kw_only=True):
    """End a client's subscription; what was matched already is still delivered.

    Attributes:
        filter: as `GET` shows it, `$share/<group>/` included.
    """

    client_id: ClientId
    filter: Filter


OPERATIONS: Final = (
    Operation(
        name="sessions.inflight",
        summary="Messages on their way to a client",
        request=ListInflight,
        result=InflightPage,
        http=Http("GET", "/sessions/{client_id}/inflight"),
    ),
    Operation(
        name="sessions.pending",
        summary="Messages that wait for a client",
        request=ListPending,
        result=PendingPage,
        http=Http("GET", "/sessions/{client_id}/pending"),
    ),
    Operation(
        name="sessions.awaiting_release",
        summary="QoS 2 messages of a client between PUBREC and PUBREL",
        request=ListAwaitingRelease,
        result=AwaitingReleasePage,
        http=Http("GET", "/sessions/{client_id}/awaiting-release"),
    ),
    Operation(
        name="sessions.subscribe",
        summary="Subscribe for a client",
        request=SubscribeSession,
        result=HeldSubscription,
        right="operator",
        changes=True,
        http=Http("POST", "/sessions/{client_id}/subscriptions", status=201),
        target="client_id",
    ),
    Operation(
        name="sessions.unsubscribe",
        summary="End a subscription of a client",
        request=UnsubscribeSession,
        result=SubscriptionEnded,
        right="operator",
        changes=True,
        http=Http("DELETE", "/sessions/{client_id}/subscriptions/{filter}"),
        target="client_id",
    ),
)
