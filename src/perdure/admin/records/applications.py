"""Applications, each with a Kafka topic."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias, final

import msgspec
from msgspec import Meta

from perdure.admin.limits import Cursor, Limit
from perdure.admin.operation import Http, Operation, Page, Request

Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=1024)]


@final
class Application(msgspec.Struct, frozen=True, kw_only=True):
    """One application.

    Attributes:
        topic: Kafka topic of what it subscribes to.
        filters: topic filters.
        consumer_groups: of Kafka's readers, from ``$share/<group>/<filter>``.
        forwarder: that fills the topic; ``perdure forwarders`` pauses and resumes it.
        state, lag_messages, forwarded, error: of the forwarder.
    """

    name: str
    topic: str
    filters: list[str]
    consumer_groups: list[str]
    forwarder: str
    state: str
    lag_messages: int
    forwarded: int
    error: str


@final
class ApplicationPage(Page[Application], frozen=True, kw_only=True):
    """A page of applications."""


@final
class ApplicationChanged(msgspec.Struct, frozen=True, kw_only=True):
    """An application was ``added``, ``changed`` or ``removed``."""

    name: str
    action: str


class ListApplications(Request[ApplicationPage], frozen=True, kw_only=True):
    """All applications, by name."""

    limit: Limit = 100
    cursor: Cursor = ""


class ShowApplication(Request[Application], frozen=True, kw_only=True):
    """One application."""

    name: Name


class AddApplication(Request[ApplicationChanged], frozen=True, kw_only=True):
    """Add an application that lasts through restarts, or change its filters.

    Attributes:
        filters: topic filters; ``$share/<group>/<filter>`` names a consumer group.
    """

    name: Name
    filters: Annotated[list[str], Meta(min_length=1, max_length=1000)]


class RemoveApplication(Request[ApplicationChanged], frozen=True, kw_only=True):
    """Remove an application that was added; its Kafka topic stays."""

    name: Name


OPERATIONS: Final = (
    Operation(
        name="applications.list",
        summary="Applications and their Kafka topics",
        request=ListApplications,
        result=ApplicationPage,
        http=Http("GET", "/applications"),
    ),
    Operation(
        name="applications.show",
        summary="One application",
        request=ShowApplication,
        result=Application,
        http=Http("GET", "/applications/{name}"),
    ),
    Operation(
        name="applications.add",
        summary="Add an application, or change its filters",
        request=AddApplication,
        result=ApplicationChanged,
        right="admin",
        changes=True,
        http=Http("PUT", "/applications/{name}"),
        target="name",
    ),
    Operation(
        name="applications.remove",
        summary="Remove an application; its topic stays",
        request=RemoveApplication,
        result=ApplicationChanged,
        right="admin",
        changes=True,
        http=Http("DELETE", "/applications/{name}"),
        target="name",
    ),
)
