"""What every change needs: the file, the time, chance, and who makes it."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from typing import final

import msgspec

from perdure.admin.audit import AuditRecord
from perdure.admin.rights import Principal
from perdure.clock import Clock
from perdure.identity.file import IdentityFile


@final
class Actor(msgspec.Struct, frozen=True):
    """Who makes a change, and in which request.

    Attributes:
        principal: who.
        request_id: of the HTTP request; empty = it was none.
    """

    principal: Principal
    request_id: str = ""


@final
class Ledger:
    """The file, and how changes in it are written down.

    Args:
        file: opened.
        clock: tells wall time.
        random_bytes: a source of secrets.
    """

    def __init__(
        self,
        file: IdentityFile,
        clock: Clock,
        *,
        random_bytes: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self.file = file
        self.clock = clock
        self.random_bytes = random_bytes

    def record(
        self,
        actor: Actor,
        operation: str,
        target: str,
        *,
        before: object = None,
        after: object = None,
    ) -> None:
        """Write down a change, within the transaction that makes it."""
        principal = actor.principal
        self.file.record(
            AuditRecord(
                at_us=self.clock.now_us(),
                principal=principal.name,
                role=principal.role,
                source=principal.source,
                peer=principal.peer,
                request_id=actor.request_id,
                operation=operation,
                target=target,
                request={},
                before=msgspec.to_builtins(before),
                after=msgspec.to_builtins(after),
                outcome="ok",
            )
        )


def digest(secret: str) -> bytes:
    """What is kept of a generated secret: nobody guesses one, so that it needs no slow hash."""
    return hashlib.sha256(secret.encode()).digest()
