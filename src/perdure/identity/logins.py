"""Logins: opaque tokens in a store of ``tokens``, which end when idle, when old, or at a word.

A token of a login carries the generation of its user and the moment at which it ends in any case.
Its user is looked up at each request, so that a changed role or an ended generation holds at once.
A login that was ended is noted in ``identity.db`` too: the request beside it, which prolongs it at
that moment, cannot bring it back.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable
from typing import Final, final

import msgspec

from perdure.identity.ledger import Ledger
from perdure.identity.records import User
from perdure.tokens import SharedStore, Token, new_id, parse_id, show_id

FRESH_PART: Final = 0.9
"""A login is prolonged once less than this part of its idle time is left: not at each request."""

CSRF_SALT_BYTES: Final = 8

_GENERATION: Final = "generation "
_UNTIL: Final = "until "


@final
class LoginLimits(msgspec.Struct, frozen=True):
    """How long a login holds.

    Attributes:
        idle_s: without a request.
        total_s: in any case.
    """

    idle_s: int = 3_600
    total_s: int = 43_200


@final
class Login(msgspec.Struct, frozen=True):
    """One that holds.

    Attributes:
        name: whose it is.
        generation: of the user when it began.
        digest: names it where its secret must not stand.
        until_s: Unix time at which it ends in any case.
    """

    name: str
    generation: int
    digest: str
    until_s: int


@final
class Logins:
    """Logins of one store.

    Args:
        store: keeps them.
        ledger: the time, chance, and what has ended.
        limits: how long one holds.
    """

    def __init__(self, store: SharedStore, ledger: Ledger, limits: LoginLimits) -> None:
        self._store = store
        self._ledger = ledger
        self._limits = limits
        self.total_s = limits.total_s

    async def begin(self, user: User) -> str:
        """Log a user in; what is presented from now on."""
        now_s = self._now_s()
        until_s = now_s + self._limits.total_s
        token = Token(
            new_id(self._ledger.random_bytes),
            user.name,
            min(now_s + self._limits.idle_s, until_s),
            rights=(f"{_GENERATION}{user.generation}", f"{_UNTIL}{until_s}"),
        )
        store = await self._store.get(now_s)
        await store.save([token], now_s)
        return show_id(token.id)

    async def find(self, presented: str, *, prolongs: bool = True) -> Login | None:
        """The login that was presented, if it holds.

        Args:
            presented: by the client.
            prolongs: somebody is there: its idle time begins anew.
        """
        token_id = parse_id(presented)
        if token_id is None:
            return None
        now_s = self._now_s()
        store = await self._store.get(now_s)
        token = await store.find(token_id, now_s)
        if token is None:
            return None
        generation, until_s = _parts(token)
        digest = digest_of(presented)
        if now_s >= until_s or self.has_ended(digest):
            return None
        if prolongs and token.expires_at - now_s < self._limits.idle_s * FRESH_PART:
            expires_at = min(now_s + self._limits.idle_s, until_s)
            if expires_at > token.expires_at:
                await store.save([msgspec.structs.replace(token, expires_at=expires_at)], now_s)
        return Login(token.identity, generation, digest, until_s)

    def note_end(self, presented: str) -> None:
        """A login does not hold from now on; blocks."""
        now_s = self._now_s()
        with self._ledger.file.change() as rows:
            rows.execute("DELETE FROM ended WHERE until_s < ?", (now_s,))
            rows.execute(
                "INSERT OR REPLACE INTO ended VALUES (?, ?)",
                (digest_of(presented), now_s + self._limits.total_s),
            )

    async def forget(self, presented: str) -> None:
        """Remove a login that has ended from the store."""
        token_id = parse_id(presented)
        if token_id is not None:
            await (await self._store.get(self._now_s())).revoke(token_id)

    def has_ended(self, digest: str) -> bool:
        """Whether a login was ended."""
        with self._ledger.file.look() as rows:
            found = rows.execute("SELECT 1 FROM ended WHERE digest = ?", (digest,)).fetchone()
        return found is not None

    async def maintain(self) -> None:
        """Remove what has expired."""
        now_s = self._now_s()
        await (await self._store.get(now_s)).maintain(now_s)

    async def close(self) -> None:
        """Let the store go."""
        await self._store.close()

    def _now_s(self) -> int:
        return self._ledger.clock.now_us() // 1_000_000


def digest_of(presented: str) -> str:
    """Names a login without its secret."""
    return hashlib.sha256(presented.lower().encode()).hexdigest()


def csrf_token(presented: str, random_bytes: Callable[[int], bytes] = secrets.token_bytes) -> str:
    """What a page of a login sends along with each change; nobody else can make it.

    Each is another one: a page is compressed with what a stranger may have put into it, and what
    stays the same could be guessed by the length (BREACH).
    """
    salt = random_bytes(CSRF_SALT_BYTES).hex()
    return f"{salt}.{_csrf_digest(presented, salt)}"


def is_csrf_token(presented: str, text: str) -> bool:
    """Whether a text was made for a login."""
    salt, _, digest = text.partition(".")
    return len(salt) == 2 * CSRF_SALT_BYTES and hmac.compare_digest(
        digest.encode(), _csrf_digest(presented, salt).encode()
    )


def _csrf_digest(presented: str, salt: str) -> str:
    key = presented.lower().encode()
    return hmac.new(key, f"csrf {salt}".encode(), hashlib.sha256).hexdigest()


def _parts(token: Token) -> tuple[int, int]:
    """Generation and end of a login; a token that is none has ended."""
    generation, until_s = -1, 0
    for right in token.rights:
        for prefix in (_GENERATION, _UNTIL):
            number = right.removeprefix(prefix)
            if number != right and number.isdecimal():
                if prefix == _UNTIL:
                    until_s = int(number)
                else:
                    generation = int(number)
    return generation, until_s
