"""Operations on the log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

from perdure.admin.operation import Request
from perdure.admin.problems import Refused
from perdure.admin.records.storage import DATABASE, NewGeneration, RotateLog
from perdure.broker.services import Services
from perdure.config.units import format_time
from perdure.errors import ConfigError
from perdure.server.administration.service import Call, Handler
from perdure.server.administration.sessions import check_writable
from perdure.storage.contract import TakesStructure
from perdure.topic.proposal import check_structure


@final
class StorageOperations:
    """Answers what is asked of the log.

    Args:
        services: the parts of the broker.
    """

    def __init__(self, services: Services) -> None:
        self._services = services

    def handlers(self) -> Mapping[type[Request[Any]], Handler]:
        """By request."""
        return {RotateLog: self.rotate}

    async def rotate(self, request: RotateLog, call: Call) -> NewGeneration:
        """Begin a new generation."""
        check_database(request.database)
        services = self._services
        check_writable(services)
        database, wall_us = services.database, services.clock.wall_us()
        if request.structure is None:
            info = database.rotate(wall_us)
        elif isinstance(database, TakesStructure):
            check_structure(request.structure)
            info = database.rotate_to(request.structure, wall_us)
        else:
            raise ConfigError("the log of this broker learns no topic structures", path="storage")
        services.log.info("generation.added", generation=info.generation)
        call.after = made = NewGeneration(
            generation=info.generation,
            created_at=format_time(info.created_at_us),
            created_at_us=info.created_at_us,
        )
        return made


def check_database(name: str) -> None:
    """Make sure that there is a database of a name.

    Raises:
        Refused: there is none.
    """
    if name != DATABASE:
        raise Refused("not_found", f"there is no database {name!r:.100}", hint=f"it is {DATABASE}")
