"""Users that a server keeps: what all methods that look them up have in common.

A user is some hashes, of the kinds that the credentials file has (``broker/auth/hashes.py``), and
whether it is a superuser; what it may do is lines as the ACL file has them. Passwords are checked
in threads, tokens at once. What was right is remembered under a key of this process, together with
the hash that it fitted: the hash itself is looked up each time.

Invariant: a wrong password takes as long for a user that is there as for one that is not.
"""

from __future__ import annotations

import asyncio
import hmac
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, final

import msgspec

from perdure.broker.auth.authenticate import AuthRequest, AuthResult
from perdure.broker.auth.credentials import DECOYS_MAX, entry_cost
from perdure.broker.auth.grant import Grant, grant_of
from perdure.broker.auth.hashes import (
    SCRYPT_LOG2_N,
    SCRYPT_P,
    SCRYPT_R,
    ScryptHash,
    SlowHash,
    TokenHash,
    parse_hash,
)
from perdure.broker.auth.method import (
    AuthMethod,
    MethodContext,
    UnusableAnswer,
    allow,
    deny,
    ignore,
)
from perdure.broker.auth.passwords import give_way, verify_password
from perdure.config.schema.auth_methods import StoreConfig
from perdure.mqtt.reason_codes import NOT_AUTHORIZED
from perdure.topic.rules import Permission

CACHE_KEY_BYTES: Final = 32
NOBODY: Final = "perdure-config-check"
"""Whom a probe looks up: no user should be called so."""

ENTRIES_MAX: Final = 16
"""Hashes of one user: each slow one is a check."""

_DECOY: Final = ScryptHash(SCRYPT_LOG2_N, SCRYPT_R, SCRYPT_P, bytes(16), bytes(32))
"""What a wrong password costs before any hash was seen: as much as `perdure passwd` makes it."""


@final
class StoredUser(msgspec.Struct, frozen=True):
    """What a server has of a user.

    Attributes:
        entries: its hashes, as written.
        superuser: exempt from all rules.
    """

    entries: tuple[str, ...]
    superuser: bool = False


@final
class StoredPasswords:
    """Checks passwords by entries that are looked up.

    Args:
        context: threads, chance, log.
        cache_max: right passwords that are remembered.
    """

    def __init__(self, context: MethodContext, *, cache_max: int) -> None:
        self._context = context
        self._cache_max = cache_max
        self._cache_key = context.random_bytes(CACHE_KEY_BYTES)
        self._cache: OrderedDict[str, bytes] = OrderedDict()
        self._decoys: dict[tuple[object, ...], SlowHash] = {entry_cost(_DECOY): _DECOY}
        self._pool = ThreadPoolExecutor(
            context.threads, thread_name_prefix="perdure-verify", initializer=give_way
        )

    async def fits(self, entries: Sequence[str], password: bytes) -> str | None:
        """The entry that a password fits; None = none does, or there are none."""
        written: dict[SlowHash, str] = {}
        for text in entries[:ENTRIES_MAX]:
            try:
                entry = parse_hash(text)
            except ValueError as error:
                self._context.log.warning(
                    "auth.hash_unusable", method=self._context.name, error=str(error)
                )
                continue
            if isinstance(entry, TokenHash):
                if entry.verify(password):
                    return text
            else:
                written[entry] = text
                self._learn(entry)
        digest = hmac.digest(self._cache_key, password, "sha256")
        for text in written.values():
            known = self._cache.get(text)
            if known is not None and hmac.compare_digest(known, digest):
                return text
        found = await asyncio.get_running_loop().run_in_executor(
            self._pool, verify_password, tuple(written), tuple(self._decoys.values()), password
        )
        if found is None:
            return None
        self._remember(written[found], digest)
        return written[found]

    def forget(self) -> None:
        """Remember nothing of what was right."""
        self._cache.clear()

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _learn(self, entry: SlowHash) -> None:
        """Let unknown users cost what this one does."""
        cost = entry_cost(entry)
        if cost in self._decoys:
            return
        if len(self._decoys) >= DECOYS_MAX:
            del self._decoys[next(iter(self._decoys))]
        self._decoys[cost] = entry

    def _remember(self, text: str, digest: bytes) -> None:
        if not self._cache_max:
            return
        self._cache.pop(text, None)
        while len(self._cache) >= self._cache_max:
            self._cache.popitem(last=False)
        self._cache[text] = digest


class StoredUsers(AuthMethod):
    """A method that looks users up.

    Args:
        settings: of the method.
        context: clock, threads, chance, log.
    """

    def __init__(self, settings: StoreConfig, context: MethodContext) -> None:
        self._store = settings
        self._context = context
        self._passwords = StoredPasswords(context, cache_max=settings.verify_cache_max)

    @abstractmethod
    async def find_user(self, request: AuthRequest) -> StoredUser | None:
        """Look up the user of a request; None = there is none.

        Raises:
            MethodUnavailable: nobody knows.
        """

    @abstractmethod
    async def find_rules(self, request: AuthRequest) -> list[str] | None:
        """Look up what the user may do, ``read public/#``; None = that is not kept here.

        Raises:
            MethodUnavailable: nobody knows.
        """

    async def authenticate(self, request: AuthRequest) -> AuthResult:
        """Decide on a user name and a password; has no opinion on a client without a name."""
        if request.username is None:
            return ignore()
        if request.password is None:
            return deny(reason="no password")
        user = await self.find_user(request)
        entry = await self._passwords.fits(user.entries if user else (), request.password)
        if user is None and self._store.unknown_user == "ignore":
            return ignore()
        if user is None or entry is None:
            return deny(reason="there is no such user" if user is None else "a wrong password")
        return await self._allow(request, user, entry)

    async def renew(self, request: AuthRequest, proof: object | None) -> AuthResult:
        """Whether the user is there, with the hash that its client has fitted."""
        user = await self.find_user(request)
        if user is None or not isinstance(proof, str) or proof not in user.entries:
            return deny(NOT_AUTHORIZED, "the user is gone, or has another password")
        return await self._allow(request, user, proof)

    async def probe(self) -> None:
        """Look up a user that there is not: the server is there, and takes the questions."""
        request = AuthRequest(client_id=NOBODY, username=NOBODY)
        await self.find_user(request)
        await self.find_rules(request)

    def reload(self) -> None:
        """Remember nothing."""
        self._passwords.forget()

    async def close(self) -> None:
        """End the threads."""
        self._passwords.close()

    async def _allow(self, request: AuthRequest, user: StoredUser, entry: str) -> AuthResult:
        rules = None if user.superuser else await self.find_rules(request)
        try:
            grant = self._grant(user, rules)
        except ValueError as error:
            raise UnusableAnswer(f"the rules of {request.username!r}: {error}") from None
        return allow(
            request.username,
            superuser=user.superuser,
            grant=grant,
            recheck_us=self._context.recheck_us(self._store.recheck_s),
            proof=entry,
        )

    def _grant(self, user: StoredUser, rules: list[str] | None) -> Grant | None:
        if rules is None:
            return Grant((), superuser=True) if user.superuser else None
        return grant_of(rules, rules_max=self._store.acl_rows_max)


def rule_line(permission: object, topic: object) -> str:
    """A rule of two columns, or of a field and its value.

    Raises:
        UnusableAnswer: they are none.
    """
    if not isinstance(topic, str) or not topic.strip():
        # Alone, the permission would be taken for a topic filter.
        raise UnusableAnswer("a rule has no topic")
    try:
        return f"{Permission(permission).value} {topic}"
    except ValueError:
        known = ", ".join(each.value for each in Permission)
        raise UnusableAnswer(f"{permission!r} is no permission: {known}") from None
