"""Stored content filters."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias, final

import msgspec
from msgspec import Meta

from perdure.admin.limits import Cursor, Limit, Revision
from perdure.admin.operation import Http, Operation, Page, Request

FilterId: TypeAlias = Annotated[str, Meta(min_length=1, max_length=64)]


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """A content filter under an id.

    Attributes:
        id: clients subscribe to ``$filter/<id>/<topic filter>``.
        filter: its text.
        since, since_us: when it came to be so.
        state: ``settled``, or ``changing`` while stored sessions are given it.
        revision: changes with the text; for ``If-Match``.
    """

    id: str
    filter: str
    since: str
    since_us: int
    state: str
    revision: str


@final
class FilterStored(Filter, frozen=True, kw_only=True):
    """A filter that was stored.

    Attributes:
        changed: subscriptions of connected clients, and groups, that have it from now on.
    """

    changed: int


@final
class FilterDeleted(msgspec.Struct, frozen=True):
    """A filter that is forgotten."""

    id: str
    action: str = "deleted"


@final
class FilterPage(Page[Filter], frozen=True, kw_only=True):
    """A page of filters."""


class ListFilters(Request[FilterPage], frozen=True, kw_only=True):
    """All filters, by id.

    Attributes:
        sort: ``-`` before a column = the greatest first; empty = by the list's own key.
    """

    limit: Limit = 100
    cursor: Cursor = ""
    sort: Literal["", "since", "-since"] = ""


class GetFilter(Request[Filter], frozen=True, kw_only=True):
    """One filter."""

    id: FilterId


class PutFilter(Request[FilterStored], frozen=True, kw_only=True):
    """Store a filter, or change it for all who subscribe with it.

    Attributes:
        filter: its text, a JSON object.
        if_match: over HTTP the header ``If-Match``.
    """

    id: FilterId
    filter: Annotated[str, Meta(max_length=65_536)]
    if_match: Revision = ""


class DeleteFilter(Request[FilterDeleted], frozen=True, kw_only=True):
    """Forget a filter that nobody subscribes with.

    Attributes:
        if_match: over HTTP the header ``If-Match``.
    """

    id: FilterId
    if_match: Revision = ""


OPERATIONS: Final = (
    Operation(
        name="filters.list",
        summary="Stored content filters",
        request=ListFilters,
        result=FilterPage,
        http=Http("GET", "/filters"),
    ),
    Operation(
        name="filters.get",
        summary="One stored content filter",
        request=GetFilter,
        result=Filter,
        http=Http("GET", "/filters/{id}"),
    ),
    Operation(
        name="filters.put",
        summary="Store a content filter, or change it for all who subscribe with it",
        request=PutFilter,
        result=FilterStored,
        right="operator",
        changes=True,
        http=Http("PUT", "/filters/{id}"),
        target="id",
    ),
    Operation(
        name="filters.delete",
        summary="Forget a content filter that nobody subscribes with",
        request=DeleteFilter,
        result=FilterDeleted,
        right="operator",
        changes=True,
        http=Http("DELETE", "/filters/{id}"),
        target="id",
    ),
)
