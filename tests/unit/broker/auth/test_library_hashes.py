"""Hashes of other systems, written by the libraries that wrote them."""

from __future__ import annotations

import argon2
import bcrypt
import pytest

from perdure.broker.auth import library_hashes
from perdure.broker.auth.credentials import entry_cost
from perdure.broker.auth.hashes import parse_hash
from perdure.broker.auth.library_hashes import Argon2Hash, BcryptHash

CHEAP = {"time_cost": 1, "memory_cost": 8, "parallelism": 1}


@pytest.mark.parametrize("variant", list(argon2.Type))
def test_argon2(variant: argon2.Type) -> None:
    text = argon2.PasswordHasher(type=variant, **CHEAP).hash("pass wörd")  # type: ignore[arg-type]
    entry = parse_hash(text)
    assert isinstance(entry, Argon2Hash)
    assert entry.encode() == text
    assert entry.verify("pass wörd".encode())
    assert not entry.verify(b"pass word")
    assert not entry.verify(b"")


@pytest.mark.parametrize("prefix", ["2a", "2b", "2y"])
def test_bcrypt(prefix: str) -> None:
    text = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode().replace("$2b$", f"${prefix}$")
    entry = parse_hash(text)
    assert isinstance(entry, BcryptHash)
    assert entry.encode() == text
    assert entry.verify(b"secret")
    assert not entry.verify(b"Secret")


def test_bcrypt_looks_at_72_bytes() -> None:
    text = bcrypt.hashpw(b"x" * 72, bcrypt.gensalt(4)).decode()
    assert parse_hash(text).verify(b"x" * 100)
    assert not parse_hash(text).verify(b"x" * 71)


def test_costs_are_told_apart() -> None:
    costs = {
        entry_cost(parse_hash(text))  # type: ignore[arg-type]
        for text in (
            argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash("x"),
            argon2.PasswordHasher(time_cost=2, memory_cost=8, parallelism=1).hash("x"),
            argon2.PasswordHasher(time_cost=1, memory_cost=16, parallelism=1).hash("x"),
            bcrypt.hashpw(b"x", bcrypt.gensalt(4)).decode(),
            bcrypt.hashpw(b"x", bcrypt.gensalt(5)).decode(),
        )
    }
    assert len(costs) == 5


@pytest.mark.parametrize(
    "text",
    [
        "$argon2id$v=16$m=8,t=1,p=1$c2FsdHNhbHQ$aGFzaA",
        "$argon2id$v=19$m=8,t=1$c2FsdHNhbHQ$aGFzaA",
        "$argon2id$v=19$m=7,t=1,p=1$c2FsdHNhbHQ$aGFzaA",
        "$argon2id$v=19$m=999999,t=1,p=1$c2FsdHNhbHQ$aGFzaA",
        "$argon2id$v=19$m=8,t=101,p=1$c2FsdHNhbHQ$aGFzaA",
        "$argon2id$v=19$m=8,t=1,p=65$c2FsdHNhbHQ$aGFzaA",
        "$argon2id$v=19$m=8,t=1,p=+1$c2FsdHNhbHQ$aGFzaA",
        "$argon2id$v=19$m=8,t=1,p=1$c2 sdHNhbHQ$aGFzaA",
        "$argon2id$v=19$m=8,t=1,p=1$c2FsdHNhbHQ",
        "$2b$03$" + "a" * 53,
        "$2b$17$" + "a" * 53,
        "$2b$10$" + "a" * 52,
        "$2b$10$" + "!" * 53,
        "$2x$10$" + "a" * 53,
    ],
)
def test_what_is_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_hash(text)


def test_a_hash_that_no_library_takes_fits_nothing() -> None:
    broken = "$argon2id$v=19$m=8,t=1,p=1$YQ$YQ"
    assert not parse_hash(broken).verify(b"x")


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(name=name)

    monkeypatch.setattr(library_hashes.importlib, "import_module", missing)
    with pytest.raises(ValueError, match=r"perdure\[hashes\]"):
        parse_hash("$2b$10$" + "a" * 53)
