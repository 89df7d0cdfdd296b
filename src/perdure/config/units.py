"""Durations, sizes, moments and addresses as text; pure, raises ``ValueError`` with a sentence."""

from __future__ import annotations

import functools
import ipaddress
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from fractions import Fraction
from typing import Final, TypeAlias, final

import msgspec

IpAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
IpNetwork: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

DURATIONS_US: Final[Mapping[str, int]] = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
    "w": 7 * 86_400_000_000,
}

SIZES: Final[Mapping[str, int]] = {
    "B": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}

_MAPPED: Final = ipaddress.IPv6Network("::ffff:0:0/96")
"""IPv4 addresses as IPv6 sockets show them (RFC 4291 section 2.5.5.2)."""
_SIZES_BY_LOWER: Final = {name.lower(): factor for name, factor in SIZES.items()}
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(us|ms|s|m|h|d|w)", re.ASCII)
_DURATION = re.compile(rf"(?:{_DURATION_PART.pattern})+", re.ASCII)
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)", re.ASCII)
_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)


def parse_integer(text: str) -> int:
    """A whole number."""
    if not _INTEGER.fullmatch(text.strip()):
        raise ValueError(f"expected a whole number, got {text!r}")
    return int(text)


def parse_duration(text: str, unit: str) -> int:
    """A duration such as ``30s``, ``1500ms`` or ``1d12h`` as an int in ``unit``.

    A number without a unit is in ``unit`` already.
    """
    stripped = text.strip()
    if _INTEGER.fullmatch(stripped):
        return int(stripped)
    if not _DURATION.fullmatch(stripped):
        raise ValueError(f"expected a duration such as 30s, 1500ms or 7d, got {text!r}")
    total_us = Fraction(0)
    for number, name in _DURATION_PART.findall(stripped):
        total_us += Fraction(number) * DURATIONS_US[name]
    value = total_us / DURATIONS_US[unit]
    if value.denominator != 1:
        raise ValueError(f"{text!r} is not a whole number of {unit}")
    return int(value)


def parse_size(text: str) -> int:
    """A size such as ``64MiB``, ``4 GB`` or ``512`` in bytes."""
    stripped = text.strip()
    if _INTEGER.fullmatch(stripped):
        return int(stripped)
    match = _SIZE.fullmatch(stripped)
    factor = _SIZES_BY_LOWER.get(match[2].lower()) if match else None
    if match is None or factor is None:
        raise ValueError(f"expected a size such as 64MiB or 4GB, got {text!r}")
    value = Fraction(match[1]) * factor
    if value.denominator != 1:
        raise ValueError(f"{text!r} is not a whole number of bytes")
    return int(value)


def format_duration(value: int, unit: str) -> str:
    """The shortest text that ``parse_duration`` reads back as ``value``."""
    if value == 0:
        return f"0{unit}"
    total_us = value * DURATIONS_US[unit]
    name = max(
        (name for name, us in DURATIONS_US.items() if total_us % us == 0 and name != "w"),
        key=DURATIONS_US.__getitem__,
    )
    return f"{total_us // DURATIONS_US[name]}{name}"


def format_size(value: int) -> str:
    """The shortest text with a binary unit that ``parse_size`` reads back as ``value``."""
    for name in ("TiB", "GiB", "MiB", "KiB"):
        if value and value % SIZES[name] == 0:
            return f"{value // SIZES[name]}{name}"
    return f"{value}B"


def format_time(at_us: int) -> str | None:
    """Microseconds since the epoch as RFC 3339 in UTC; None for 0, which is no time."""
    if at_us == 0:
        return None
    try:
        return f"{_second(at_us // 1_000_000)}.{at_us % 1_000_000:06}Z"
    except (ValueError, OverflowError, OSError):
        return f"{at_us}us"  # past the year 9999


@functools.lru_cache(maxsize=4_096)
def _second(at_s: int) -> str:
    """A second, without its zone; lists of thousands of moments have many in the same ones."""
    return datetime.fromtimestamp(at_s, UTC).replace(tzinfo=None).isoformat()


def parse_time(text: str, now_us: int) -> int:
    """A moment as microseconds since the epoch.

    Args:
        text: RFC 3339 (``2026-11-20T08:00:00Z``; without a zone it is UTC), microseconds since
            the epoch, or how long ago as a duration (``2h``).
        now_us: wall time.
    """
    stripped = text.strip()
    if _INTEGER.fullmatch(stripped):
        at_us = int(stripped)
    elif _DURATION.fullmatch(stripped):
        at_us = now_us - parse_duration(stripped, "us")
    else:
        try:
            at = datetime.fromisoformat(stripped)
        except ValueError:
            raise ValueError(
                f"expected a time such as 2026-11-20T08:00:00Z, 2h (ago) or microseconds, "
                f"got {text!r}"
            ) from None
        if at.tzinfo is None:
            at = at.replace(tzinfo=UTC)
        since = at - datetime(1970, 1, 1, tzinfo=UTC)
        at_us = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    if not 0 <= at_us < 2**63:
        raise ValueError(f"{text!r} is out of range")
    return at_us


@final
class Address(msgspec.Struct, frozen=True):
    """Where to listen. An empty host is every interface."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str, *, default_port: int | None = None) -> Address:
    """``host:port``, ``[ipv6]:port``, ``:port`` and ``*:port`` (every interface), or a host.

    Args:
        text: what the operator wrote.
        default_port: used when there is none in the text; None = it must be there.
    """
    stripped = text.strip()
    if stripped.startswith("["):
        host, bracket, rest = stripped[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError(f"expected [ipv6]:port, got {text!r}")
        try:
            ipaddress.IPv6Address(host.partition("%")[0])
        except ValueError:
            raise ValueError(f"{host!r} is not an IPv6 address") from None
        port_text = rest[1:]
        has_port = bool(rest)
    else:
        if stripped.count(":") > 1:
            raise ValueError(f"put an IPv6 address in brackets: [{stripped}]:1883")
        host, colon, port_text = stripped.partition(":")
        has_port = bool(colon)
    if not has_port:
        if default_port is None or not host or host.isdigit():
            raise ValueError(f"expected host:port, got {text!r}")
        return Address(_any(host), default_port)
    if not (port_text.isascii() and port_text.isdigit()) or int(port_text) > 65_535:
        raise ValueError(f"expected a port from 0 to 65535, got {port_text!r}")
    return Address(_any(host), int(port_text))


def _any(host: str) -> str:
    return "" if host == "*" else host


def parse_ip(text: str) -> IpAddress:
    """An IP address; IPv4 that is mapped into IPv6 as what it is.

    Raises:
        ValueError: it is none.
    """
    address = ipaddress.ip_address(text)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return address if mapped is None else mapped


def parse_network(text: str) -> IpNetwork:
    """An IP address or a network; IPv4 that is mapped into IPv6 as what it is.

    Raises:
        ValueError: it is neither.
    """
    try:
        network = ipaddress.ip_network(text.strip(), strict=False)
    except ValueError:
        raise ValueError(f"{text!r} is no address and no network") from None
    if isinstance(network, ipaddress.IPv6Network) and network.subnet_of(_MAPPED):
        return ipaddress.IPv4Network(
            (int(network.network_address) & 0xFFFF_FFFF, network.prefixlen - _MAPPED.prefixlen)
        )
    return network


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to a listener on ``host``."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
