"""Makes a method that a chain names, with what stands around it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from perdure.broker.auth.guard import LoginGuard
from perdure.broker.auth.guarded import GuardedMethod
from perdure.broker.auth.method import AuthMethod, MethodContext
from perdure.clock import Clock
from perdure.config import plugged
from perdure.config.schema import AUTH_METHODS, AuthConfig
from perdure.observe.metrics import Metrics

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What all methods are given alike.

    Attributes:
        clock, log, metrics, random_bytes: see ``MethodContext``.
        guard: counts failed logins.
        changed: told of the method and the user name (None = all) that has changed.
    """

    clock: Clock
    log: FilteringBoundLogger
    metrics: Metrics
    random_bytes: Callable[[int], bytes]
    guard: LoginGuard
    changed: Callable[[str, str | None], None] = lambda method, username: None


def open_method(name: str, config: AuthConfig, around: Surroundings) -> GuardedMethod:
    """Make one method. Nobody is asked yet, but files are read.

    Raises:
        ConfigError: a setting or a file of it cannot be used, or its extra is not installed.
    """
    line = AUTH_METHODS[name]
    opened: Callable[..., AuthMethod] = plugged.load(
        line.opens, setting="auth.chain", what=f"auth.{name}", extra=line.extra
    )
    context = MethodContext(
        name=name,
        clock=around.clock,
        log=around.log,
        metrics=around.metrics,
        random_bytes=around.random_bytes,
        threads=config.verify_threads,
        changed=lambda username: around.changed(name, username),
    )
    settings = config.method(name)
    return GuardedMethod(opened(settings, context), settings, context, around.guard)
