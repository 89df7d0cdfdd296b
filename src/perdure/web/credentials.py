"""Logins of browsers and API keys of programs, as ``principals`` asks for them.

A cookie is sent by a browser whoever made the page that caused the request. So a login is not
enough for a change: the page must know the login's CSRF token, and the browser must not say that
the request comes from another site. SameSite keeps the cookie from such requests as well.
"""

from __future__ import annotations

from http.cookies import CookieError, SimpleCookie
from typing import Final, final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import Scope

from perdure.admin.rights import Principal
from perdure.identity.keys import PREFIX
from perdure.identity.logins import is_csrf_token
from perdure.identity.proof import Proof
from perdure.identity.service import Identity
from perdure.web.principals import peer_of
from perdure.web.problems import ApiError

COOKIE: Final = "perdure_login"
SECURE_COOKIE: Final = f"__Host-{COOKIE}"
"""With TLS: the browser takes it from this host alone, and sends it nowhere else."""

CSRF_HEADER: Final = "x-csrf-token"
AUTO_HEADER: Final = "x-perdure-auto"
"""Sent by a page that refreshes itself: nobody is there, so that the login's idle time goes on."""

SAFE_METHODS: Final = frozenset({"GET", "HEAD"})

COOKIES_CHARS_MAX: Final = 8_192


@final
class CookieSource:
    """Logins of browsers.

    Args:
        identity: knows them.
    """

    def __init__(self, identity: Identity) -> None:
        self._identity = identity

    async def resolve(self, scope: Scope) -> Principal | None:
        """The user whose login the cookie is.

        Raises:
            ApiError: it would change something, and does not come from one of our pages.
        """
        presented = cookie_of(scope)
        if not presented:
            return None
        headers = Headers(scope=scope)
        prolongs = AUTO_HEADER not in headers and "text/event-stream" not in headers.get(
            "accept", ""
        )
        proof = await self._identity.of_login(presented, peer=peer_of(scope), prolongs=prolongs)
        if proof is None:
            return None
        if scope["method"] not in SAFE_METHODS:
            check_origin(headers)
            if not is_csrf_token(presented, headers.get(CSRF_HEADER, "")):
                raise ApiError(
                    "forbidden",
                    "the request lacks the login's CSRF token",
                    hint="reload the page; programs take an API key",
                )
        return _admitted(scope, proof)


@final
class ApiKeySource:
    """API keys, as bearer tokens.

    Args:
        identity: knows them.
    """

    def __init__(self, identity: Identity) -> None:
        self._identity = identity

    async def resolve(self, scope: Scope) -> Principal | None:
        """The key that the header holds."""
        scheme, _, token = Headers(scope=scope).get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.startswith(f"{PREFIX}_"):
            return None
        proof = await self._identity.of_key(token.strip(), peer=peer_of(scope))
        return None if proof is None else _admitted(scope, proof)


def _admitted(scope: Scope, proof: Proof) -> Principal:
    scope.setdefault("state", {})["proof"] = proof
    return proof.principal


def cookie_of(scope: Scope, name: str = COOKIE) -> str:
    """The cookie of a request, by its name without TLS; empty = none."""
    text = Headers(scope=scope).get("cookie", "")
    if not text or len(text) > COOKIES_CHARS_MAX:
        return ""
    cookies: SimpleCookie = SimpleCookie()
    try:
        cookies.load(text)
    except CookieError:
        return ""
    found = cookies.get(f"__Host-{name}" if scope["scheme"] == "https" else name)
    return "" if found is None else found.value


def check_origin(headers: Headers) -> None:
    """Refuse what a page of another site has brought about.

    Raises:
        ApiError: the browser says so.
    """
    site = headers.get("sec-fetch-site", "same-origin")
    origin = headers.get("origin")
    is_ours = origin is None or urlsplit(origin).netloc == headers.get("host", "")
    if site not in {"same-origin", "none"} or not is_ours:
        raise ApiError(
            "forbidden",
            "the request comes from a page of another site",
            hint="behind a proxy, let it pass the Host header on",
        )


def login_cookie(scope: Scope, presented: str, *, seconds: int) -> str:
    """A ``Set-Cookie`` header; 0 seconds take the cookie back.

    Behind a proxy that ends TLS the browser's ``Origin`` tells that it uses TLS.
    """
    is_secure = scope["scheme"] == "https"
    name = SECURE_COOKIE if is_secure else COOKIE
    origin = Headers(scope=scope).get("origin", "")
    secure = "; Secure" if is_secure or urlsplit(origin).scheme == "https" else ""
    return f"{name}={presented}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"
