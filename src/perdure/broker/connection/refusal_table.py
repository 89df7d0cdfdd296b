"""Who was refused lately, and why the last time: for operators.

Invariant: memory is bounded, whoever is refused. Refusals of one client of one kind are one row,
and the row that was touched least lately goes first.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, final

ROWS_MAX: Final = 1_000
"""About 1 MB of names."""


@final
class RefusalRow:
    """Refusals of one client, of one kind of packet.

    Attributes:
        packet: ``connect``, ``publish``, ``subscribe`` or ``packet``.
        client_id, username: as stated, shortened; None = not known.
        address, listener: where it came from.
        reason_code, reason, topic: of the last one; None = it was about no topic.
        count: how many.
        first_us, last_us: monotonic time.
    """

    __slots__ = (
        "address",
        "client_id",
        "count",
        "first_us",
        "last_us",
        "listener",
        "packet",
        "reason",
        "reason_code",
        "topic",
        "username",
    )

    def __init__(self, packet: str, client_id: str | None, address: str, now_us: int) -> None:
        self.packet = packet
        self.client_id = client_id
        self.username: str | None = None
        self.address = address
        self.listener = ""
        self.reason_code = 0
        self.reason = ""
        self.topic: str | None = None
        self.count = 0
        self.first_us = now_us
        self.last_us = now_us


@final
class RefusalTable:
    """The rows, the one touched last at the end."""

    def __init__(self) -> None:
        self._rows: OrderedDict[tuple[str, str | None, str], RefusalRow] = OrderedDict()

    def add(
        self,
        packet: str,
        client_id: str | None,
        address: str,
        now_us: int,
        *,
        username: str | None,
        listener: str,
        reason_code: int,
        reason: str,
        topic: str | None,
    ) -> None:
        """Count a refusal."""
        key = (packet, client_id, address)
        row = self._rows.get(key)
        if row is None:
            if len(self._rows) >= ROWS_MAX:
                self._rows.popitem(last=False)
            row = self._rows[key] = RefusalRow(packet, client_id, address, now_us)
        else:
            self._rows.move_to_end(key)
        row.count += 1
        row.last_us = now_us
        row.username, row.listener = username, listener
        row.reason_code, row.reason, row.topic = reason_code, reason, topic

    def latest(self) -> list[RefusalRow]:
        """All rows, the latest first."""
        return list(reversed(self._rows.values()))
