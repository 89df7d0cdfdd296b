"""Who may connect at all: bounds over all listeners, checked when a socket is accepted.

A refusal here costs no handshake. Counts addresses and connections; knows no client identifiers.

Invariant: every address that was admitted is released exactly once.
"""

from __future__ import annotations

from typing import final

from perdure.broker.auth.addresses import address_key
from perdure.broker.runtime.token_bucket import TokenBucket
from perdure.config.schema import LimitsConfig


@final
class Admission:
    """The broker's bounds on connections: in all, from one address, and in one second."""

    __slots__ = ("_by_address", "_limits", "_pace", "connections")

    def __init__(self, limits: LimitsConfig) -> None:
        self._by_address: dict[str, int] = {}
        self.connections = 0
        """Connections admitted and not yet released."""
        self.configure(limits)

    def configure(self, limits: LimitsConfig) -> None:
        """Take new limits; who is connected stays, and stays counted."""
        self._limits = limits
        self._pace = TokenBucket(limits.connect_rate) if limits.connect_rate else None

    def admit(
        self,
        address: str,
        *,
        now_s: float,
        per_ip_max: int = -1,
        pace: TokenBucket | None = None,
        paced: bool = True,
    ) -> str:
        """Count a new connection, or say which limit refuses it.

        Args:
            address: IP address of the peer.
            now_s: monotonic time in seconds.
            per_ip_max: the listener's own bound for one address; -1 = it has none.
            pace: the listener's own rate; None = the broker's.
            paced: whether any rate holds.

        Returns:
            Empty when admitted, else the name of the limit.
        """
        limits = self._limits
        if self.connections >= limits.connections_max:
            return "connections_max"
        # Counted even without a limit, so that one can be set while connections are there.
        key = address_key(address)
        from_address = self._by_address.get(key, 0)
        if per_ip_max < 0:
            per_ip_max = limits.connections_per_ip_max
        if per_ip_max and from_address >= per_ip_max:
            return "connections_per_ip_max"
        pace = pace or self._pace
        if paced and pace is not None and not pace.try_take(1, int(now_s * 1_000_000)):
            return "connect_rate"
        self.connections += 1
        self._by_address[key] = from_address + 1
        return ""

    def release(self, address: str) -> None:
        """Count an admitted connection as gone."""
        self.connections -= 1
        key = address_key(address)
        remaining = self._by_address[key] - 1
        if remaining:
            self._by_address[key] = remaining
        else:
            del self._by_address[key]
