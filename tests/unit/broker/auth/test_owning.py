"""To whom a session belongs."""

from __future__ import annotations

import pytest

from perdure.broker.auth.authorize import Identity
from perdure.broker.auth.owning import may_hold, owner_after

ADA = Identity("c", "ada", method="password")
ANYBODY = Identity("c", method="anonymous")
OPERATOR = Identity("c", "op", True, method="password")


@pytest.mark.parametrize(
    ("identity", "username", "method", "binding", "allowed"),
    [
        (ADA, "ada", "password", "user", True),
        (ADA, "ada", "certificate", "user", True),
        (ADA, "bob", "password", "user", False),
        (ADA, "", "anonymous", "user", False),
        (ANYBODY, "ada", "password", "user", False),
        (ANYBODY, "", "anonymous", "user", True),
        (ADA, "", "", "user", True),
        (ANYBODY, "", "", "user", True),
        (OPERATOR, "ada", "password", "user", True),
        (ADA, "bob", "password", "none", True),
    ],
)
def test_may_hold(
    identity: Identity, username: str, method: str, binding: str, allowed: bool
) -> None:
    assert may_hold(identity, username=username, method=method, binding=binding) is allowed


def test_owner_after() -> None:
    assert owner_after(ADA, username="", method="") == ("ada", "password")
    assert owner_after(ADA, username="bob", method="password") == ("ada", "password")
    assert owner_after(ANYBODY, username="", method="") == ("", "anonymous")
    assert owner_after(OPERATOR, username="ada", method="password") == ("ada", "password")
    assert owner_after(OPERATOR, username="", method="") == ("op", "password")
