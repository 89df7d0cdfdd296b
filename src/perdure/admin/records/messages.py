"""Messages: published by an administrator, retained, recorded."""

from __future__ import annotations

from typing import Annotated, Final, final

import msgspec
from msgspec import Meta

from perdure.admin.limits import Cursor, Filter, Limit, Qos, Topic
from perdure.admin.operation import Http, Operation, Page, Request

BULK_MESSAGES_MAX: Final = 1_000
"""Messages of one request."""

KEY_CHARS_MAX: Final = 200

Text = Annotated[str, Meta(max_length=65_535)]


class MessageHead(msgspec.Struct, frozen=True, kw_only=True):
    """A message without its payload.

    Attributes:
        offset: place in the log; 0 = it is not recorded.
        topic, qos, retain: as published.
        publisher: client id; empty = the broker, or an administrator.
        published_at, published_at_us: when the broker took it.
        expires_at, expires_at_us: after that it is not delivered; null = never.
        payload_bytes: size of the payload.
        payload_format_indicator, content_type, response_topic, correlation_data, user_properties:
            MQTT 5.0 properties; null or empty = it has none.
    """

    offset: int
    topic: str
    qos: int
    retain: bool
    publisher: str
    published_at: str | None
    published_at_us: int
    expires_at: str | None
    expires_at_us: int | None
    payload_bytes: int
    payload_format_indicator: int | None = None
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    user_properties: list[tuple[str, str]] = []


@final
class MessageRow(MessageHead, frozen=True, kw_only=True):
    """A message.

    Attributes:
        payload: base64.
        payload_text: the same as text; null = it is not UTF-8.
    """

    payload: bytes
    payload_text: str | None


@final
class MessagePage(Page[MessageRow], frozen=True, kw_only=True):
    """A page of recorded messages, in the order of the log."""


@final
class RetainedPage(Page[MessageHead], frozen=True, kw_only=True):
    """A page of retained messages, in the order of their topics."""


@final
class Removed(msgspec.Struct, frozen=True):
    """A retained message that was deleted."""

    topic: str
    action: str = "deleted"


@final
class NewMessage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message to publish.

    Attributes:
        topic: topic name; none that begins with ``$``.
        payload: base64, or ``payload_text``; neither = empty.
        payload_text: text.
        qos: 1 and 2 are recorded.
        retain: it becomes the topic's retained message; an empty one clears it.
        message_expiry_interval: seconds.
        payload_format_indicator, content_type, response_topic, correlation_data, user_properties:
            MQTT 5.0 properties.
    """

    topic: Topic
    payload: bytes | None = None
    payload_text: str | None = None
    qos: Qos = 1
    retain: bool = False
    message_expiry_interval: Annotated[int, Meta(ge=0, le=0xFFFF_FFFF)] | None = None
    payload_format_indicator: Annotated[int, Meta(ge=0, le=1)] | None = None
    content_type: Text | None = None
    response_topic: Text | None = None
    correlation_data: Annotated[bytes, Meta(max_length=65_535)] | None = None
    user_properties: Annotated[list[tuple[Text, Text]], Meta(max_length=64)] = []


@final
class Published(msgspec.Struct, frozen=True, kw_only=True):
    """A message that was taken; what is recorded is on disk.

    Attributes:
        topic: where.
        offset: place in the log; null = it is not recorded.
        published_at, published_at_us: when it was taken.
    """

    topic: str
    offset: int | None
    published_at: str | None
    published_at_us: int


@final
class PublishedList(msgspec.Struct, frozen=True):
    """Messages that were taken, in the order in which they were named."""

    items: list[Published]


class Publish(Request[PublishedList], frozen=True, kw_only=True):
    """Publish messages: all or, if one of them may not be, none.

    Attributes:
        messages: in the order in which they are published.
        idempotency_key: the same key with the same messages publishes once, for ten minutes; over
            HTTP it is the header ``Idempotency-Key``.
    """

    messages: Annotated[list[NewMessage], Meta(min_length=1, max_length=BULK_MESSAGES_MAX)]
    idempotency_key: Annotated[str, Meta(max_length=KEY_CHARS_MAX)] = ""


class ListRetained(Request[RetainedPage], frozen=True, kw_only=True):
    """Retained messages that match a filter."""

    filter: Filter = "#"
    limit: Limit = 100
    cursor: Cursor = ""


class GetRetained(Request[MessageRow], frozen=True, kw_only=True):
    """The retained message of a topic."""

    topic: Topic


class DeleteRetained(Request[Removed], frozen=True, kw_only=True):
    """Delete it; subscribers are told nothing."""

    topic: Topic


class ReadLog(Request[MessagePage], frozen=True, kw_only=True):
    """Recorded messages.

    Attributes:
        database: ``log``.
        filter: topic filter.
        from_, until: RFC 3339, microseconds, or how long ago (``2h``).
        limit, cursor: of the page. A page is bounded in time and bytes, too.
    """

    database: str = "log"
    filter: Filter = "#"
    from_: Annotated[str, Meta(max_length=40)] = msgspec.field(name="from", default="")
    until: Annotated[str, Meta(max_length=40)] = ""
    limit: Limit = 100
    cursor: Cursor = ""


def _topics(request: Publish) -> list[str]:
    return [message.topic for message in request.messages]


OPERATIONS: Final = (
    Operation(
        name="messages.publish",
        summary="Publish messages; the answer comes when they are on disk",
        request=Publish,
        result=PublishedList,
        right="operator",
        changes=True,
        http=Http("POST", "/messages", idempotent=True),
        secret=("messages",),
        topics=_topics,
    ),
    Operation(
        name="messages.read",
        summary="Recorded messages by filter and time",
        request=ReadLog,
        result=MessagePage,
        http=Http("GET", "/storage/databases/{database}/messages"),
        topics=lambda request: [request.filter],
    ),
    Operation(
        name="retained.list",
        summary="Retained messages, without their payloads",
        request=ListRetained,
        result=RetainedPage,
        http=Http("GET", "/retained"),
        topics=lambda request: [request.filter],
    ),
    Operation(
        name="retained.show",
        summary="The retained message of a topic",
        request=GetRetained,
        result=MessageRow,
        http=Http("GET", "/retained/{topic}"),
        topics=lambda request: [request.topic],
    ),
    Operation(
        name="retained.delete",
        summary="Delete a retained message",
        request=DeleteRetained,
        result=Removed,
        right="operator",
        changes=True,
        http=Http("DELETE", "/retained/{topic}"),
        target="topic",
        topics=lambda request: [request.topic],
    ),
)
