"""Login tokens of devices, browsers and programs, in the store that ``auth.tokens`` names."""

from __future__ import annotations

from typing import Annotated, Final, final

import msgspec
from msgspec import Meta

from perdure.admin.limits import Cursor, Limit
from perdure.admin.operation import Http, Operation, Page, Request


class TokenRow(msgspec.Struct, frozen=True, kw_only=True):
    """A token that holds.

    Attributes:
        id: its name in lists, which cannot be presented.
        identity: the user name of who presents it.
        expires_at, expires_at_us: when it ends.
        client_id: pattern of the client identifiers that may use it; empty = any.
        rights: rules in the words of the ACL file; empty = that file alone says them.
    """

    id: str
    identity: str
    expires_at: str | None
    expires_at_us: int
    client_id: str
    rights: list[str]


@final
class TokenMade(TokenRow, frozen=True, kw_only=True):
    """A token that was issued.

    Attributes:
        token: what is presented, as a password, a bearer token or a cookie; it is told this once.
    """

    token: str


@final
class TokenPage(Page[TokenRow], frozen=True, kw_only=True):
    """A page of tokens, in no order that means something."""


@final
class TokenRevoked(msgspec.Struct, frozen=True, kw_only=True):
    """A token was revoked.

    Attributes:
        checked: connected clients of its identity that are being asked about again; who presented
            it is disconnected.
    """

    id: str
    identity: str
    action: str = "revoked"
    checked: int


class ListTokens(Request[TokenPage], frozen=True, kw_only=True):
    """Tokens that hold.

    Attributes:
        identity: only its tokens; found by looking at all, some thousand for a page.
    """

    limit: Limit = 100
    cursor: Cursor = ""
    identity: Annotated[str, Meta(max_length=255)] = ""


class IssueToken(Request[TokenMade], frozen=True, kw_only=True):
    """Issue a token.

    Attributes:
        expires: RFC 3339, or how long from now on (``30d``).
        client_id: pattern that the client identifier must match (``*``, ``?``, ``[...]``).
        rights: such as ``read public/#``.
    """

    identity: Annotated[str, Meta(min_length=1, max_length=255)]
    expires: Annotated[str, Meta(min_length=1, max_length=40)] = "30d"
    client_id: Annotated[str, Meta(max_length=255)] = ""
    rights: Annotated[tuple[Annotated[str, Meta(max_length=1_024)], ...], Meta(max_length=64)] = ()


class RevokeToken(Request[TokenRevoked], frozen=True, kw_only=True):
    """Revoke a token; who is connected by it is disconnected."""

    id: Annotated[str, Meta(min_length=64, max_length=64)]


OPERATIONS: Final = (
    Operation(
        name="tokens.list",
        summary="Login tokens of devices, browsers and programs",
        request=ListTokens,
        result=TokenPage,
        right="operator",
        http=Http("GET", "/tokens"),
    ),
    Operation(
        name="tokens.issue",
        summary="Issue a token, which is shown this once",
        request=IssueToken,
        result=TokenMade,
        right="admin",
        changes=True,
        http=Http("POST", "/tokens", status=201),
        target="identity",
    ),
    Operation(
        name="tokens.revoke",
        summary="Revoke a token",
        request=RevokeToken,
        result=TokenRevoked,
        right="operator",
        changes=True,
        http=Http("DELETE", "/tokens/{id}"),
        target="id",
    ),
)
