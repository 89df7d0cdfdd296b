"""One line's worth of secret: how each kind is written, and how a password is checked by it.

Holds the kinds of hashes a credentials file may have. It must not know files, users, threads
or randomness: salts are arguments.

=====================  =====================================================  ===========
kind                   as written                                             checked in
=====================  =====================================================  ===========
``scrypt``             ``$scrypt$ln=14,r=8,p=5$salt$hash``                    a thread
``pbkdf2-sha512``      ``$pbkdf2-sha512$i=210000$salt$hash``                  a thread
``scram-sha-256``      ``$scram-sha-256$iterations$salt$stored$server``       a thread
``token-sha256``       ``$token-sha256$hash``                                 0.3 us
``mosquitto-7``        ``$7$iterations$salt$hash`` (PBKDF2-SHA512)            a thread
``mosquitto-6``        ``$6$salt$hash`` (salted SHA-512)                      a thread
``argon2``             ``$argon2id$v=19$m=65536,t=3,p=4$salt$hash``           a thread
``bcrypt``             ``$2b$12$saltandhash``                                 a thread
=====================  =====================================================  ===========

Salts and hashes are standard base64; padding may be left out when read.

Invariant: comparison takes the same time wherever the first difference is, and no error text
quotes any part of a hash.
"""

from __future__ import annotations

import base64
import binascii
import functools
import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, final

from perdure.broker.auth.library_hashes import (
    ARGON2_FIELDS,
    BCRYPT_FIELDS,
    Argon2Hash,
    BcryptHash,
    parse_argon2,
    parse_bcrypt,
)
from perdure.broker.auth.saslprep import saslprep

Scheme: TypeAlias = Literal["scrypt", "pbkdf2-sha512", "scram-sha-256"]

SCRYPT_LOG2_N: Final = 14
SCRYPT_R: Final = 8
SCRYPT_P: Final = 5
"""16 MiB and about 0.12 s a check, for passwords that people choose (OWASP's floor). Devices get
generated tokens instead, see ADR 0003."""

PBKDF2_SHA512_ITERATIONS: Final = 210_000
"""OWASP's floor for PBKDF2 with SHA-512."""

SCRAM_ITERATIONS: Final = 4096
"""RFC 7677 section 4. The work is the client's, which may be a small device."""

SCRYPT_MEMORY_BYTES_MAX: Final = 256 * 1024 * 1024
"""One check may not take more: a file is not to be a way to stop the broker."""

SCRYPT_P_MAX: Final = 64
ITERATIONS_MAX: Final = 10_000_000
"""About 5 s of PBKDF2: past this a file's entry is a mistake."""

SALT_BYTES_MAX: Final = 1024
DIGEST_BYTES_MIN: Final = 16

assert 128 * SCRYPT_R << SCRYPT_LOG2_N <= SCRYPT_MEMORY_BYTES_MAX
assert PBKDF2_SHA512_ITERATIONS <= ITERATIONS_MAX


@final
@dataclass(frozen=True, slots=True, repr=False)
class ScryptHash:
    """Scrypt (RFC 7914)."""

    log2_n: int
    r: int
    p: int
    salt: bytes
    digest: bytes

    def encode(self) -> str:
        """The entry as written in a file."""
        parameters = f"ln={self.log2_n},r={self.r},p={self.p}"
        return f"$scrypt${parameters}${_encode(self.salt)}${_encode(self.digest)}"

    def verify(self, password: bytes) -> bool:
        """Whether the password is the one."""
        digest = _scrypt(
            password, self.salt, log2_n=self.log2_n, r=self.r, p=self.p, length=len(self.digest)
        )
        return hmac.compare_digest(digest, self.digest)


@final
@dataclass(frozen=True, slots=True, repr=False)
class Pbkdf2Hash:
    """PBKDF2 with HMAC-SHA-512; ``mosquitto`` is the spelling of ``mosquitto_passwd``."""

    iterations: int
    salt: bytes
    digest: bytes
    mosquitto: bool = False

    def encode(self) -> str:
        """The entry as written in a file."""
        head = f"$7${self.iterations}" if self.mosquitto else f"$pbkdf2-sha512$i={self.iterations}"
        return f"{head}${_encode(self.salt)}${_encode(self.digest)}"

    def verify(self, password: bytes) -> bool:
        """Whether the password is the one."""
        digest = hashlib.pbkdf2_hmac(
            "sha512", password, self.salt, self.iterations, len(self.digest)
        )
        return hmac.compare_digest(digest, self.digest)


@final
@dataclass(frozen=True, slots=True, repr=False)
class Sha512Hash:
    """Salted SHA-512 of Mosquitto 1.6 and earlier; read, never made."""

    salt: bytes
    digest: bytes

    def encode(self) -> str:
        """The entry as written in a file."""
        return f"$6${_encode(self.salt)}${_encode(self.digest)}"

    def verify(self, password: bytes) -> bool:
        """Whether the password is the one."""
        return hmac.compare_digest(hashlib.sha512(password + self.salt).digest(), self.digest)


@final
@dataclass(frozen=True, slots=True, repr=False)
class ScramKeys:
    """What a SCRAM-SHA-256 server keeps (RFC 5802 section 3)."""

    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    def encode(self) -> str:
        """The entry as written in a file."""
        keys = f"{_encode(self.salt)}${_encode(self.stored_key)}${_encode(self.server_key)}"
        return f"$scram-sha-256${self.iterations}${keys}"

    def verify(self, password: bytes) -> bool:
        """Whether the password, sent in the clear by a CONNECT, is the one."""
        try:
            derived = scram_keys(password.decode(), self.salt, iterations=self.iterations)
        except ValueError:  # Not UTF-8, or not what SASLprep lets pass: no entry is made of it.
            return False
        return hmac.compare_digest(derived.stored_key, self.stored_key)


@final
@dataclass(frozen=True, slots=True, repr=False)
class TokenHash:
    """SHA-256 of a generated token; needs no salt and no slowness, for 256 bits are not guessed."""

    digest: bytes

    def encode(self) -> str:
        """The entry as written in a file."""
        return f"$token-sha256${_encode(self.digest)}"

    def verify(self, password: bytes) -> bool:
        """Whether the password is the token."""
        return hmac.compare_digest(hashlib.sha256(password).digest(), self.digest)


SlowHash: TypeAlias = ScryptHash | Pbkdf2Hash | Sha512Hash | ScramKeys | Argon2Hash | BcryptHash
Hash: TypeAlias = SlowHash | TokenHash


def make_hash(scheme: Scheme, password: str, *, salt: bytes) -> SlowHash:
    """Hash a password with the costs of today.

    Raises:
        ValueError: the password cannot be a SCRAM password.
    """
    if scheme == "scram-sha-256":
        return scram_keys(password, salt, iterations=SCRAM_ITERATIONS)
    secret = password.encode()
    if scheme == "pbkdf2-sha512":
        digest = hashlib.pbkdf2_hmac("sha512", secret, salt, PBKDF2_SHA512_ITERATIONS)
        return Pbkdf2Hash(PBKDF2_SHA512_ITERATIONS, salt, digest)
    digest = _scrypt(secret, salt, log2_n=SCRYPT_LOG2_N, r=SCRYPT_R, p=SCRYPT_P, length=32)
    return ScryptHash(SCRYPT_LOG2_N, SCRYPT_R, SCRYPT_P, salt, digest)


def scram_keys(password: str, salt: bytes, *, iterations: int) -> ScramKeys:
    """Derive what a server keeps of a SCRAM password (RFC 5802 section 3).

    Raises:
        ValueError: SASLprep refuses the password.
    """
    salted = hashlib.pbkdf2_hmac("sha256", saslprep(password).encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    return ScramKeys(
        iterations=iterations,
        salt=salt,
        stored_key=hashlib.sha256(client_key).digest(),
        server_key=hmac.digest(salted, b"Server Key", "sha256"),
    )


def parse_hash(text: str) -> Hash:
    """Read an entry as written in a file.

    Raises:
        ValueError: it is not one; the text says why and quotes nothing of it.
    """
    if not text.startswith("$"):
        raise ValueError("not a hash: passwords are never kept in the clear")
    kind, *fields = text[1:].split("$")
    if kind not in _PARSERS:
        raise ValueError("unknown kind of hash")
    count, parser = _PARSERS[kind]
    if len(fields) != count:
        raise ValueError(f"a {kind!r} entry has {count} fields after its kind")
    return parser(fields)


def _parse_scrypt(fields: list[str]) -> Hash:
    names = ("ln", "r", "p")
    pairs = [field.partition("=") for field in fields[0].split(",")]
    if tuple(pair[0] for pair in pairs) != names:
        raise ValueError("scrypt parameters are 'ln=…,r=…,p=…'")
    log2_n = _integer(pairs[0][2], low=1, high=24)
    r = _integer(pairs[1][2], low=1, high=64)
    p = _integer(pairs[2][2], low=1, high=SCRYPT_P_MAX)
    if 128 * r << log2_n > SCRYPT_MEMORY_BYTES_MAX:
        raise ValueError("scrypt parameters ask for more than 256 MiB")
    return ScryptHash(log2_n, r, p, _salt(fields[1]), _digest(fields[2]))


def _parse_pbkdf2(fields: list[str]) -> Hash:
    name, _, iterations = fields[0].partition("=")
    if name != "i":
        raise ValueError("pbkdf2-sha512 parameters are 'i=…'")
    return Pbkdf2Hash(_iterations(iterations), _salt(fields[1]), _digest(fields[2]))


def _parse_mosquitto_7(fields: list[str]) -> Hash:
    return Pbkdf2Hash(_iterations(fields[0]), _salt(fields[1]), _digest(fields[2]), mosquitto=True)


def _parse_mosquitto_6(fields: list[str]) -> Hash:
    return Sha512Hash(_salt(fields[0]), _digest(fields[1], length=64))


def _parse_scram(fields: list[str]) -> Hash:
    return ScramKeys(
        _iterations(fields[0]),
        _salt(fields[1]),
        _digest(fields[2], length=32),
        _digest(fields[3], length=32),
    )


def _parse_token(fields: list[str]) -> Hash:
    return TokenHash(_digest(fields[0], length=32))


_PARSERS: Final[dict[str, tuple[int, Callable[[list[str]], Hash]]]] = {
    "scrypt": (3, _parse_scrypt),
    "pbkdf2-sha512": (3, _parse_pbkdf2),
    "scram-sha-256": (4, _parse_scram),
    "token-sha256": (1, _parse_token),
    "7": (3, _parse_mosquitto_7),
    "6": (2, _parse_mosquitto_6),
    **{
        kind: (ARGON2_FIELDS, functools.partial(parse_argon2, kind))
        for kind in ("argon2id", "argon2i", "argon2d")
    },
    **{kind: (BCRYPT_FIELDS, functools.partial(parse_bcrypt, kind)) for kind in ("2a", "2b", "2y")},
}


def _scrypt(password: bytes, salt: bytes, *, log2_n: int, r: int, p: int, length: int) -> bytes:
    n = 1 << log2_n
    return hashlib.scrypt(
        password, salt=salt, n=n, r=r, p=p, maxmem=128 * r * (n + p + 8), dklen=length
    )


def _encode(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("salt or hash is not base64") from None


def _salt(text: str) -> bytes:
    salt = _decode(text)
    if not 0 < len(salt) <= SALT_BYTES_MAX:
        raise ValueError(f"a salt has 1 to {SALT_BYTES_MAX} bytes")
    return salt


def _digest(text: str, *, length: int = 0) -> bytes:
    digest = _decode(text)
    if length and len(digest) != length:
        raise ValueError(f"this kind of hash has {length} bytes")
    if not DIGEST_BYTES_MIN <= len(digest) <= 64:
        raise ValueError(f"a hash has {DIGEST_BYTES_MIN} to 64 bytes")
    return digest


def _iterations(text: str) -> int:
    return _integer(text, low=1, high=ITERATIONS_MAX)


def _integer(text: str, *, low: int, high: int) -> int:
    # Not int() alone: it also reads signs, spaces, underscores and other scripts' digits.
    if not (text.isascii() and text.isdigit() and len(text) <= 12):
        raise ValueError("a parameter is not a number")
    number = int(text)
    if not low <= number <= high:
        raise ValueError(f"a parameter is not between {low} and {high}")
    return number
