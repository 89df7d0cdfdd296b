"""The log: its generations and streams, and what is in it."""

from __future__ import annotations

from typing import Final, final

import msgspec

from perdure.admin.operation import Http, Operation, Request
from perdure.topic.proposal import Structure

DATABASE: Final = "log"
"""Name of the one database of this release."""


@final
class NewGeneration(msgspec.Struct, frozen=True, kw_only=True):
    """A generation that was begun."""

    generation: int
    created_at: str | None
    created_at_us: int


class RotateLog(Request[NewGeneration], frozen=True, kw_only=True):
    """Begin a new generation, with a structure of topics if one is given."""

    database: str = DATABASE
    structure: Structure | None = None


OPERATIONS: Final = (
    Operation(
        name="storage.rotate",
        summary="Begin a new generation of the log",
        request=RotateLog,
        result=NewGeneration,
        right="admin",
        changes=True,
        http=Http("POST", "/storage/databases/{database}/generations", status=201),
        target="database",
    ),
)
