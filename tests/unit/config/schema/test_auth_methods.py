"""The chain: what of it cannot be used is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.config.load import examine


def problems(*sets: str) -> list[tuple[str, str]]:
    _, found = examine(None, environ={}, sets=sets)
    return [(problem.path, problem.message) for problem in found]


def test_every_method_may_be_named() -> None:
    assert problems("auth.chain=[certificate, password, tokens, jwt, http, anonymous]") == []


@pytest.mark.parametrize(
    ("sets", "path", "part"),
    [
        (("auth.chain=[passwd, anonymous]",), "auth.chain", "no way to authenticate"),
        (("auth.chain=[jwt, jwt]",), "auth.chain", "twice"),
        (("auth.chain=[anonymous, jwt]",), "auth.chain", "comes last"),
        (("auth.chain=[]",), "auth.chain", "nobody could connect"),
        (("auth.chain=[password]",), "auth.chain", "nobody could connect"),
        (("auth.jwt.issuer=x",), "auth.jwt.issuer", "no chain names jwt"),
        (
            ("auth.password_file=x", "auth.chain=[anonymous]"),
            "auth.password_file",
            "no chain names password",
        ),
        (
            ("listeners.tcp.auth_chain=[jwtt]",),
            "listeners.tcp.0.auth_chain",
            "no way to authenticate",
        ),
    ],
)
def test_what_cannot_be_meant(sets: tuple[str, ...], path: str, part: str) -> None:
    found = problems(*sets)
    assert any(where == path and part in message for where, message in found), found


def test_a_method_opens_an_address_to_others() -> None:
    assert problems("listeners.tcp.bind=0.0.0.0:1883", "auth.chain=[jwt]") == []
    assert problems("listeners.tcp.bind=0.0.0.0:1883") != []
    assert problems("listeners.tcp.bind=0.0.0.0:1883", "listeners.tcp.auth_chain=[http]") == []


def test_a_listener_may_name_what_the_chain_does_not(tmp_path: Path) -> None:
    sets = ("listeners.tcp.auth_chain=[jwt]", f"auth.jwt.secret_file={tmp_path}")
    assert problems(*sets) == []
