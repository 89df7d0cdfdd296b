"""What counts as one address."""

from __future__ import annotations

import pytest

from perdure.broker.auth.addresses import address_key


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("10.0.0.7", "::ffff:10.0.0.7", True),
        ("2001:db8::1", "2001:db8::2", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("10.0.0.7", "10.0.0.8", False),
        ("/run/socket", "/run/socket", True),
        ("not:an:address", "not:an:address", True),
    ],
)
def test_address_key(one: str, other: str, same: bool) -> None:
    assert (address_key(one) == address_key(other)) is same
