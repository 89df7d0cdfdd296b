"""Whoever has a token of the file is let in, and nobody else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perdure.errors import ConfigError
from perdure.web.tokens import TOKENS_MAX, Tokens, make_token_file, read_tokens

ONE = "a" * 32
TWO = "b" * 64


def test_tokens_are_known_by_their_header(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text(f"# first\n{ONE}\n\n  {TWO}  \n")
    tokens = Tokens(path)
    assert tokens.knows(f"Bearer {ONE}")
    assert tokens.knows(f"bearer {TWO}")
    for header in ("", ONE, f"Basic {ONE}", "Bearer ", f"Bearer {ONE}x", "Bearer # first"):
        assert not tokens.knows(header), header


def test_a_change_of_the_file_holds_at_once(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text(ONE)
    tokens = Tokens(path)
    assert tokens.knows(f"Bearer {ONE}")
    fresh = tmp_path / "fresh"
    fresh.write_text(TWO)
    fresh.replace(path)
    assert not tokens.knows(f"Bearer {ONE}")
    assert tokens.knows(f"Bearer {TWO}")


def test_a_file_that_cannot_be_read_lets_nobody_in(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text(ONE)
    tokens = Tokens(path)
    assert tokens.knows(f"Bearer {ONE}")
    path.write_text("short")
    os.utime(path, ns=(1, 1))
    assert not tokens.knows(f"Bearer {ONE}")
    assert "32 characters" in tokens.problem
    path.unlink()
    assert not tokens.knows(f"Bearer {ONE}")
    assert "No such file" in tokens.problem


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "holds 0 tokens"),
        ("# none\n", "holds 0 tokens"),
        (f"{ONE}\nshort\n", r"tokens:2: a token has 32 characters"),
        (f"{ONE} {ONE}\n", "no space"),
        ("\u00fc" * 40, "not ASCII"),
        ("\n".join([ONE] * (TOKENS_MAX + 1)), "1001 tokens"),
    ],
)
def test_files_that_will_not_do(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "tokens"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=problem):
        read_tokens(path)


def test_a_file_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    make_token_file(path)
    assert path.stat().st_mode & 0o777 == 0o600
    token = path.read_text().splitlines()[-1]
    assert len(token) == 64
    assert Tokens(path).knows(f"Bearer {token}")
    with pytest.raises(ConfigError, match="cannot make"):
        make_token_file(path)
