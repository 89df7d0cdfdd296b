"""User names and passwords of CONNECT packets, checked against the credentials file.

Holds the threads in which slow hashes are checked, the bound on what waits for them, and the
memory of passwords that were right. It must not know how the file or a hash is written.

Invariant: what waits is bounded, and the loop never computes a slow hash. A reconnect storm
costs one check for each user: a check under way serves all who ask the same question, and its
good outcome is remembered. A client that hangs up while it waits does not stop its check, so
that its next attempt finds the answer and a storm always ends.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Final, TypeAlias, final

from perdure.broker.auth.authenticate import (
    BAD_USER_NAME_OR_PASSWORD,
    SERVER_BUSY,
    SERVER_UNAVAILABLE,
    AuthRequest,
    AuthResult,
    accepted,
    refused,
    undecided,
)
from perdure.broker.auth.credentials import CredentialsFile
from perdure.broker.auth.hashes import SlowHash

METHOD: Final = "password"

VERIFY_THREADS: Final = 2
VERIFY_QUEUE_MAX: Final = 1000
"""Checks under way and waiting; at 0.12 s and two threads the last one waits a minute, longer
than clients do."""

VERIFY_CACHE_MAX: Final = 10_000
"""Users whose last good password is remembered; about 300 bytes each."""

_Question: TypeAlias = tuple[str, bytes]


@final
class PasswordAuthenticator:
    """Checks passwords and tokens.

    Args:
        credentials: the users.
        cache_key: random bytes of this process. What is remembered of a password is its
            HMAC under this key, which is never stored.
        threads: threads for slow hashes.
        queue_max: checks under way and waiting, past which clients hear 0x89 Server busy.
        cache_max: users whose last good password is remembered; 0 = none.
        superusers: user names exempt from the ACL.
        pool: where slow hashes are checked instead of in threads of our own.
    """

    def __init__(
        self,
        credentials: CredentialsFile,
        *,
        cache_key: bytes,
        threads: int = VERIFY_THREADS,
        queue_max: int = VERIFY_QUEUE_MAX,
        cache_max: int = VERIFY_CACHE_MAX,
        superusers: Iterable[str] = (),
        pool: Executor | None = None,
    ) -> None:
        self._credentials = credentials
        self._decoy = credentials.decoy()
        self._cache_key = cache_key
        self._queue_max = queue_max
        self._cache_max = cache_max
        self._superusers = frozenset(superusers)
        self._pool = pool or ThreadPoolExecutor(threads, thread_name_prefix="perdure-verify")
        self._cache: dict[str, bytes] = {}
        self._checks: dict[_Question, asyncio.Future[bool]] = {}
        self._pending_count = 0
        self._closed = False

    @property
    def credentials(self) -> CredentialsFile:
        """The users as of now."""
        return self._credentials

    @property
    def pending_count(self) -> int:
        """Checks under way and waiting."""
        return self._pending_count

    def reload(self, credentials: CredentialsFile, *, superusers: Iterable[str] = ()) -> None:
        """Use other credentials from now on; nothing that was remembered survives."""
        self._credentials = credentials
        self._decoy = credentials.decoy()
        self._superusers = frozenset(superusers)
        self._cache = {}
        self._checks = {}

    def close(self) -> None:
        """Drop what waits; clients that still ask hear 0x88 Server unavailable."""
        self._closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def authenticate(self, request: AuthRequest) -> AuthResult:
        """Decide on a request with a user name; has no opinion on one without."""
        user = request.username
        if user is None:
            return undecided(METHOD)
        if request.password is None:
            return refused(METHOD, BAD_USER_NAME_OR_PASSWORD)
        if self._closed:
            return refused(METHOD, SERVER_UNAVAILABLE)
        if any(token.verify(request.password) for token in self._credentials.tokens(user)):
            return self._accept(user)
        digest = hmac.digest(self._cache_key, request.password, "sha256")
        known = self._cache.get(user)
        if known is not None and hmac.compare_digest(known, digest):
            return self._accept(user)
        credentials = self._credentials
        result = await self._ask(user, request.password, digest)
        if result.ok and credentials is not self._credentials:
            # The answer is about a file that was replaced meanwhile: ask the new one.
            return await self.authenticate(request)
        return result

    async def _ask(self, user: str, password: bytes, digest: bytes) -> AuthResult:
        """Wait for a thread's answer, unless there is nothing to ask or no room to wait."""
        hashes = self._credentials.hashes(user)
        if not hashes and (self._decoy is None or user in self._credentials):
            # A user with tokens only is answered at once: nothing is to be learned by guessing
            # tokens, and a fleet whose tokens were withdrawn must not keep the threads busy.
            return refused(METHOD, BAD_USER_NAME_OR_PASSWORD)
        check = self._checks.get((user, digest))
        if check is None:
            if self._pending_count >= self._queue_max:
                return refused(METHOD, SERVER_BUSY)
            check = self._start((user, digest), hashes, password)
        try:
            ok = await asyncio.shield(check)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._closed and check.cancelled() and task is not None and not task.cancelling():
                return refused(METHOD, SERVER_UNAVAILABLE)
            raise
        return self._accept(user) if ok else refused(METHOD, BAD_USER_NAME_OR_PASSWORD)

    def _start(
        self, question: _Question, hashes: Sequence[SlowHash], password: bytes
    ) -> asyncio.Future[bool]:
        """Give a check to the threads and arrange for its outcome to be remembered."""
        loop = asyncio.get_running_loop()
        if hashes:
            check = loop.run_in_executor(self._pool, _verify_any, tuple(hashes), password)
        else:
            assert self._decoy is not None
            check = loop.run_in_executor(self._pool, _verify_nobody, self._decoy, password)
        # Both belong to the credentials of now: after a reload they are others, and what this
        # check finds goes nowhere.
        checks, cache = self._checks, self._cache
        checks[question] = check
        self._pending_count += 1

        def finish(done: asyncio.Future[bool]) -> None:
            self._pending_count -= 1
            checks.pop(question, None)
            if not done.cancelled() and done.exception() is None and done.result():
                self._remember(cache, question)

        check.add_done_callback(finish)
        return check

    def _remember(self, cache: dict[str, bytes], question: _Question) -> None:
        user, digest = question
        if self._cache_max == 0:
            return
        cache.pop(user, None)
        if len(cache) >= self._cache_max:
            # The oldest good check goes; a storm that is larger than the cache only pays for
            # the part that does not fit.
            del cache[next(iter(cache))]
        cache[user] = digest

    def _accept(self, user: str) -> AuthResult:
        return accepted(METHOD, user, superuser=user in self._superusers)


def _verify_any(hashes: tuple[SlowHash, ...], password: bytes) -> bool:
    """Whether the password fits one of the user's hashes. Runs in a thread."""
    return any(entry.verify(password) for entry in hashes)


def _verify_nobody(decoy: SlowHash, password: bytes) -> bool:
    """Take the time of a check, so that unknown users cannot be told apart. Runs in a thread."""
    decoy.verify(password)
    return False
