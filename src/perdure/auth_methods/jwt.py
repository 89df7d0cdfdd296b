"""JSON Web Tokens (RFC 7519) as credentials.

A token is verified by a key of the operator's or the issuer's, with an algorithm that the operator
has allowed and that is the key's own: what the token says of either is never believed. What is no
token at all is left to the next method; a token that does not hold is refused.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, final

import jwt

from perdure.auth_methods.jwks import SETTING, FileKey, KeysAskedLately, PublishedKeys, fingerprint
from perdure.broker.auth.authenticate import AuthRequest, AuthResult
from perdure.broker.auth.grant import Grant, parse_grant
from perdure.broker.auth.method import AuthMethod, MethodContext, allow, deny, ignore
from perdure.config.schema.auth_methods import JwtConfig
from perdure.errors import ConfigError
from perdure.limits import UTF8_STRING_BYTES_MAX
from perdure.mqtt.reason_codes import NOT_AUTHORIZED, SERVER_UNAVAILABLE
from perdure.net.http_settings import check_http_url

SYMMETRIC: Final = frozenset(("HS256", "HS384", "HS512"))
ASYMMETRIC: Final = frozenset(
    ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
)

_DOTS: Final = 2
"""In a signed token (RFC 7515 section 3.1)."""

KEYS_TRIED_MAX: Final = 10
"""Of an issuer, for a token that does not say which has signed it: a millisecond of a thread."""

SAID_CHARS_MAX: Final = 64


class _Refused(Exception):
    """The token does not hold; the text is for operators."""


class _Unsigned(_Refused):
    """None of the keys has signed it."""


@final
class JwtMethod(AuthMethod):
    """Verifies tokens.

    Args:
        settings: of the method.
        context: clock, log, threads.
        keys: where they come from.
    """

    def __init__(
        self, settings: JwtConfig, context: MethodContext, keys: FileKey | PublishedKeys
    ) -> None:
        self._settings = settings
        self._context = context
        self._keys = keys
        self._pool = ThreadPoolExecutor(context.threads, thread_name_prefix="perdure-jwt")

    async def start(self) -> None:
        """Begin to keep the keys."""
        await self._keys.start()

    async def probe(self) -> None:
        """Get the keys."""
        await self._keys.find(None)

    def reload(self) -> None:
        """Get the keys anew."""
        self._keys.reload()

    async def close(self) -> None:
        """End the threads."""
        await self._keys.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def authenticate(self, request: AuthRequest) -> AuthResult:
        """Judge the token of a CONNECT."""
        settings = self._settings
        if settings.token_in == "password":  # noqa: S105 - the name of a field
            token = request.password
        else:
            token = None if request.username is None else request.username.encode()
        header = _header(token, settings.token_bytes_max)
        if token is None or header is None:
            return ignore()
        try:
            return await self._judge(token, header, request)
        except _Refused as error:
            return deny(reason=str(error))
        except KeysAskedLately:
            # No failure that brings a ban: a fleet comes so just after its issuer's new key.
            return deny(SERVER_UNAVAILABLE, f"no key {_said(header.get('kid'))} is known yet")

    async def renew(self, request: AuthRequest, proof: object | None) -> AuthResult:
        """Whether the key of a client's token still is one; its end was told at CONNECT."""
        if self._settings.withdrawn_keys == "keep" or self._keys.has(proof):
            return ignore()
        return deny(NOT_AUTHORIZED, "the key of its token was withdrawn")

    async def _judge(
        self, token: bytes, header: dict[str, Any], request: AuthRequest
    ) -> AuthResult:
        settings = self._settings
        algorithm, kid = header["alg"], header.get("kid")
        if algorithm not in settings.algorithms:
            raise _Refused(f"its algorithm {_said(algorithm)} is not allowed")
        try:
            key, claims = await self._signed(token, algorithm, kid)
        except _Unsigned:
            if not await self._keys.ask_again():
                raise
            key, claims = await self._signed(token, algorithm, kid)
        expires_us = self._until(claims, request)
        return allow(
            self._username(claims, request),
            grant=self._grant(claims),
            expires_us=expires_us,
            proof=fingerprint(key),
        )

    async def _signed(
        self, token: bytes, algorithm: str, kid: str | None
    ) -> tuple[jwt.PyJWK, dict[str, Any]]:
        """The key that has signed a token, and the claims."""
        known = await self._keys.find(kid)
        keys = [key for key in known if algorithm in self._algorithms(key)]
        if not keys:
            named = "" if kid is None else f" {_said(kid)}"
            raise _Refused(f"the issuer has no key{named} for {algorithm}")
        return await asyncio.get_running_loop().run_in_executor(
            self._pool, self._verify, token, keys[:KEYS_TRIED_MAX], algorithm
        )

    def _verify(
        self, token: bytes, keys: list[jwt.PyJWK], algorithm: str
    ) -> tuple[jwt.PyJWK, dict[str, Any]]:
        """The key that has signed a token whose issuer and audience are right, and its claims. In
        a thread."""
        for key in keys:
            claims = self._claims(token, key, algorithm)
            if claims is not None:
                return key, claims
        raise _Unsigned("no key of the issuer has signed it")

    def _claims(self, token: bytes, key: jwt.PyJWK, algorithm: str) -> dict[str, Any] | None:
        """The claims; None = another key has signed it."""
        settings = self._settings
        try:
            return jwt.decode(
                token,
                key.key,
                algorithms=[algorithm],
                audience=settings.audience or None,
                issuer=settings.issuer or None,
                # Times are told by our own clock.
                options={
                    "verify_exp": False,
                    "verify_nbf": False,
                    "verify_iat": False,
                    "verify_aud": bool(settings.audience),
                    "verify_iss": bool(settings.issuer),
                },
            )
        except jwt.InvalidSignatureError:
            return None
        except (jwt.PyJWTError, TypeError, ValueError) as error:
            raise _Refused(str(error)) from None

    def _algorithms(self, key: jwt.PyJWK) -> list[str]:
        """Those that the operator allows and that are for this kind of key."""
        allowed = self._settings.algorithms
        if key.key_type == "oct":
            return list(allowed)
        if key.key_type == "RSA":
            # One key verifies any of them; the issuer's word (`alg`) narrows it to one.
            declared = key._jwk_data.get("alg")
            return [
                name for name in allowed if name[:2] in ("RS", "PS") and declared in (None, name)
            ]
        return [name for name in allowed if name == key.algorithm_name]

    def _until(self, claims: dict[str, Any], request: AuthRequest) -> int:
        """When the login ends, in monotonic time; 0 = never."""
        settings, now_us = self._settings, self._context.clock.now_us()
        leeway_us = settings.leeway_s * 1_000_000
        not_before = claims.get("nbf")
        if not_before is not None and _us(not_before) - leeway_us > now_us:
            raise _Refused("it does not hold yet")
        expires = claims.get("exp")
        if expires is None:
            if settings.require_expiry:
                raise _Refused("it never expires")
            return 0
        left_us = _us(expires) + leeway_us - now_us
        if left_us <= 0:
            raise _Refused("it has expired")
        return request.now_us + left_us

    def _username(self, claims: dict[str, Any], request: AuthRequest) -> str:
        settings = self._settings
        name = claims.get(settings.username_claim)
        if not isinstance(name, str) or not 0 < len(name.encode()) <= UTF8_STRING_BYTES_MAX:
            raise _Refused(f"its claim {settings.username_claim!r} is no user name")
        checked = settings.check_username and settings.token_in != "username"  # noqa: S105
        if checked and request.username != name:
            raise _Refused("it is another user's")
        claim = settings.client_id_claim
        if claim and claims.get(claim) != request.client_id:
            raise _Refused("it is for another client identifier")
        return name

    def _grant(self, claims: dict[str, Any]) -> Grant | None:
        claim = self._settings.acl_claim
        if not claim:
            return None
        try:
            return parse_grant(claims.get(claim))
        except ValueError as error:
            raise _Refused(f"its claim {claim!r}: {error}") from None


def _header(token: bytes | None, bytes_max: int) -> dict[str, Any] | None:
    """The header of what looks like a signed token; None = it does not."""
    if token is None or len(token) > bytes_max or token.count(b".") != _DOTS:
        return None
    try:
        header = jwt.get_unverified_header(token)
    except jwt.PyJWTError:
        return None
    return header if isinstance(header.get("alg"), str) else None


def _said(value: object) -> str:
    """What a client says, as it may stand in a reason."""
    text = str(value)
    return repr(text if len(text) <= SAID_CHARS_MAX else f"{text[:SAID_CHARS_MAX]}...")


def _us(seconds: object) -> int:
    """A NumericDate in microseconds."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise _Refused("a time of it is no number")
    try:
        return int(seconds * 1_000_000)
    except (OverflowError, ValueError):
        raise _Refused("a time of it is no moment") from None


def open_method(settings: JwtConfig, context: MethodContext) -> JwtMethod:
    """Make the method.

    Raises:
        ConfigError: the settings do not fit together, or a file cannot be used.
    """
    sources = [
        name for name in ("jwks_url", "public_key_file", "secret_file") if getattr(settings, name)
    ]
    if len(sources) != 1:
        raise ConfigError(
            "set one of jwks_url, public_key_file and secret_file",
            path=SETTING,
            hint=f"there is {' and '.join(sources) or 'none of them'}",
        )
    known = SYMMETRIC if settings.secret_file else ASYMMETRIC
    wrong = [name for name in settings.algorithms if name not in known]
    if wrong or not settings.algorithms:
        raise ConfigError(
            f"{wrong[0]} cannot be used with {sources[0]}" if wrong else "names no algorithm",
            path=f"{SETTING}.algorithms",
            hint=f"of {', '.join(sorted(known))}",
        )
    if settings.jwks_url:
        check_http_url(settings.jwks_url, f"{SETTING}.jwks_url")
        return JwtMethod(settings, context, PublishedKeys(settings, context))
    return JwtMethod(settings, context, FileKey(settings))
