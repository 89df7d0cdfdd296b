"""What counts as one address where clients are counted or limited by address. Pure."""

from __future__ import annotations

import ipaddress
from typing import Final

IPV6_SITE_BITS: Final = 64
"""What one IPv6 customer has at least: its addresses count as one."""


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
