"""Passwords of people: the same on every keyboard."""

from __future__ import annotations

import unicodedata

import pytest

from perdure.identity import passwords

COMPOSED = unicodedata.normalize("NFC", "pâté à la crème")
APART = unicodedata.normalize("NFD", COMPOSED)


@pytest.mark.parametrize("kept", [COMPOSED, APART])
@pytest.mark.parametrize("typed", [COMPOSED, APART])
def test_however_a_keyboard_spells_it(kept: str, typed: str) -> None:
    text = passwords.hash_password(kept)
    assert passwords.fits(text, typed)
    assert not passwords.fits(text, typed + "x")


def test_one_that_was_kept_as_it_was_typed() -> None:
    text = passwords._hasher().hash(APART)
    assert passwords.fits(text, APART)
    assert not passwords.fits(text, COMPOSED)


def test_a_text_that_is_none() -> None:
    assert not passwords.fits("no hash", COMPOSED)
