"""What stands around every method that is not the broker's own: bounds, bans, time, counts.

Invariant: however slow what a method asks is, no more than ``pending_max`` questions wait for it
and none longer than ``timeout_ms``; what cannot be answered is refused.
"""

from __future__ import annotations

import asyncio
import functools
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, final

import msgspec

from perdure.broker.auth.addresses import address_key
from perdure.broker.auth.authenticate import AuthRequest, AuthResult, refused
from perdure.broker.auth.breaker import Breaker
from perdure.broker.auth.guard import REFUSAL_DELAY_US, LoginGuard
from perdure.broker.auth.method import (
    AuthMethod,
    MethodContext,
    MethodUnavailable,
    UnusableAnswer,
)
from perdure.config.schema import LookupConfig, MethodConfig
from perdure.mqtt.reason_codes import (
    BAD_USERNAME_OR_PASSWORD,
    BANNED,
    QUOTA_EXCEEDED,
    SERVER_BUSY,
    SERVER_UNAVAILABLE,
)
from perdure.observe.instruments import Histogram, add

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

PER_ADDRESS: Final = "auth.verify_pending_per_address_max"


@final
class GuardedMethod:
    """An ``Authenticator`` of a chain.

    Args:
        method: what it asks.
        settings: its bounds.
        context: what the method was made with.
        guard: counts failures, and keeps out who has too many.

    Attributes:
        name: of the method.
        pending: questions under way.
    """

    def __init__(
        self, method: AuthMethod, settings: MethodConfig, context: MethodContext, guard: LoginGuard
    ) -> None:
        self.name = context.name
        self.method = method
        self.pending = 0
        self._settings = settings
        self._context = context
        self._guard = guard
        self._of_addresses: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[AuthResult]] = set()
        context.metrics.auth_check_seconds.setdefault((self.name,), Histogram())
        self._breaker: Breaker | None = None
        if isinstance(settings, LookupConfig):
            self._breaker = Breaker(
                failures_max=settings.breaker_failures, open_us=settings.breaker_s * 1_000_000
            )
            context.metrics.auth_breaker_open[self.name,] = 0

    async def authenticate(self, request: AuthRequest) -> AuthResult:
        """Decide on a CONNECT, or leave it to the next method."""
        guard = self._guard
        who = request.username or ""
        address, client_id, now_us = request.address, request.client_id, request.now_us
        ban = guard.verdict(username=who, address=address, client_id=client_id, now_us=now_us)
        if ban is not None:
            return refused(self.name, BANNED, limit=ban.limit, delay_us=REFUSAL_DELAY_US)
        place = address_key(address)
        limit = self._limit(place)
        if limit:
            self._count("busy")
            reason = QUOTA_EXCEEDED if limit == PER_ADDRESS else SERVER_BUSY
            return refused(self.name, reason, limit=limit, delay_us=REFUSAL_DELAY_US)
        self.pending += 1
        self._of_addresses[place] += 1
        result = await self._run(self._answer(lambda: self.method.authenticate(request)), place)
        if result.undecided:
            return result
        if result.ok:
            guard.succeeded(username=who, address=address, client_id=client_id, now_us=now_us)
            return result
        made = None
        if result.reason_code == BAD_USERNAME_OR_PASSWORD:
            made = guard.failed(username=who, address=address, client_id=client_id, now_us=now_us)
        delay_us = REFUSAL_DELAY_US if guard.is_suspect(address, now_us) else 0
        return msgspec.structs.replace(result, ban=made, delay_us=delay_us)

    async def renew(self, request: AuthRequest, proof: object | None) -> AuthResult:
        """Decide on a client that the method has let in before."""
        return await self._run(self._answer(lambda: self.method.renew(request, proof)))

    async def close(self) -> None:
        """Give up what is under way, and end the method."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.method.close()

    async def _run(
        self, work: Coroutine[Any, Any, AuthResult], place: str | None = None
    ) -> AuthResult:
        """Do something in a task of its own: a CONNECT is handled in none, and what methods use
        wants one. It goes on if the client hangs up, and is counted until it ends."""
        task = asyncio.get_running_loop().create_task(work, name=f"auth.{self.name}")
        self._tasks.add(task)
        task.add_done_callback(functools.partial(self._ended, place))
        return await asyncio.shield(task)

    def _ended(self, place: str | None, task: asyncio.Task[AuthResult]) -> None:
        self._tasks.discard(task)
        if place is not None:
            self.pending -= 1
            self._of_addresses[place] -= 1
            if not self._of_addresses[place]:
                del self._of_addresses[place]
        if not task.cancelled():
            task.exception()  # whoever waits for it is told; nobody may

    def _limit(self, place: str) -> str:
        """The setting that refuses one more question; empty = there is room."""
        per_address_max = self._guard.config.verify_pending_per_address_max
        if per_address_max and self._of_addresses[place] >= per_address_max:
            return PER_ADDRESS
        return f"auth.{self.name}.pending_max" if self.pending >= self._settings.pending_max else ""

    async def _answer(self, ask: Callable[[], Awaitable[AuthResult]]) -> AuthResult:
        context = self._context
        started_us = context.clock.monotonic_us()
        breaker = self._breaker
        if breaker is not None and not breaker.may_ask(started_us):
            self._count("unavailable")
            return refused(self.name, SERVER_UNAVAILABLE, reason="it has failed too often lately")
        try:
            async with asyncio.timeout(self._settings.timeout_ms / 1000):
                result = await ask()
        except (TimeoutError, MethodUnavailable) as error:
            said = str(error) or "no answer in time"
            context.log.warning("auth.unavailable", method=self.name, error=said)
            result = refused(self.name, SERVER_UNAVAILABLE, reason=said)
            if isinstance(error, UnusableAnswer):
                self._succeeded()
            else:
                self._failed()
        except BaseException:
            if breaker is not None:
                breaker.given_up()
            raise
        else:
            self._succeeded()
        ended_us = context.clock.monotonic_us()
        context.metrics.auth_check_seconds[self.name,].observe(ended_us - started_us)
        if result.undecided:
            self._count("ignore")
        elif result.reason_code == SERVER_UNAVAILABLE:
            self._count("unavailable")
        else:
            self._count("allow" if result.ok else "deny")
        return msgspec.structs.replace(result, method=self.name)

    def _failed(self) -> None:
        breaker, context = self._breaker, self._context
        if breaker is None:
            return
        was_open = breaker.is_open
        breaker.failed(context.clock.monotonic_us())
        context.metrics.auth_breaker_open[self.name,] = int(breaker.is_open)
        if breaker.is_open and not was_open:
            context.log.error(
                "auth.left_alone",
                method=self.name,
                hint=f"clients are refused; it is tried again each auth.{self.name}.breaker_s",
            )

    def _succeeded(self) -> None:
        breaker, context = self._breaker, self._context
        if breaker is None:
            return
        if breaker.is_open:
            context.log.info("auth.answers_again", method=self.name)
        breaker.succeeded()
        context.metrics.auth_breaker_open[self.name,] = 0

    def _count(self, result: str) -> None:
        add(self._context.metrics.auth_checks, (self.name, result))
