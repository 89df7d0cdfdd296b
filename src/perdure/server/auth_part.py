"""The ways to authenticate that ask somebody else, as a part of the process's life."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, final

from perdure.auth_methods.opening import Surroundings, open_method
from perdure.broker.auth.guard import LoginGuard
from perdure.clock import SystemClock
from perdure.config.schema import AUTH_METHODS, Config
from perdure.observe.logs import get_logger
from perdure.observe.metrics import Metrics
from perdure.server.listeners import listener_chains

if TYPE_CHECKING:
    from perdure.broker.access.login_expiry import LoginExpiry
    from perdure.broker.auth.guarded import GuardedMethod

log = get_logger("auth")


def names_in_use(config: Config) -> list[str]:
    """Methods that some chain names and that are not the broker's own, each once."""
    chains = (config.auth.chain, *listener_chains(config).values())
    return list(
        dict.fromkeys(
            name for chain in chains for name in chain if not AUTH_METHODS[name].is_built_in
        )
    )


@final
class AuthPart:
    """All such methods of a broker.

    Args:
        config: of the broker.
        metrics: of the broker.

    Attributes:
        guard: counts failed logins, for all methods.
        login_expiry: told of users that have changed; set when there is a broker.

    Raises:
        ConfigError: a method cannot be made.
    """

    name: str = "auth"

    def __init__(self, config: Config, metrics: Metrics) -> None:
        self.guard = LoginGuard(config.auth)
        self.login_expiry: LoginExpiry | None = None
        around = Surroundings(
            clock=SystemClock(),
            log=log,
            metrics=metrics,
            random_bytes=secrets.token_bytes,
            guard=self.guard,
            changed=self._changed,
        )
        self.methods: Mapping[str, GuardedMethod] = {
            name: open_method(name, config.auth, around) for name in names_in_use(config)
        }

    async def start(self) -> None:
        """Begin what goes on beside the questions."""
        for guarded in self.methods.values():
            await guarded.method.start()

    async def stop(self) -> None:
        """End it."""
        for guarded in self.methods.values():
            await guarded.close()

    def reload(self) -> None:
        """Forget what is remembered, and ask again about every client that is connected.

        Raises:
            ConfigError: a file cannot be used; its method goes on with what it had.
        """
        for guarded in self.methods.values():
            guarded.method.reload()
        if self.methods and self.login_expiry is not None:
            self.login_expiry.look_again()

    def _changed(self, method: str, username: str | None) -> None:
        if self.login_expiry is None:
            return
        count = self.login_expiry.look_again(username, method=method)
        log.info("auth.changed", method=method, username=username, clients=count)
