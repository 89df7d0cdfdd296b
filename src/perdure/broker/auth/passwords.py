"""User names and passwords of CONNECT packets, checked against the credentials file.

Holds the threads in which slow hashes are checked, what waits for them (``verify_queue``), and the
memory of passwords that were right. Who has failed too often is kept out by ``guard``. It must not
know how the file or a hash is written.

Invariant: what waits is bounded, and the loop never computes a slow hash. A reconnect storm
costs one check for each user: a check under way serves all who ask the same question, and its
good outcome is remembered. A client that hangs up while it waits does not stop its check, so
that its next attempt finds the answer and a storm always ends.

Invariant: while one address fails again and again, a thread is free for all others.

Invariant: a wrong password takes as long for a user that is known as for one that is not, and is
counted the same way.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hmac
import os
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Final, TypeAlias, final

from perdure.broker.auth.addresses import address_key
from perdure.broker.auth.authenticate import AuthRequest, AuthResult, accepted, refused, undecided
from perdure.broker.auth.credentials import CredentialsFile, entry_cost
from perdure.broker.auth.guard import REFUSAL_DELAY_US, LoginGuard
from perdure.broker.auth.hashes import Hash, SlowHash
from perdure.broker.auth.verify_queue import VerifyQueue
from perdure.mqtt.reason_codes import (
    BAD_USERNAME_OR_PASSWORD,
    BANNED,
    QUOTA_EXCEEDED,
    SERVER_BUSY,
    SERVER_UNAVAILABLE,
    SUCCESS,
)

METHOD: Final = "password"

VERIFY_THREADS: Final = 2
VERIFY_QUEUE_MAX: Final = 1000
"""Checks that wait; at 0.12 s and two threads the last one waits a minute, longer than clients
do."""

VERIFY_CACHE_MAX: Final = 10_000
"""Users whose last good password is remembered; about 300 bytes each."""

VERIFY_NICENESS: Final = 2
"""Of the threads, where the system knows it for a thread (Linux): they compute without the
interpreter's lock, so on a machine with few cores they would take the loop's time."""

TOTAL_BOUND: Final = "auth.verify_queue_max"

_Question: TypeAlias = tuple[str, bytes]
_Known: TypeAlias = tuple[bytes, Hash]


@final
class _Outcome:
    """How a check ended.

    Attributes:
        reason_code: 0 = the password fits.
        proof: the entry that it fits.
        limit: the setting that refused it, if none was checked.
    """

    __slots__ = ("limit", "proof", "reason_code")

    def __init__(self, reason_code: int, proof: Hash | None = None, limit: str = "") -> None:
        self.reason_code = reason_code
        self.proof = proof
        self.limit = limit


_WRONG: Final = _Outcome(BAD_USERNAME_OR_PASSWORD)
_CLOSED: Final = _Outcome(SERVER_UNAVAILABLE)


@final
class _Check:
    """One password of one user, for everyone who asks about it.

    Attributes:
        place: the address that pays for it: of who asked first.
    """

    __slots__ = ("done", "hashes", "password", "place")

    def __init__(
        self,
        hashes: Sequence[SlowHash],
        password: bytes,
        place: str,
        done: asyncio.Future[_Outcome],
    ) -> None:
        self.place = place
        self.hashes = tuple(hashes)
        self.password = password
        self.done = done


@final
class PasswordAuthenticator:
    """Checks passwords and tokens.

    Args:
        credentials: the users.
        cache_key: random bytes of this process. What is remembered of a password is its
            HMAC under this key, which is never stored.
        guard: counts failures, and keeps out who has too many.
        threads: threads for slow hashes.
        queue: what waits for them, and its bounds.
        cache_max: users whose last good password is remembered; 0 = none.
        superusers: user names exempt from the ACL.
        pool: where slow hashes are checked instead of in threads of our own.
    """

    def __init__(
        self,
        credentials: CredentialsFile,
        *,
        cache_key: bytes,
        guard: LoginGuard,
        threads: int = VERIFY_THREADS,
        queue: VerifyQueue[_Check] | None = None,
        cache_max: int = VERIFY_CACHE_MAX,
        superusers: Iterable[str] = (),
        pool: Executor | None = None,
    ) -> None:
        self._credentials = credentials
        self._decoys = credentials.decoys()
        self._cache_key = cache_key
        self._guard = guard
        self.queue: VerifyQueue[_Check] = queue or VerifyQueue(total_max=VERIFY_QUEUE_MAX)
        self._cache_max = cache_max
        self._superusers = frozenset(superusers)
        self._threads = threads
        self._pool = pool or ThreadPoolExecutor(
            threads, thread_name_prefix="perdure-verify", initializer=give_way
        )
        self._cache: dict[str, _Known] = {}
        self._checks: dict[_Question, _Check] = {}
        self._running: list[str] = []
        """The addresses of the checks under way."""
        self._now_us: int = 0
        """Time of the last request."""
        self._closed = False

    @property
    def credentials(self) -> CredentialsFile:
        """The users as of now."""
        return self._credentials

    @property
    def pending_count(self) -> int:
        """Checks under way and waiting."""
        return len(self._running) + self.queue.count

    def reload(self, credentials: CredentialsFile, *, superusers: Iterable[str] = ()) -> None:
        """Use other credentials from now on; nothing that was remembered survives."""
        self._credentials = credentials
        self._decoys = credentials.decoys()
        self._superusers = frozenset(superusers)
        self._cache = {}
        self._checks = {}

    def close(self) -> None:
        """Drop what waits; clients that still ask hear 0x88 Server unavailable."""
        self._closed = True
        while (check := self.queue.take()) is not None:
            _end(check, _CLOSED)
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def authenticate(self, request: AuthRequest) -> AuthResult:
        """Decide on a request with a user name; has no opinion on one without."""
        user = request.username
        if user is None:
            return undecided(METHOD)
        if request.password is None:
            return refused(METHOD, BAD_USERNAME_OR_PASSWORD, reason="no password")
        if self._closed:
            return refused(METHOD, SERVER_UNAVAILABLE)
        guard, client_id = self._guard, request.client_id
        address, now_us = request.address, request.now_us
        self._now_us = now_us
        ban = guard.verdict(username=user, address=address, client_id=client_id, now_us=now_us)
        if ban is not None:
            return refused(METHOD, BANNED, limit=ban.limit, delay_us=REFUSAL_DELAY_US)
        credentials = self._credentials
        outcome = await self._outcome(user, request, request.password)
        if outcome.reason_code == SUCCESS:
            if credentials is not self._credentials:
                # The answer is about a file that was replaced meanwhile: ask the new one.
                return await self.authenticate(request)
            guard.succeeded(username=user, address=address, client_id=client_id, now_us=now_us)
            superuser = user in self._superusers
            return accepted(METHOD, user, superuser=superuser, proof=outcome.proof)
        made = None
        if outcome is _WRONG:
            made = guard.failed(username=user, address=address, client_id=client_id, now_us=now_us)
        is_slow = bool(outcome.limit) or guard.is_suspect(address, now_us)
        delay_us = REFUSAL_DELAY_US if is_slow else 0
        return refused(
            METHOD,
            outcome.reason_code,
            reason=self._why(user, outcome),
            limit=outcome.limit,
            ban=made,
            delay_us=delay_us,
        )

    def _why(self, user: str, outcome: _Outcome) -> str:
        """What a failure is called for operators."""
        if outcome is not _WRONG:
            return ""
        return "a wrong password" if user in self._credentials else "there is no such user"

    async def _outcome(self, user: str, request: AuthRequest, password: bytes) -> _Outcome:
        """What is known of a password, or what a thread says of it."""
        for token in self._credentials.tokens(user):
            if token.verify(password):
                return _Outcome(SUCCESS, token)
        digest = hmac.digest(self._cache_key, password, "sha256")
        known = self._cache.get(user)
        if known is not None and hmac.compare_digest(known[0], digest):
            return _Outcome(SUCCESS, known[1])
        if not self._decoys:
            # All entries of the file are quick, so nobody is told from anybody by the time.
            return _WRONG
        check = self._checks.get((user, digest))
        if check is None:
            check = self._start((user, digest), request, password)
        return await asyncio.shield(check.done)

    def _start(self, question: _Question, request: AuthRequest, password: bytes) -> _Check:
        """Let a check wait for a thread, and arrange for its outcome to be remembered."""
        user = question[0]
        done: asyncio.Future[_Outcome] = asyncio.get_running_loop().create_future()
        address = request.address
        place = address_key(address)
        check = _Check(self._credentials.hashes(user), password, place, done)
        # Both belong to the credentials of now: after a reload they are others, and what this
        # check finds goes nowhere.
        checks, cache = self._checks, self._cache
        checks[question] = check

        def finish(ended: asyncio.Future[_Outcome]) -> None:
            checks.pop(question, None)
            proof = ended.result().proof
            if proof is not None:
                self._remember(cache, question, proof)

        done.add_done_callback(finish)
        guard = self._guard
        given_up = self.queue.add(
            place,
            user,
            check,
            trusted=guard.is_trusted(username=user, address=address, client_id=request.client_id),
            has_failed=guard.has_failed(username=user, address=address, now_us=request.now_us),
        )
        if given_up is not None:
            loser, limit = given_up
            reason = SERVER_BUSY if limit == TOTAL_BOUND else QUOTA_EXCEEDED
            _end(loser, _Outcome(reason, limit=limit))
        self._pump()
        return check

    def _pump(self) -> None:
        """Give the threads what is next."""
        loop = asyncio.get_running_loop()
        running = self._running
        while len(running) < self._threads:
            check = self.queue.take(self._sated())
            if check is None:
                break
            running.append(check.place)
            answer = loop.run_in_executor(
                self._pool, verify_password, check.hashes, self._decoys, check.password
            )
            answer.add_done_callback(functools.partial(self._answered, check))

    def _sated(self) -> set[str]:
        """The suspect addresses that have all threads but one."""
        share = self._threads - 1
        return {
            place
            for place in set(self._running)
            if 0 < share <= self._running.count(place)
            and self._guard.is_suspect(place, self._now_us)
        }

    def _answered(self, check: _Check, answer: asyncio.Future[SlowHash | None]) -> None:
        self._running.remove(check.place)
        if answer.cancelled():
            _end(check, _CLOSED)
            return
        if answer.exception() is not None:
            # No memory for a hash: nobody is let in for it, and nobody waits for ever.
            _end(check, _CLOSED)
        else:
            proof = answer.result()
            _end(check, _WRONG if proof is None else _Outcome(SUCCESS, proof))
        if not self._closed:
            self._pump()

    def _remember(self, cache: dict[str, _Known], question: _Question, proof: Hash) -> None:
        user, digest = question
        if self._cache_max == 0:
            return
        cache.pop(user, None)
        if len(cache) >= self._cache_max:
            # The oldest good check goes; a storm that is larger than the cache only pays for
            # the part that does not fit.
            del cache[next(iter(cache))]
        cache[user] = digest, proof


def _end(check: _Check, outcome: _Outcome) -> None:
    if not check.done.done():
        check.done.set_result(outcome)


def verify_password(
    hashes: tuple[SlowHash, ...], decoys: tuple[SlowHash, ...], password: bytes
) -> SlowHash | None:
    """The entry of a user that a password fits; None = none does. Runs in a thread.

    A wrong password is checked at every cost that the file has, with entries of others where the
    user has none, so that the time tells neither whether the user exists nor what it has.
    """
    for entry in hashes:
        if entry.verify(password):
            return entry
    paid = {entry_cost(entry) for entry in hashes}
    for decoy in decoys:
        if entry_cost(decoy) not in paid:
            decoy.verify(password)
    return None


def give_way() -> None:
    """Let the loop's thread go first. Runs in each thread as it begins."""
    with contextlib.suppress(OSError, AttributeError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), VERIFY_NICENESS)
