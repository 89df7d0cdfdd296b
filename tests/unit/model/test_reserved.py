"""What no client may publish or subscribe to."""

from __future__ import annotations

import pytest

from perdure.model.reserved import RESERVED, is_reserved


@pytest.mark.parametrize("prefix", RESERVED)
def test_what_is_below_a_prefix_is_reserved(prefix: str) -> None:
    assert is_reserved(f"{prefix}x")
    assert is_reserved(f"{prefix}#")
    # No wildcard of a client comes there, and no neighbour is meant.
    assert prefix.startswith("$")
    assert not is_reserved(prefix.rstrip("/"))


def test_a_stored_filter_is_named_by_its_subscribers() -> None:
    assert not is_reserved("$filter/x/t/#")
    assert not is_reserved("t")
