"""What an entry of the table is made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, Literal, TypeAlias, TypeVar, final

import msgspec

from perdure.admin.rights import Role

R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")

Method: TypeAlias = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]


class Request(msgspec.Struct, Generic[R_co], frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request whose result is an ``R_co``."""


class Page(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """A part of a list.

    The work for one page is bounded, so a page may have fewer items than were asked for, or none,
    and go on all the same.

    Attributes:
        items: in a stable order.
        next_cursor: for the next page; None = this was the last one.
        estimated_total: items in the whole list; None = only a scan could tell.
    """

    items: list[T]
    next_cursor: str | None = None
    estimated_total: int | None = None


@final
class Http(msgspec.Struct, frozen=True):
    """Where an operation is found over HTTP.

    Attributes:
        method: of the request.
        path: below ``/api/v1``; what is in braces is a field of the request. The fields that are
            left over are in the query of GET and DELETE, and in the body of the others.
        status: of a success.
        idempotent: an ``Idempotency-Key`` is taken.
    """

    method: Method
    path: str
    status: int = 200
    idempotent: bool = False


@final
class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One operation.

    Attributes:
        name: ``resource.verb``.
        summary: one line, for the reference.
        request: class of the request.
        result: class of the result.
        right: the least role that may have it.
        changes: it changes something, so it is audited.
        http: its route; None = it is asked on the socket alone.
        target: field of the request that names what is changed.
        secret: fields of the request that no audit record holds.
        topics: the topics and filters that a request names, for principals that may have some only;
            None = it names none.
    """

    name: str
    summary: str
    request: type[Request[Any]]
    result: type[Any]
    right: Role = "viewer"
    changes: bool = False
    http: Http | None = None
    target: str = ""
    secret: tuple[str, ...] = ()
    topics: Callable[[Any], Sequence[str]] | None = None

    @property
    def resource(self) -> str:
        """The first half of the name."""
        return self.name.partition(".")[0]
