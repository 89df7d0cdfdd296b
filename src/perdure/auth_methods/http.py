"""A service of the operator's that is asked by HTTP, at CONNECT and now and again.

::

    POST url      {"client_id", "username", "password", "address", "listener", "protocol", ...}
    200           {"result": "allow" | "deny" | "ignore", "username", "superuser", "acl",
                   "expires_in_s"}
    401, 403      as "deny"

``acl_url`` is asked the same without a password, and answers the same: for clients that ``url`` has
let in, and every ``recheck_s`` for those that are connected. Everything else that the service
answers, and no answer, refuses whoever connects and changes nothing for whoever is connected.
"""

from __future__ import annotations

import base64
import ssl
from typing import Any, Final, Literal, NamedTuple, final

import httpx
import msgspec

from perdure.admin.wire import decode_given
from perdure.auth_methods.answer_cache import CACHE_KEY_BYTES, AnswerCache
from perdure.broker.auth.authenticate import AuthRequest, AuthResult
from perdure.broker.auth.grant import Grant, parse_grant
from perdure.broker.auth.method import (
    AuthMethod,
    MethodContext,
    MethodUnavailable,
    UnusableAnswer,
    allow,
    deny,
    ignore,
)
from perdure.config.schema.auth_methods import HttpAuthConfig
from perdure.errors import ConfigError
from perdure.limits import UTF8_STRING_BYTES_MAX
from perdure.mqtt.reason_codes import NOT_AUTHORIZED
from perdure.net.http_body import PLAIN, read_body
from perdure.net.http_settings import check_http_url, read_headers
from perdure.net.tls import client_context

SETTING: Final = "auth.http"
_REFUSALS: Final = frozenset((httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN))


@final
class Answer(msgspec.Struct, frozen=True):
    """What a service says; fields that it has besides are not looked at."""

    result: Literal["allow", "deny", "ignore"]
    username: str | None = None
    superuser: bool = False
    acl: Any = None
    expires_in_s: int | None = None


_DENIED: Final = Answer("deny")


@final
class _Login(NamedTuple):
    """Who was let in, and by what."""

    username: str | None
    answer: Answer


@final
class HttpMethod(AuthMethod):
    """Asks a service.

    Args:
        settings: of the method.
        context: clock, log, chance.
        transport: of HTTP; None = the network.
    """

    def __init__(
        self,
        settings: HttpAuthConfig,
        context: MethodContext,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._settings = settings
        self._context = context
        self._headers = read_headers(settings.header_file, f"{SETTING}.header_file")
        self._client = httpx.AsyncClient(
            headers=PLAIN,
            verify=_trusted(settings.ca_file),
            limits=httpx.Limits(
                max_connections=settings.connections_max,
                max_keepalive_connections=settings.connections_max,
            ),
            # How long a question may take in all is counted around the method.
            timeout=settings.timeout_ms / 1000,
            # A credential goes where the operator says, and nowhere else.
            follow_redirects=False,
            trust_env=False,
            transport=transport,
        )
        self._cache: AnswerCache[_Login] = AnswerCache(
            context.clock, context.random_bytes(CACHE_KEY_BYTES), size_max=settings.cache_max
        )

    def reload(self) -> None:
        """Read the headers again, and forget all answers."""
        self._headers = read_headers(self._settings.header_file, f"{SETTING}.header_file")
        self._cache.clear()

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def probe(self) -> None:
        """Reach the services. They are asked about nobody: a question may count as a login."""
        settings = self._settings
        for url in filter(None, (settings.url, settings.acl_url)):
            try:
                await self._client.head(url)
            except httpx.HTTPError as error:
                text = str(error) or type(error).__name__
                raise MethodUnavailable(f"{url}: {text}") from None

    async def authenticate(self, request: AuthRequest) -> AuthResult:
        """Ask about a CONNECT."""
        body = _body(request)
        known = self._cache.get(body)
        answer = await self._ask(self._settings.url, body) if known is None else known.answer
        if answer.result == "ignore":
            return ignore()
        if answer.result == "deny":
            return deny(reason="the service denies it")
        username = request.username if answer.username is None else answer.username
        # An end of its own counts from the first answer, which is not here any more.
        if known is None and answer.expires_in_s is None:
            self._cache.put(body, _Login(username, answer), holds_s=self._settings.cache_s)
        if not self._settings.acl_url:
            return self._allowed(answer, username, request)
        asked = msgspec.structs.replace(request, username=username, password=None)
        return await self._rights(asked, answer)

    async def renew(self, request: AuthRequest, proof: object | None) -> AuthResult:
        """Ask about a client that is connected."""
        if not self._settings.acl_url:
            return ignore()
        result = await self._rights(request, proof if isinstance(proof, Answer) else None)
        if not result.ok and not result.undecided:
            self._cache.drop(lambda known: known.username == request.username)
        return result

    async def _rights(self, request: AuthRequest, login: Answer | None) -> AuthResult:
        answer = await self._ask(self._settings.acl_url, _body(request))
        if answer.result == "deny":
            return deny(NOT_AUTHORIZED, "the service gives it no rights")
        if answer.result == "ignore":
            return ignore()
        if login is not None and login.superuser:
            answer = msgspec.structs.replace(answer, superuser=True)
        result = self._allowed(answer, request.username, request)
        return msgspec.structs.replace(result, proof=login)

    def _allowed(self, answer: Answer, username: str | None, request: AuthRequest) -> AuthResult:
        settings = self._settings
        now_us = self._context.clock.monotonic_us()
        return allow(
            username,
            superuser=answer.superuser,
            grant=self._grant(answer),
            expires_us=0
            if answer.expires_in_s is None
            else now_us + max(1, answer.expires_in_s * 1_000_000),
            recheck_us=self._context.recheck_us(settings.recheck_s if settings.acl_url else 0),
        )

    def _grant(self, answer: Answer) -> Grant | None:
        if answer.acl is None and not self._settings.acl_url and not answer.superuser:
            return None
        try:
            return parse_grant(answer.acl, superuser=answer.superuser)
        except ValueError as error:
            raise UnusableAnswer(f"the service's acl: {error}") from None

    async def _ask(self, url: str, body: bytes) -> Answer:
        try:
            status, data = await self._post(url, body)
        except httpx.HTTPError as error:
            raise MethodUnavailable(str(error) or type(error).__name__) from None
        except ValueError as error:
            raise MethodUnavailable(f"{url} {error}") from None
        if status in _REFUSALS:
            return _DENIED
        if status != httpx.codes.OK:
            raise MethodUnavailable(f"{url} answered with status {status}")
        try:
            answer = decode_given(data, Answer)
        except ValueError as error:
            raise MethodUnavailable(f"{url} answered with something else: {error}") from None
        if len((answer.username or "").encode()) > UTF8_STRING_BYTES_MAX:
            raise MethodUnavailable(f"{url} answered with a user name that is too long")
        if "\0" in (answer.username or ""):
            raise MethodUnavailable(f"{url} answered with a user name that has U+0000 in it")
        return answer

    async def _post(self, url: str, body: bytes) -> tuple[int, bytes]:
        headers = {**self._headers, "content-type": "application/json"}
        async with self._client.stream("POST", url, content=body, headers=headers) as response:
            data = await read_body(response, bytes_max=self._settings.answer_bytes_max)
            return response.status_code, data


def _trusted(ca_file: str) -> ssl.SSLContext:
    """Whom to believe that it is the service.

    Raises:
        ConfigError: the file cannot be used.
    """
    try:
        return client_context(cafile=ca_file)
    except ConfigError as error:
        raise ConfigError(error.message, path=f"{SETTING}.ca_file", hint=error.hint) from None


def _body(request: AuthRequest) -> bytes:
    said: dict[str, object] = {
        "client_id": request.client_id,
        "username": request.username,
        "address": request.address,
        "listener": request.listener,
        "protocol": request.protocol,
        "certificate_subject": request.certificate_subject,
    }
    if request.password is not None:
        try:
            said["password"] = request.password.decode()
        except UnicodeDecodeError:
            said["password_base64"] = base64.b64encode(request.password).decode()
    return msgspec.json.encode(said)


def open_method(settings: HttpAuthConfig, context: MethodContext) -> HttpMethod:
    """Make the method.

    Raises:
        ConfigError: a URL or a file cannot be used.
    """
    if not settings.url:
        raise ConfigError("is empty", path=f"{SETTING}.url", hint="where your service answers")
    check_http_url(settings.url, f"{SETTING}.url")
    if settings.acl_url:
        check_http_url(settings.acl_url, f"{SETTING}.acl_url")
    return HttpMethod(settings, context)
