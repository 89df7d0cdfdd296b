"""Rates and counts that a client or an address may not exceed. Pure: time is an argument.

Invariant: whole numbers only. A bucket holds millionths of a token, and a microsecond adds
``rate`` of them, so nothing is lost to rounding however often it is asked.
"""

from __future__ import annotations

import ipaddress
from enum import Enum
from typing import Final, final

_SCALE: Final = 1_000_000
"""Parts of a token; one microsecond at one token a second."""

IPV6_SITE_BITS: Final = 64
"""What one IPv6 customer has at least: its addresses count as one."""


@final
class TokenBucket:
    """Lets ``rate`` tokens a second pass, and ``burst`` at once.

    Args:
        rate: tokens per second, at least 1.
        burst: tokens that may be saved up, at least 1; 0 = one second's worth.
        now_us: monotonic time; the bucket is full then.
    """

    __slots__ = ("_full", "_level", "_rate", "_updated_us")

    def __init__(self, rate: int, burst: int = 0, *, now_us: int = 0) -> None:
        if rate < 1 or burst < 0:
            raise ValueError("a bucket needs a rate of 1 or more, and no negative burst")
        self._rate = rate
        self._full = (burst or rate) * _SCALE
        self._level = self._full
        self._updated_us = now_us

    def take(self, n: int, now_us: int) -> int:
        """Take tokens, on credit if need be.

        For what has arrived already, such as bytes of a PUBLISH: it is let in, and the
        connection is not read from until the debt is paid.

        Returns:
            Microseconds until the bucket is out of debt; 0 = go on at once.
        """
        self._refill(now_us)
        self._level -= n * _SCALE
        if self._level >= 0:
            return 0
        return -(self._level // self._rate)

    def try_take(self, n: int, now_us: int) -> bool:
        """Take tokens if there are enough; for what can be turned away."""
        self._refill(now_us)
        if self._level < n * _SCALE:
            return False
        self._level -= n * _SCALE
        return True

    def _refill(self, now_us: int) -> None:
        elapsed_us = now_us - self._updated_us
        if elapsed_us > 0:
            self._level = min(self._full, self._level + elapsed_us * self._rate)
            self._updated_us = now_us


class Admission(Enum):
    """Whether a new connection may go on; the value is the CONNACK reason code of a refusal."""

    ADMITTED = 0x00
    TOO_MANY = 0x97
    TOO_MANY_FROM_ADDRESS = 0x197
    TOO_FAST = 0x9F

    @property
    def reason_code(self) -> int:
        """0x97 Quota exceeded, 0x9F Connection rate exceeded, or 0x00."""
        return self.value & 0xFF


@final
class ConnectionQuota:
    """Counts connections, of the broker and of each address, and paces new ones.

    Each limit is 0 for none. ``admit`` counts the connection in if it says ADMITTED, and only
    then; each such connection is given back once by ``release``, with the same address.

    Args:
        connections_max: connections of the broker.
        per_address_max: connections from one address (IPv6: from one /64).
        rate: new connections per second, and as many at once.
        now_us: monotonic time.
    """

    __slots__ = ("_by_address", "_connections_max", "_count", "_pace", "_per_address_max")

    def __init__(
        self,
        *,
        connections_max: int = 0,
        per_address_max: int = 0,
        rate: int = 0,
        now_us: int = 0,
    ) -> None:
        self._by_address: dict[str, int] = {}
        self._count = 0
        self._connections_max = 0
        self._per_address_max = 0
        self._pace: TokenBucket | None = None
        self.configure(
            connections_max=connections_max,
            per_address_max=per_address_max,
            rate=rate,
            now_us=now_us,
        )

    @property
    def count(self) -> int:
        """Connections that are in."""
        return self._count

    @property
    def address_count(self) -> int:
        """Addresses that have a connection in."""
        return len(self._by_address)

    def configure(
        self, *, connections_max: int, per_address_max: int, rate: int, now_us: int
    ) -> None:
        """Use other limits from now on; connections that are in stay in and stay counted."""
        self._connections_max = connections_max
        self._per_address_max = per_address_max
        self._pace = TokenBucket(rate, now_us=now_us) if rate else None

    def admit(self, address: str, now_us: int) -> Admission:
        """Count a new connection in, or say which limit it meets."""
        if self._connections_max and self._count >= self._connections_max:
            return Admission.TOO_MANY
        # Counted even without a limit, so that one can be set while connections are in.
        key = address_key(address)
        held = self._by_address.get(key, 0)
        if self._per_address_max and held >= self._per_address_max:
            return Admission.TOO_MANY_FROM_ADDRESS
        if self._pace is not None and not self._pace.try_take(1, now_us):
            return Admission.TOO_FAST
        self._by_address[key] = held + 1
        self._count += 1
        return Admission.ADMITTED

    def release(self, address: str) -> None:
        """Count a connection out."""
        key = address_key(address)
        held = self._by_address[key]
        if held == 1:
            del self._by_address[key]
        else:
            self._by_address[key] = held - 1
        self._count -= 1


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
