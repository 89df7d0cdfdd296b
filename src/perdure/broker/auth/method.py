"""What a way to authenticate must do, and what it may say.

A method that is not the broker's own is a subclass of ``AuthMethod`` in ``perdure.auth_methods``.
It is asked for each CONNECT whose chain names it, and answers with one of three: ``allow``,
``deny``, or ``ignore``, which leaves it to the next method of the chain. Around each stands a
``guarded.GuardedMethod``, which bounds it: a method need not count, ban or time anything itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from perdure.broker.auth.authenticate import AuthRequest, AuthResult
from perdure.broker.auth.grant import Grant
from perdure.clock import Clock
from perdure.mqtt.reason_codes import BAD_USERNAME_OR_PASSWORD, NOT_AUTHORIZED, SUCCESS
from perdure.observe.metrics import Metrics

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger


class MethodUnavailable(Exception):
    """A method cannot tell now: what it asks is away, or does not answer as it should.

    Args:
        reason: for the log.
    """


class UnusableAnswer(MethodUnavailable):
    """What a method asks is there, but what it says about this client cannot be used. It is no
    reason to leave it alone: others may be served."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class MethodContext:
    """What a method is given when it is made.

    Attributes:
        name: of the method, as a chain names it.
        clock: wall and monotonic time.
        log: for what an operator should know; never with a password, a token or a hash.
        metrics: ``auth_breaker_open`` and the like.
        random_bytes: such as ``secrets.token_bytes``.
        threads: for what takes long to compute.
        changed: to be called when the method learns that users have changed, with a user name or
            None for all: their clients are looked at again at once.
    """

    name: str
    clock: Clock
    log: FilteringBoundLogger
    metrics: Metrics
    random_bytes: Callable[[int], bytes]
    threads: int = 2
    changed: Callable[[str | None], None] = lambda username: None

    def recheck_us(self, seconds: int) -> int:
        """Monotonic time so many seconds from now, at which ``renew`` is asked; 0 for 0."""
        return self.clock.monotonic_us() + seconds * 1_000_000 if seconds else 0


class AuthMethod(ABC):
    """A way to authenticate; ``authenticate`` is all that it must have."""

    @abstractmethod
    async def authenticate(self, request: AuthRequest) -> AuthResult:
        """Judge what a CONNECT says: ``allow``, ``deny`` or ``ignore``.

        Raises:
            MethodUnavailable: it cannot tell; the client is refused.
        """

    async def renew(self, request: AuthRequest, proof: object | None) -> AuthResult:
        """Judge a client that this method has let in before, and that is connected.

        Args:
            request: as of the CONNECT, without a password; ``username`` is what was proved.
            proof: what ``allow`` was given.

        Returns:
            ``allow`` with what holds from now on, ``deny`` (it is disconnected), or ``ignore``
            (all stays as it is).

        Raises:
            MethodUnavailable: it cannot tell; the client stays, and is asked about again.
        """
        return ignore()

    async def probe(self) -> None:  # noqa: B027 - some ask nobody
        """Ask whoever is asked for a client, about one that there is not; before a start.

        Raises:
            MethodUnavailable: there is no answer, or none that could be used.
        """

    async def start(self) -> None:  # noqa: B027 - most have nothing to do
        """Begin what goes on beside the questions; what is away now may come later."""

    def reload(self) -> None:  # noqa: B027 - most have nothing to do
        """The operator has changed something: forget what is remembered, read files again.

        Raises:
            ConfigError: a file cannot be used; all stays as it was.
        """

    async def close(self) -> None:  # noqa: B027 - most have nothing to do
        """End all of it."""


def allow(
    username: str | None,
    *,
    superuser: bool = False,
    grant: Grant | None = None,
    expires_us: int = 0,
    recheck_us: int = 0,
    proof: object | None = None,
) -> AuthResult:
    """The client may connect.

    Args:
        username: as it was proved; None = it has no name.
        superuser: it may use every topic.
        grant: what it may do beside what ``acl_file`` allows; None = the method says nothing.
        expires_us: monotonic time at which it is disconnected; 0 = never.
        recheck_us: monotonic time at which ``renew`` is asked; 0 = at a reload alone.
        proof: given to ``renew``.
    """
    return AuthResult(
        ok=True,
        reason_code=SUCCESS,
        username=username,
        superuser=superuser,
        grant=grant,
        expires_us=expires_us,
        recheck_us=recheck_us,
        proof=proof,
    )


def deny(reason_code: int = BAD_USERNAME_OR_PASSWORD, reason: str = "") -> AuthResult:
    """The client may not connect.

    Args:
        reason_code: 0x86 counts as a failed login; 0x87 Not authorized does not.
        reason: for operators; the client does not hear it.
    """
    return AuthResult(ok=False, reason_code=reason_code, reason=reason)


def ignore() -> AuthResult:
    """The method has nothing to say about such a client; the next one is asked."""
    return AuthResult(ok=False, reason_code=NOT_AUTHORIZED, undecided=True)
