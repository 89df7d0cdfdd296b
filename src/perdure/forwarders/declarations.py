"""Applications that clients declare in CONNECT, by user properties."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from perdure.broker.auth.authorize import Identity
from perdure.broker.core import ClientDeclarations
from perdure.errors import PerdureError

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from perdure.broker.core import BrokerCore
    from perdure.forwarders.applications import Applications

NAME: Final = "perdure-application"
"""User property of CONNECT: the application; empty = its name is the client identifier."""
FILTER: Final = "perdure-application-filter"
"""User property of CONNECT, once for each topic filter of it."""


@final
class DeclaredByClients(ClientDeclarations):
    """Adds what clients declare, as far as they may subscribe to it.

    Args:
        core: of the broker.
        applications: of the broker.
        log: where events go.
    """

    def __init__(
        self, core: BrokerCore, applications: Applications, log: FilteringBoundLogger
    ) -> None:
        self._core = core
        self._applications = applications
        self._log = log

    def declared(
        self, identity: Identity, client_id: str, pairs: tuple[tuple[str, str], ...]
    ) -> None:
        """Add the application that a client declares, if it does."""
        names = [value for name, value in pairs if name == NAME]
        filters = [value for name, value in pairs if name == FILTER]
        if not names or not filters:
            return
        self._core.scheduler.spawn(
            self._add(identity, client_id, names[0] or client_id, filters), name="application"
        )

    async def _add(self, identity: Identity, client_id: str, name: str, filters: list[str]) -> None:
        try:
            _, settings = self._applications.forwarder(name, filters)
            for each in settings["filter"]:
                if not self._core.authorizer.subscribe(identity, each):
                    self._log.warning(
                        "application.not_authorized", client_id=client_id, application=name
                    )
                    return
            user = identity.username
            by = f"client {client_id}" if user is None else f"user {user}"
            await self._applications.add(name, filters, by=by)
        except PerdureError as error:
            self._log.warning(
                "application.refused", client_id=client_id, application=name, error=error.message
            )
