"""Failed logins: counted, and answered with temporary bans. Pure: time is an argument.

Failures are counted for a *login*, which is one user name from one address, and more slowly for an
address (IPv6: one /64) with whatever names. Never for a user name alone: anybody could then lock
its owner out from anywhere.

Who shares an address with a guesser is kept in by what it has proved: a client that has logged in
is *trusted* by its user name, address and client identifier, and is held to its own failures only.
So a ban keeps out who comes with a name or an address that is under attack and has never logged
in from there since the broker's start. (What OWASP calls device cookies, with the client
identifier as the cookie.) A ban does not let a right password pass either: to say yes to one
would tell the guesser which of its guesses was it.

An address with many failures is *suspect* for as long as they count: it may not have the last
thread that checks passwords. Who is refused there, or beyond a bound, hears so a little later (as
with ``pam_faildelay`` and PostgreSQL's ``auth_delay``): a guesser that asks again as soon as it is
answered would take the time in which others are let in.

Invariant: all tables are bounded, and what is forgotten first is what has failed or logged in
longest ago.
"""

from __future__ import annotations

from typing import Final, TypeAlias, TypeVar, final

from perdure.broker.auth.addresses import address_key
from perdure.broker.auth.remembered import remembered
from perdure.config.schema import AuthConfig

LOGINS_TRACKED_MAX: Final = 20_000
"""Logins with failures, and clients that are trusted: about 300 bytes each."""

ANY_USER: Final = "*"
"""In place of the user name where an address is banned for all of them."""

SUSPECT_FAILURES: Final = 10
"""Failures within the window that make an address suspect: more than people's mistakes."""

REFUSAL_DELAY_US: Final = 2_000_000
"""Before a client hears that it is refused, where too many are: 300 connections then make 150
attempts a second instead of thousands."""

FAILURES_MAX: Final = "auth.failures_max"
FAILURES_PER_ADDRESS_MAX: Final = "auth.failures_per_address_max"

_Login: TypeAlias = tuple[str | None, str]
"""User name and what counts as one address; without a name, the address as a whole."""
_Client: TypeAlias = tuple[str, str, str]
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


@final
class _Failures:
    """Failures within a window."""

    __slots__ = ("count", "since_us")

    def __init__(self, since_us: int) -> None:
        self.count: int = 0
        self.since_us: int = since_us

    def add(self, now_us: int, window_us: int) -> int:
        """Count one; returns how many the window has."""
        if now_us - self.since_us >= window_us:
            self.count = 0
            self.since_us = now_us
        self.count += 1
        return self.count


@final
class LoginBan:
    """A temporary ban.

    Attributes:
        username: whom it keeps out; None = every user.
        address: from where.
        failures: how many it took.
        since_us, until_us: monotonic times at which it began and ends.
    """

    __slots__ = ("address", "failures", "since_us", "until_us", "username")

    def __init__(
        self, username: str | None, address: str, *, failures: int, since_us: int, until_us: int
    ) -> None:
        self.username: str | None = username
        self.address: str = address
        self.failures: int = failures
        self.since_us: int = since_us
        self.until_us: int = until_us

    @property
    def value(self) -> str:
        """As commands name it: ``ada@203.0.113.7``, or ``*@203.0.113.7``."""
        return f"{ANY_USER if self.username is None else self.username}@{self.address}"

    @property
    def limit(self) -> str:
        """The setting behind it."""
        return FAILURES_PER_ADDRESS_MAX if self.username is None else FAILURES_MAX


@final
class LoginGuard:
    """Counts failed logins and keeps guessers out.

    Args:
        config: ``failures_*`` of the section ``auth``; may be replaced.
    """

    __slots__ = ("_bans", "_failures", "_trusted", "config")

    def __init__(self, config: AuthConfig) -> None:
        self.config: AuthConfig = config
        self._failures: dict[_Login, _Failures] = {}
        self._bans: dict[_Login, LoginBan] = {}
        self._trusted: dict[_Client, _Failures] = {}

    def verdict(
        self, *, username: str, address: str, client_id: str, now_us: int
    ) -> LoginBan | None:
        """The ban that keeps a client from trying to log in now; None = it may try.

        Args:
            username: as stated.
            address: of the peer.
            client_id: as stated.
            now_us: monotonic time.
        """
        if not self._bans:
            return None
        place = address_key(address)
        username = remembered(username)
        if (username, place, remembered(client_id)) in self._trusted:
            return None
        logins: tuple[_Login, _Login] = ((username, place), (None, place))
        for login in logins:
            ban = self._bans.get(login)
            if ban is not None:
                if now_us < ban.until_us:
                    return ban
                del self._bans[login]
        return None

    def is_suspect(self, address: str, now_us: int) -> bool:
        """Whether an address has failed often within the window, or is banned."""
        place: _Login = (None, address_key(address))
        ban = self._bans.get(place)
        if ban is not None and now_us < ban.until_us:
            return True
        failures = self._failures.get(place)
        return (
            failures is not None
            and failures.count >= SUSPECT_FAILURES
            and now_us - failures.since_us < self.config.failures_window_s * 1_000_000
        )

    def has_failed(self, *, username: str, address: str, now_us: int) -> bool:
        """Whether a login has failed within the window."""
        failures = self._failures.get((remembered(username), address_key(address)))
        return (
            failures is not None
            and now_us - failures.since_us < self.config.failures_window_s * 1_000_000
        )

    def is_trusted(self, *, username: str, address: str, client_id: str) -> bool:
        """Whether the client has logged in from there and has not failed too often since."""
        return _client(username, address, client_id) in self._trusted

    def succeeded(self, *, username: str, address: str, client_id: str, now_us: int) -> None:
        """A client has proved its user name."""
        client = _client(username, address, client_id)
        self._trusted.pop(client, None)
        _make_room(self._trusted)
        self._trusted[client] = _Failures(now_us)

    def failed(
        self, *, username: str, address: str, client_id: str, now_us: int
    ) -> LoginBan | None:
        """A client did not prove its user name.

        Returns:
            The ban that this brings, if it does.
        """
        config = self.config
        window_us = config.failures_window_s * 1_000_000
        place = address_key(address)
        client = _client(username, address, client_id)
        username = client[0]
        trusted = self._trusted.get(client)
        if trusted is not None:
            # Its own failures are not another's: they count against the login once it has used
            # up its trust.
            if not config.failures_max or trusted.add(now_us, window_us) < config.failures_max:
                return None
            del self._trusted[client]
        banned = self._count((None, place), config.failures_per_address_max, now_us, window_us)
        return self._count((username, place), config.failures_max, now_us, window_us) or banned

    def bans(self, now_us: int) -> list[LoginBan]:
        """The bans in force; those that are over are forgotten."""
        for login in [login for login, ban in self._bans.items() if ban.until_us <= now_us]:
            del self._bans[login]
        return list(self._bans.values())

    def lift(self, value: str) -> bool:
        """Take a ban back, by its ``value``; its failures are forgotten too."""
        for login, ban in self._bans.items():
            if ban.value == value:
                del self._bans[login]
                self._failures.pop(login, None)
                return True
        return False

    def _count(
        self, login: _Login, failures_max: int, now_us: int, window_us: int
    ) -> LoginBan | None:
        failures = self._failures.pop(login, None) or _Failures(now_us)
        count = failures.add(now_us, window_us)
        if not failures_max or count < failures_max or login in self._bans:
            _make_room(self._failures)
            self._failures[login] = failures
            return None
        _make_room(self._bans)
        ban = self._bans[login] = LoginBan(
            *login,
            failures=count,
            since_us=now_us,
            until_us=now_us + self.config.failures_ban_s * 1_000_000,
        )
        return ban


def _client(username: str, address: str, client_id: str) -> _Client:
    return remembered(username), address_key(address), remembered(client_id)


def _make_room(table: dict[_Key, _Value]) -> None:
    """Forget the oldest entry of a full table."""
    if len(table) >= LOGINS_TRACKED_MAX:
        del table[next(iter(table))]
