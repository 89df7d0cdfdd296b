"""Hashes that other systems keep and that the standard library cannot check: argon2 and bcrypt.

They are read, never made: for users that come with their hashes from a database or another broker.
The packages (extra ``hashes``) are imported when an entry needs one.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, Final, final

ARGON2_MEMORY_KIB_MAX: Final = 256 * 1024
"""One check may not take more: an entry is not to be a way to stop the broker."""

ARGON2_ITERATIONS_MAX: Final = 100
ARGON2_LANES_MAX: Final = 64
BCRYPT_COST_MIN: Final = 4
BCRYPT_COST_MAX: Final = 16
"""About 4 s."""

BCRYPT_PASSWORD_BYTES: Final = 72
"""What the function looks at; implementations cut off the rest, or refuse it."""

BCRYPT_TEXT_LENGTH: Final = 53
ARGON2_FIELDS: Final = 4
BCRYPT_FIELDS: Final = 2


@final
@dataclass(frozen=True, slots=True, repr=False)
class Argon2Hash:
    """Argon2 (RFC 9106), of the variant that the text names."""

    variant: str
    memory_kib: int
    iterations: int
    p: int
    text: str

    def encode(self) -> str:
        """The entry as written."""
        return self.text

    def verify(self, password: bytes) -> bool:
        """Whether the password is the one."""
        argon2 = _package("argon2", "argon2")
        kinds = {"argon2id": "ID", "argon2i": "I", "argon2d": "D"}
        kind = getattr(argon2.low_level.Type, kinds[self.variant])
        try:
            return bool(argon2.low_level.verify_secret(self.text.encode(), password, kind))
        except argon2.exceptions.VerificationError:
            return False


@final
@dataclass(frozen=True, slots=True, repr=False)
class BcryptHash:
    """Bcrypt, as of crypt(3) in BSD."""

    iterations: int
    text: str

    def encode(self) -> str:
        """The entry as written."""
        return self.text

    def verify(self, password: bytes) -> bool:
        """Whether the password is the one."""
        bcrypt = _package("bcrypt", "bcrypt")
        try:
            return bool(bcrypt.checkpw(password[:BCRYPT_PASSWORD_BYTES], self.text.encode()))
        except ValueError:
            return False  # a salt that is none


def parse_argon2(kind: str, fields: list[str]) -> Argon2Hash:
    """Read what follows the kind.

    Raises:
        ValueError: it is not one; the text quotes nothing of it.
    """
    _package("argon2", "argon2")
    pairs = dict(pair.partition("=")[::2] for pair in fields[1].split(","))
    if fields[0] != "v=19" or set(pairs) != {"m", "t", "p"}:
        raise ValueError("argon2 parameters are 'v=19$m=…,t=…,p=…'")
    lanes = _number(pairs["p"], 1, ARGON2_LANES_MAX)
    memory = _number(pairs["m"], 8 * lanes, ARGON2_MEMORY_KIB_MAX)
    iterations = _number(pairs["t"], 1, ARGON2_ITERATIONS_MAX)
    _alphabet(fields[2] + fields[3], "+/")
    return Argon2Hash(kind, memory, iterations, lanes, "$".join(("", kind, *fields)))


def parse_bcrypt(kind: str, fields: list[str]) -> BcryptHash:
    """Read what follows the kind.

    Raises:
        ValueError: it is not one; the text quotes nothing of it.
    """
    _package("bcrypt", "bcrypt")
    if len(fields[0]) != 2 or len(fields[1]) != BCRYPT_TEXT_LENGTH:
        raise ValueError("a bcrypt entry is '$2b$12$' and 53 characters")
    _alphabet(fields[1], "./")
    cost = _number(fields[0], BCRYPT_COST_MIN, BCRYPT_COST_MAX)
    return BcryptHash(cost, "$".join(("", kind, *fields)))


def _alphabet(text: str, beside: str) -> None:
    if not text.isascii() or not all(char.isalnum() or char in beside for char in text):
        raise ValueError("salt or hash is not base64")


def _number(text: str, low: int, high: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 8):
        raise ValueError("a parameter is not a number")
    number = int(text)
    if not low <= number <= high:
        raise ValueError(f"a parameter is not between {low} and {high}")
    return number


def _package(name: str, kind: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        raise ValueError(f"{kind} entries need pip install 'perdure[hashes]'") from None
