"""Who a request comes from: the one place where its credentials are looked at.

Sources are asked in turn, the first that knows the request's credentials says who it is. What
that one may do is decided by ``admin.rights``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, final

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import Scope

from perdure.admin.rights import Principal
from perdure.web.problems import ApiError
from perdure.web.tokens import Tokens


class PrincipalSource(Protocol):
    """Knows one kind of credentials."""

    async def resolve(self, scope: Scope) -> Principal | None:
        """Who sent a request; None = it has no credentials of this kind, or wrong ones.

        Raises:
            ApiError: it has, and is refused nevertheless.
        """
        ...


@final
class TokenSource:
    """Bearer tokens of a file: whoever has one is an admin.

    Args:
        tokens: of the file.
        report: writes to the log.
    """

    def __init__(self, tokens: Tokens, report: Callable[..., None]) -> None:
        self._tokens = tokens
        self._report = report

    async def resolve(self, scope: Scope) -> Principal | None:
        """Compare the token."""
        tokens = self._tokens
        if not tokens.knows(Headers(scope=scope).get("authorization", "")):
            if tokens.problem:
                self._report("http.token_file_unreadable", reason=tokens.problem)
            return None
        return Principal("token", "admin", source="token", peer=peer_of(scope))


@final
class Principals:
    """All sources.

    Args:
        sources: in the order in which they are asked.
    """

    def __init__(self, sources: Sequence[PrincipalSource]) -> None:
        self._sources = tuple(sources)

    async def resolve(self, scope: Scope) -> Principal:
        """Who sent a request.

        Raises:
            ApiError: nobody that is known.
        """
        for source in self._sources:
            principal = await source.resolve(scope)
            if principal is not None:
                return principal
        raise ApiError(
            "unauthorized",
            "this needs a token: Authorization: Bearer TOKEN",
            hint="http.token_file holds the tokens",
        )


def peer_of(scope: Scope) -> str:
    """The address that a request comes from; empty = none is known."""
    client = scope.get("client")
    return str(client[0]) if client else ""


def principal_of(request: Request) -> Principal:
    """Who sent a request that has passed the guard."""
    principal: Principal = request.scope["state"]["principal"]
    return principal
