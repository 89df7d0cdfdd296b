"""Who may connect at all: bounds over all listeners, checked when a socket is accepted.

A refusal here costs no handshake. Counts addresses and connections; knows no client identifiers.

Invariant: every address that was admitted is released exactly once.
"""

from __future__ import annotations

import ipaddress
from typing import Final, final

from perdure.broker.quotas import TokenBucket
from perdure.config.schema import LimitsConfig

IPV6_SITE_BITS: Final = 64
"""What one IPv6 customer has at least: its addresses count as one."""


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
        # Counted even without a limit, so that one can be set while connections are there.
        key = address_key(address)
        from_address = self._by_address.get(key, 0)
        if limits.connections_per_ip_max and from_address >= limits.connections_per_ip_max:
            return "connections_per_ip_max"
        if self._pace is not None and not self._pace.try_take(1, int(now_s * 1_000_000)):
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


def address_key(address: str) -> str:
    """What counts as one address: IPv4 as it is, also when mapped into IPv6; IPv6 by its /64.

    A text that is no address (a Unix socket has none) counts as itself.
    """
    if ":" not in address:
        return address
    try:
        parsed = ipaddress.IPv6Address(address)
    except ValueError:
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    shift = 128 - IPV6_SITE_BITS
    return f"{ipaddress.IPv6Address(int(parsed) >> shift << shift)}/{IPV6_SITE_BITS}"
