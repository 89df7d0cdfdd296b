"""SASLprep: the examples of RFC 4013 section 3, and the rules they leave out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.broker.auth.saslprep import saslprep


@pytest.mark.parametrize(
    ("text", "prepared"),
    [
        ("I\u00adX", "IX"),
        ("user", "user"),
        ("USER", "USER"),
        ("\u00aa", "a"),
        ("\u2168", "IX"),
        ("a\u00a0b", "a b"),
        ("", ""),
        ("\u0627\u0031\u0627", "\u0627\u0031\u0627"),
        ("pass\U0001f511", "pass\U0001f511"),
    ],
)
def test_prepared(text: str, prepared: str) -> None:
    assert saslprep(text) == prepared


@pytest.mark.parametrize(
    "text",
    ["\u0007", "a\x7f", "\u0627\u0031", "\u0627a\u0627", "\ue000", "\u200e", "\ufffd", "\x00"],
)
def test_prohibited(text: str) -> None:
    with pytest.raises(ValueError, match=r"not allowed|mixed"):
        saslprep(text)


@given(st.text())
def test_preparing_twice_changes_nothing_or_is_refused(text: str) -> None:
    try:
        once = saslprep(text)
    except ValueError:
        return
    assert saslprep(once) == once
