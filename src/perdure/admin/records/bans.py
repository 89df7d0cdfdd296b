"""Who is kept out."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias, final

import msgspec
from msgspec import Meta

from perdure.admin.limits import Cursor, Limit
from perdure.admin.operation import Http, Operation, Page, Request

BanKind: TypeAlias = Literal["client_id", "username", "address", "login"]
Value: TypeAlias = Annotated[str, Meta(min_length=1, max_length=65_535)]


class Ban(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who is kept out.

    Attributes:
        kind: what ``value`` is; ``login`` = failed logins of a user from an address, which the
            broker alone bans.
        value: client identifier, user name, address or network.
        until, until_us: when it ends; null = never.
        since, since_us: when it was made.
        reason: for operators.
    """

    kind: str
    value: str
    until: str | None
    until_us: int | None
    since: str | None
    since_us: int
    reason: str


@final
class BanMade(Ban, frozen=True, kw_only=True):
    """A ban that was made.

    Attributes:
        closed: connections that it has closed.
    """

    closed: int


@final
class BanRemoved(msgspec.Struct, frozen=True):
    """A ban that was taken back."""

    kind: str
    value: str
    action: str = "removed"


@final
class BanPage(Page[Ban], frozen=True, kw_only=True):
    """A page of bans."""


class ListBans(Request[BanPage], frozen=True, kw_only=True):
    """All bans, in the order of kind and value.

    Attributes:
        sort: ``-`` before a column = the greatest first; empty = by the list's own key.
    """

    limit: Limit = 100
    cursor: Cursor = ""
    sort: Literal["", "since", "-since", "until", "-until"] = ""


class AddBan(Request[BanMade], frozen=True, kw_only=True):
    """Keep somebody out from now on; who is connected is disconnected.

    Attributes:
        until: RFC 3339; null = for ever.
    """

    kind: Literal["client_id", "username", "address"]
    value: Value
    reason: Annotated[str, Meta(max_length=1_024)] = ""
    until: Annotated[str, Meta(max_length=40)] | None = None


class RemoveBan(Request[BanRemoved], frozen=True, kw_only=True):
    """Take a ban back, as it was made."""

    kind: BanKind
    value: Value


OPERATIONS: Final = (
    Operation(
        name="bans.list",
        summary="Who is kept out",
        request=ListBans,
        result=BanPage,
        http=Http("GET", "/bans"),
    ),
    Operation(
        name="bans.add",
        summary="Keep somebody out, and disconnect whom it means",
        request=AddBan,
        result=BanMade,
        right="operator",
        changes=True,
        http=Http("POST", "/bans", status=201),
        target="value",
    ),
    Operation(
        name="bans.remove",
        summary="Take a ban back",
        request=RemoveBan,
        result=BanRemoved,
        right="operator",
        changes=True,
        http=Http("DELETE", "/bans/{kind}/{value}"),
        target="value",
    ),
)
