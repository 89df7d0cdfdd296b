"""The part of a fake broker behind the admin socket that is the same for both of its ends."""

from __future__ import annotations

from perdure.errors import PerdureError
from perdure.server.admin import Row


class FakeAdmin:
    """Remembers what it was asked, and knows one client.

    Args:
        known: identifier of the client.

    Attributes:
        asked: the calls, in order.
        refusal: raised by the calls that may be refused.
    """

    def __init__(self, known: str) -> None:
        self.asked: list[tuple[str, ...]] = []
        self.refusal: PerdureError | None = None
        self._known = known

    async def discard(self, client_id: str) -> bool:
        self.asked.append(("discard", client_id))
        if self.refusal:
            raise self.refusal
        return client_id == self._known

    async def kick(self, client_id: str) -> bool:
        self.asked.append(("kick", client_id))
        return client_id == self._known

    async def set_owner(self, client_id: str, username: str) -> bool:
        self.asked.append(("set_owner", client_id, username))
        return client_id == self._known

    def bans(self) -> list[Row]:
        return [{"kind": "client_id", "value": f"c{number}"} for number in range(2)]

    async def ban(self, kind: str, value: str, *, reason: str, until_us: int) -> Row:
        self.asked.append(("ban", kind, value, reason, str(until_us)))
        return {"kind": kind, "value": value, "closed": 1}

    async def unban(self, kind: str, value: str) -> Row | None:
        self.asked.append(("unban", kind, value))
        return {"kind": kind, "value": value, "action": "removed"} if value == "there" else None
