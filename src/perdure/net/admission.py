"""Who may connect at all: bounds over all listeners, checked when a socket is accepted.

A refusal here costs no handshake. Counts addresses and connections; knows no client identifiers.

Invariant: every address that was admitted is released exactly once.
"""

from __future__ import annotations

from typing import final

from perdure.config.schema import LimitsConfig


@final
class Admission:
    """The broker's bounds on connections: in all, from one address, and in one second."""

    __slots__ = ("_allowance", "_by_address", "_filled_at_s", "_limits", "connections")

    def __init__(self, limits: LimitsConfig) -> None:
        self._limits = limits
        self._by_address: dict[str, int] = {}
        self._allowance = float(limits.connect_rate)
        self._filled_at_s = 0.0
        self.connections = 0
        """Connections admitted and not yet released."""

    def configure(self, limits: LimitsConfig) -> None:
        """Take new limits; who is connected stays."""
        self._limits = limits
        self._allowance = min(self._allowance, float(limits.connect_rate))

    def admit(self, address: str, *, now_s: float) -> str:
        """Count a new connection, or say which limit refuses it.

        Args:
            address: IP address of the peer.
            now_s: monotonic time in seconds.

        Returns:
            Empty when admitted, else the name of the limit.
        """
        limits = self._limits
        if self.connections >= limits.connections_max:
            return "connections_max"
        from_address = self._by_address.get(address, 0)
        if limits.connections_per_ip_max and from_address >= limits.connections_per_ip_max:
            return "connections_per_ip_max"
        if limits.connect_rate and not self._take(limits.connect_rate, now_s):
            return "connect_rate"
        self.connections += 1
        self._by_address[address] = from_address + 1
        return ""

    def release(self, address: str) -> None:
        """Count an admitted connection as gone."""
        self.connections -= 1
        remaining = self._by_address[address] - 1
        if remaining:
            self._by_address[address] = remaining
        else:
            del self._by_address[address]

    def _take(self, rate: int, now_s: float) -> bool:
        """Take one token from a bucket that holds one second's worth."""
        grown = self._allowance + (now_s - self._filled_at_s) * rate
        self._allowance = min(float(rate), grown)
        self._filled_at_s = now_s
        if self._allowance < 1.0:
            return False
        self._allowance -= 1.0
        return True
