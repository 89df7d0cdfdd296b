"""Whose address counts when a proxy stands between."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.errors import ConfigError
from perdure.web.forwarded import Forwarded, networks_of


def settled(proxies: list[str], peer: str, *headers: str) -> str:
    """The address that a request is taken to come from."""
    scope: dict[str, Any] = {
        "client": (peer, 4711),
        "headers": [(b"x-forwarded-for", each.encode()) for each in headers],
    }
    Forwarded(proxies).settle(scope)
    found: str = scope["client"][0]
    return found


@pytest.mark.parametrize(
    ("peer", "headers", "client"),
    [
        # Nobody's word counts but that of a proxy.
        ("203.0.113.9", ["198.51.100.1"], "203.0.113.9"),
        ("127.0.0.1", ["198.51.100.1"], "198.51.100.1"),
        ("::ffff:127.0.0.1", ["198.51.100.1"], "198.51.100.1"),
        ("127.0.0.1", [], "127.0.0.1"),
        ("127.0.0.1", [""], "127.0.0.1"),
        # What a client has written itself stands before what the proxy has added.
        ("127.0.0.1", ["10.9.9.9, 198.51.100.1"], "198.51.100.1"),
        ("127.0.0.1", ["10.9.9.9", "198.51.100.1"], "198.51.100.1"),
        # Two proxies in a row, and a client on a proxy's machine.
        ("127.0.0.1", ["203.0.113.5, 198.51.100.1, 10.1.2.3"], "198.51.100.1"),
        ("127.0.0.1", ["10.1.2.3"], "10.1.2.3"),
        ("127.0.0.1", ["nonsense, 10.1.2.3"], "10.1.2.3"),
        ("127.0.0.1", ["198.51.100.1, nonsense"], "127.0.0.1"),
        # Some add the port.
        ("10.1.2.3", ["198.51.100.1:5678"], "198.51.100.1"),
        ("10.1.2.3", ["[2001:db8::1]:5678"], "2001:db8::1"),
        ("10.1.2.3", ["2001:db8::1"], "2001:db8::1"),
    ],
)
def test_the_last_that_is_no_proxy(peer: str, headers: list[str], client: str) -> None:
    assert settled(["127.0.0.1", "10.1.0.0/16"], peer, *headers) == client


def test_without_proxies_no_header_counts() -> None:
    assert settled([], "127.0.0.1", "198.51.100.1") == "127.0.0.1"


def test_what_is_no_address_is_told_at_the_start() -> None:
    with pytest.raises(ConfigError) as found:
        networks_of(["10.0.0.0/8", "proxy.example"])
    assert found.value.path == "http.proxies"
