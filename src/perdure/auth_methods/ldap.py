"""Users of a directory: who can bind to it with a password is who it says.

Two ways to the entry of a user: its name follows from the user name (``user_dn``), or it is found
by a search as another user (``search_base``, ``search_filter``), which also tells whether it is in
a group. Then the broker binds as that entry with the password of the CONNECT.

Invariant: an empty password is never sent, since servers take it for an anonymous bind and answer
yes; and nothing that a client has chosen is a part of a filter or a name unescaped.
"""

from __future__ import annotations

import asyncio
import math
import ssl
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, final

import ldap3
from ldap3.core.exceptions import LDAPException, LDAPInvalidDnError, LDAPSASLPrepError
from ldap3.utils.conv import escape_filter_chars
from ldap3.utils.dn import escape_rdn

from perdure.auth_methods.answer_cache import CACHE_KEY_BYTES, AnswerCache
from perdure.broker.auth.authenticate import AuthRequest, AuthResult
from perdure.broker.auth.method import (
    AuthMethod,
    MethodContext,
    MethodUnavailable,
    UnusableAnswer,
    allow,
    deny,
    ignore,
)
from perdure.config.schema.auth_methods import LdapAuthConfig
from perdure.errors import ConfigError
from perdure.mqtt.reason_codes import NOT_AUTHORIZED
from perdure.net.tls import client_context

SETTING: Final = "auth.ldap"

_SUCCESS: Final = 0
_NO_SUCH_ENTRY: Final = 32
_WRONG: Final = frozenset((_NO_SUCH_ENTRY, 34, 48, 49, 53))
"""No such entry, no such name, no such way to bind, a wrong password, unwilling."""


@final
class _Tls(ldap3.Tls):  # type: ignore[misc] # the library has no types
    """TLS whose names OpenSSL compares: the library asks what Python 3.12 no longer has."""

    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__(validate=ssl.CERT_REQUIRED)
        self._context = context

    def wrap_socket(self, connection: Any, do_handshake: bool = False) -> None:
        """Begin TLS; as the library calls it."""
        connection.socket = self._context.wrap_socket(
            connection.socket,
            do_handshake_on_connect=do_handshake,
            server_hostname=connection.server.host.strip("[]"),
        )


def _server(settings: LdapAuthConfig) -> ldap3.Server:
    """Where the directory is, and whom to believe that it is it.

    Raises:
        ConfigError: the authorities cannot be read.
    """
    try:
        context = client_context(cafile=settings.ca_file)
    except ConfigError as error:
        raise ConfigError(error.message, path=f"{SETTING}.ca_file", hint=error.hint) from None
    return ldap3.Server(
        settings.url,
        get_info=ldap3.NONE,
        tls=_Tls(context),
        connect_timeout=settings.timeout_ms / 1000,
    )


@final
class LdapMethod(AuthMethod):
    """Binds as whoever connects.

    Args:
        settings: of the method.
        context: clock, threads, chance, log.
    """

    def __init__(self, settings: LdapAuthConfig, context: MethodContext) -> None:
        self._settings = settings
        self._context = context
        self._server = _server(settings)
        self._cache: AnswerCache[str] = AnswerCache(
            context.clock, context.random_bytes(CACHE_KEY_BYTES), size_max=settings.cache_max
        )
        # The library's calls block; each question has a connection of its own.
        self._threads = ThreadPoolExecutor(
            settings.connections_max, thread_name_prefix="perdure-ldap"
        )

    def reload(self) -> None:
        """Read the authorities again, and remember nothing.

        Raises:
            ConfigError: they cannot be used; those of before stay.
        """
        self._server = _server(self._settings)
        self._cache.clear()

    async def close(self) -> None:
        """End the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def probe(self) -> None:
        """Bind as whoever searches, or as nobody."""
        await self._run(self._bind_searcher, AuthRequest(client_id=""))

    async def authenticate(self, request: AuthRequest) -> AuthResult:
        """Bind as the user of a CONNECT."""
        if not request.username:
            return ignore()
        if not request.password:
            return deny(reason="no password")
        name = request.username.encode()
        question = len(name).to_bytes(4, "big") + name + request.password
        known = self._cache.get(question)
        if known is not None:
            return self._allow(request, known)
        entry = await self._run(self._bind, request)
        if entry is None:
            if self._settings.unknown_user == "ignore":
                return ignore()
            return deny(reason="the directory has no such user")
        if not entry:
            return deny(reason="the directory does not take the password")
        self._cache.put(question, entry, holds_s=self._settings.cache_s)
        return self._allow(request, entry)

    async def renew(self, request: AuthRequest, proof: object | None) -> AuthResult:
        """Whether the user's entry is still found; without a search nobody can tell."""
        if not self._settings.search_base or not isinstance(proof, str):
            return ignore()
        if await self._run(self._find_as_searcher, request) != proof:
            return deny(NOT_AUTHORIZED, "the directory has the user no more")
        return self._allow(request, proof)

    def _allow(self, request: AuthRequest, entry: str) -> AuthResult:
        recheck_us = self._context.recheck_us(self._settings.recheck_s)
        return allow(request.username, recheck_us=recheck_us, proof=entry)

    async def _run(self, work: Any, request: AuthRequest) -> str | None:
        try:
            found: str | None = await asyncio.get_running_loop().run_in_executor(
                self._threads, work, request
            )
        except LDAPException as error:
            raise MethodUnavailable(f"{type(error).__name__}: {error}") from None
        return found

    # In threads.

    def _bind(self, request: AuthRequest) -> str | None:
        """The entry that the password fits; empty = it does not fit, None = there is no entry."""
        settings, username = self._settings, request.username or ""
        if settings.search_base:
            entry = self._find_as_searcher(request)
            if entry is None:
                return None
        else:
            entry = settings.user_dn.replace("%u", escape_rdn(username))
        try:
            connection = self._connect(entry, (request.password or b"").decode())
        except (UnicodeDecodeError, LDAPInvalidDnError, LDAPSASLPrepError):
            return ""  # no directory has such a name or password: it is no failure of the server
        if connection is None:
            return ""
        connection.unbind()
        return entry

    def _bind_searcher(self, _request: AuthRequest) -> None:
        """Bind as ``bind_dn``, or as nobody where none searches."""
        connection = self._connect(self._settings.bind_dn, self._settings.bind_password)
        if connection is None:
            raise MethodUnavailable(f"{self._settings.bind_dn!r} is not let in by the directory")
        connection.unbind()

    def _find_as_searcher(self, request: AuthRequest) -> str | None:
        """The name of a user's entry; None = there is none.

        Raises:
            UnusableAnswer: there are several.
            MethodUnavailable: the broker itself is not let in, or the server does not answer so.
        """
        settings = self._settings
        connection = self._connect(settings.bind_dn, settings.bind_password)
        if connection is None:
            raise MethodUnavailable(f"{settings.bind_dn!r} is not let in by the directory")
        try:
            names = {
                "%u": escape_filter_chars(request.username or ""),
                "%c": escape_filter_chars(request.client_id),
            }
            asked = settings.search_filter
            asked = "".join(names.get(part, part) for part in _split_names(asked))
            connection.search(
                settings.search_base, asked, attributes=ldap3.NO_ATTRIBUTES, size_limit=2
            )
            entries = [each for each in connection.response or () if each.get("dn")]
            entries = [each for each in entries if each.get("type") == "searchResEntry"]
            code = connection.result["result"]
        finally:
            connection.unbind()
        if len(entries) > 1:
            raise UnusableAnswer(f"{request.username!r} has several entries")
        if code not in (_SUCCESS, _NO_SUCH_ENTRY):
            raise MethodUnavailable(f"the search was answered with {connection.result}")
        return str(entries[0]["dn"]) if entries else None

    def _connect(self, name: str, password: str) -> ldap3.Connection | None:
        """A connection bound as an entry; None = its password is wrong.

        Raises:
            LDAPException, MethodUnavailable: nobody can tell.
        """
        settings = self._settings
        anonymous = not name
        connection = ldap3.Connection(
            self._server,
            user=None if anonymous else name,
            password=None if anonymous else password,
            authentication=ldap3.ANONYMOUS if anonymous else ldap3.SIMPLE,
            receive_timeout=math.ceil(settings.timeout_ms / 1000),
            auto_referrals=False,
            read_only=True,
            raise_exceptions=False,
        )
        try:
            connection.open()
            if settings.start_tls and not connection.start_tls():
                raise MethodUnavailable("the directory does not begin TLS")
            if connection.bind():
                return connection
            result = connection.result
        except BaseException:
            # No unbind: where TLS has failed it fails too, and hides why.
            if connection.socket is not None:
                connection.socket.close()
            raise
        connection.unbind()
        if result["result"] in _WRONG:
            return None
        raise MethodUnavailable(f"the bind was answered with {result['description']}")


def _split_names(text: str) -> list[str]:
    """A filter in parts, ``%u`` and ``%c`` each by itself: a name that holds one stays as it is."""
    parts, rest = [], text
    while (place := rest.find("%")) >= 0:
        parts += [rest[:place], rest[place : place + 2]]
        rest = rest[place + 2 :]
    return [*parts, rest]


def open_method(settings: LdapAuthConfig, context: MethodContext) -> LdapMethod:
    """Make the method.

    Raises:
        ConfigError: a setting cannot be used.
    """
    if not settings.url.startswith(("ldap://", "ldaps://")):
        raise ConfigError("begins with ldap:// or ldaps://", path=f"{SETTING}.url")
    if settings.url.startswith("ldap://") and not (settings.start_tls or settings.plain):
        raise ConfigError(
            "sends passwords in clear text",
            path=f"{SETTING}.url",
            hint="take ldaps://, or start_tls, or plain where the network is your own",
        )
    if bool(settings.user_dn) == bool(settings.search_base):
        raise ConfigError("user_dn or search_base, one of them, says where users are", path=SETTING)
    pattern, name = (
        (settings.search_filter, "search_filter")
        if settings.search_base
        else (settings.user_dn, "user_dn")
    )
    if "%u" not in pattern:
        raise ConfigError(
            "is the same for all users",
            path=f"{SETTING}.{name}",
            hint="%u stands for the user name",
        )
    if settings.bind_dn and not settings.bind_password:
        raise ConfigError(
            "bind_dn needs it: without a password the directory takes it for an anonymous bind",
            path=f"{SETTING}.bind_password",
        )
    try:
        return LdapMethod(settings, context)
    except LDAPException as error:
        raise ConfigError(str(error), path=SETTING) from None
