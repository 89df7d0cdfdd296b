"""Login tokens of devices and browsers, where ``http.login_tokens`` takes them.

Such a token says what it allows as rules on topics. Over HTTP that is: with ``write`` rules it
publishes to those topics, with ``read`` rules it reads recorded and retained messages of those;
nothing else, whoever it is of. A token that says nothing of topics, that denies some, or that is
for certain client identifiers is no way in: HTTP has no client identifier, and no ACL file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from starlette.datastructures import Headers
from starlette.types import Scope

from perdure.admin.rights import Principal
from perdure.errors import PerdureError
from perdure.tokens import SharedStore, Token, parse_id
from perdure.topic.rules import Permission, fill, parse_rule
from perdure.web.credentials import SAFE_METHODS, check_origin, cookie_of
from perdure.web.principals import peer_of
from perdure.web.problems import ApiError
from perdure.web.settings import WebSettings

COOKIE: Final = "perdure_token"
SCRIPT_HEADER: Final = "x-requested-with"
"""A page sends it with a change that a cookie stands for; no form of another site can."""

READS: Final = ("messages.read", "retained.list", "retained.show")
WRITES: Final = ("messages.publish",)


@final
class LoginTokenSource:
    """Tokens of the store that ``auth.tokens`` names.

    Args:
        settings: of the process.
        now_us: wall time.
    """

    def __init__(self, settings: WebSettings, now_us: Callable[[], int]) -> None:
        self._now_us = now_us
        self._store = SharedStore(
            settings.token_store, layout=settings.token_layout, prefix=settings.token_prefix
        )

    async def resolve(self, scope: Scope) -> Principal | None:
        """Who presents a token.

        Raises:
            ApiError: it allows nothing here, or nobody can tell.
        """
        headers = Headers(scope=scope)
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        is_cookie = scheme.lower() != "bearer"
        token_id = parse_id(cookie_of(scope, COOKIE) if is_cookie else bearer.strip())
        token = None if token_id is None else await self._find(token_id)
        if token is None:
            return None
        reads = scope["method"] in SAFE_METHODS
        if is_cookie and not reads:
            check_origin(headers)
            if not headers.get(SCRIPT_HEADER):
                raise ApiError("forbidden", "a change by cookie needs the header X-Requested-With")
        return Principal(
            token.identity,
            "viewer" if reads else "operator",
            scopes=READS if reads else WRITES,
            source="login_token",
            peer=peer_of(scope),
            topic_filters=_topics(token, "read" if reads else "write"),
        )

    async def close(self) -> None:
        """Let the store go."""
        await self._store.close()

    async def _find(self, token_id: bytes) -> Token | None:
        now_s = self._now_us() // 1_000_000
        try:
            store = await self._store.get(now_s)
            return await store.find(token_id, now_s)
        except PerdureError as error:
            raise ApiError("not_ready", "the token store does not answer") from error


def _topics(token: Token, wanted: str) -> tuple[str, ...]:
    """The filters of a token's rules that are for ``read`` or ``write``, never none.

    Raises:
        ApiError: it has none for this.
    """
    try:
        rules = [parse_rule(line.strip(), is_pattern=True) for line in token.rights]
    except ValueError as error:
        # As at a CONNECT: who cannot read one of the rules cannot tell what it denies.
        raise ApiError("forbidden", f"the rights of {token.identity}'s token: {error}") from None
    found: tuple[str, ...] = ()
    if not token.client_id and not any(rule.permission is Permission.DENY for rule in rules):
        own = [
            rule
            for rule in rules
            if (rule.permission.reads if wanted == "read" else rule.permission.writes)
        ]
        filled = (fill(rule, client_id=None, username=token.identity) for rule in own)
        found = tuple(each for each in filled if each is not None)
    if not found:
        raise ApiError(
            "forbidden",
            f"this token of {token.identity} has no right to {wanted} over HTTP",
            hint="it takes rights such as 'read public/#', none that denies, and no client id",
        )
    return found
