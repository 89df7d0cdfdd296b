"""What is recorded of every change that an administrator makes, or tries to make."""

from __future__ import annotations

from typing import Any, Protocol, final

import msgspec


@final
class AuditRecord(msgspec.Struct, frozen=True):
    """One change, or one that was refused.

    Attributes:
        at_us: wall time.
        principal, role, source, peer: who, and from where (``rights.Principal``).
        request_id: stands in the HTTP answer and in the log too; empty = the admin socket.
        operation: name in the table.
        target: what was changed, as its identifier; several are joined by commas.
        request: what was asked, without secrets and payloads.
        before, after: the record that was changed; None = there was none, or it is not known.
        outcome: ``ok`` or the code of the refusal.
    """

    at_us: int
    principal: str
    role: str
    source: str
    peer: str
    request_id: str
    operation: str
    target: str
    request: dict[str, Any]
    before: Any
    after: Any
    outcome: str


class AuditHook(Protocol):
    """Where the records go."""

    async def record(self, record: AuditRecord) -> None:
        """Keep one; returns once it is kept."""
        ...
