"""Hashes: foreign vectors, what is refused, and the round trip of what we write."""

from __future__ import annotations

import base64
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.broker.auth.hashes import (
    PBKDF2_SHA512_ITERATIONS,
    Hash,
    Pbkdf2Hash,
    Scheme,
    ScramKeys,
    ScryptHash,
    Sha512Hash,
    TokenHash,
    make_hash,
    parse_hash,
    scram_keys,
)

# RFC 7914 section 12, third vector.
SCRYPT_RFC = (
    "7023bdcb3afd7348461c06cd81fd38ebfda8fbba904f8e3ea9b543f6545da1f2"
    "d5432955613f0fcf62d49705242a9af9e61e85dc0d651e40dfcf017b45575887"
)
# Written by mosquitto_passwd 2.0.11 for the password "pw".
MOSQUITTO_7 = (
    "$7$101$yjKZLtyFdZOXkALW"
    "$eWXmalXdiOU56M0ceNnt1PpdT2HU/m9w60iZ8xJB/ot/70EtShmt+ktFQ0gVjawWJhH+GrPMMX5TnL/ZZBszPQ=="
)
MOSQUITTO_6 = (
    "$6$7DX1MDmQcnau0PJb"
    "$NT2LtmGD+pA099ig89i1i7VotMcOD+ZKw9zw8bA8XlH5e/HiYhtcGfAqKkcaTbJ0jsmzOlxldozdZ+3onclVYw=="
)
DIGEST_32 = base64.b64encode(bytes(32)).decode()


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def test_scrypt_vector_of_the_rfc() -> None:
    entry = parse_hash(
        f"$scrypt$ln=14,r=8,p=1${b64(b'SodiumChloride')}${b64(bytes.fromhex(SCRYPT_RFC))}"
    )
    assert entry.verify(b"pleaseletmein")
    assert not entry.verify(b"pleaseletmeout")


@pytest.mark.parametrize("text", [MOSQUITTO_7, MOSQUITTO_6])
def test_mosquitto_passwd_entries(text: str) -> None:
    entry = parse_hash(text)
    assert entry.verify(b"pw")
    assert not entry.verify(b"PW")
    assert not entry.verify(b"")
    assert entry.encode() == text


def test_pbkdf2_spelling_is_independent_of_the_check() -> None:
    ours = parse_hash(MOSQUITTO_7.replace("$7$101$", "$pbkdf2-sha512$i=101$"))
    assert ours.verify(b"pw")
    assert ours.encode().startswith("$pbkdf2-sha512$i=101$")


def test_scram_keys_of_rfc_7677() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    keys = scram_keys("pencil", salt, iterations=4096)
    assert b64(keys.stored_key) == "WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY="
    assert b64(keys.server_key) == "wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="


def test_scram_entry_checks_a_password_sent_in_the_clear() -> None:
    keys = scram_keys("pass\u00a0word", b"s" * 16, iterations=2)
    assert keys.verify(b"pass word")
    assert not keys.verify(b"password")
    assert not keys.verify(b"\xff\xfe")
    assert not keys.verify("\u0007".encode())


def test_token() -> None:
    token = "t" * 43
    entry = parse_hash(f"$token-sha256${b64(hashlib.sha256(token.encode()).digest())}")
    assert entry.verify(token.encode())
    assert not entry.verify(b"t" * 42)


@pytest.mark.parametrize("scheme", ["scrypt", "pbkdf2-sha512", "scram-sha-256"])
@pytest.mark.slow
def test_made_hashes_verify_after_a_round_trip(scheme: Scheme) -> None:
    made = make_hash(scheme, "correct horse", salt=b"0123456789abcdef")
    read = parse_hash(made.encode())
    assert read == made
    assert read.verify(b"correct horse")
    assert not read.verify(b"correct horsf")


def test_pbkdf2_cost_is_written() -> None:
    made = make_hash("pbkdf2-sha512", "x", salt=bytes(16))
    assert isinstance(made, Pbkdf2Hash)
    assert made.iterations == PBKDF2_SHA512_ITERATIONS


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hunter2", "in the clear"),
        ("", "in the clear"),
        ("$md5$c2FsdA$AAAA", "unknown kind"),
        ("$scrypt$ln=14,r=8,p=1$c2FsdA", "3 fields"),
        (f"$scrypt$r=8,ln=14,p=1$c2FsdA${DIGEST_32}", "ln="),
        (f"$scrypt$ln=30,r=8,p=1$c2FsdA${DIGEST_32}", "between"),
        (f"$scrypt$ln=20,r=8,p=1$c2FsdA${DIGEST_32}", "256 MiB"),
        (f"$scrypt$ln=+4,r=8,p=1$c2FsdA${DIGEST_32}", "not a number"),
        (f"$scrypt$ln=4,r=8,p=65$c2FsdA${DIGEST_32}", "between"),
        (f"$pbkdf2-sha512$n=4$c2FsdA${DIGEST_32}", "i="),
        (f"$pbkdf2-sha512$i=0$c2FsdA${DIGEST_32}", "between"),
        (f"$7$1_0$c2FsdA${DIGEST_32}", "not a number"),
        (f"$7$10$c2F*dA${DIGEST_32}", "base64"),
        (f"$7$10$é${DIGEST_32}", "base64"),
        (f"$7$10$c${DIGEST_32}", "base64"),
        (f"$7$10$${DIGEST_32}", "salt has"),
        ("$7$10$c2FsdA$AAAA", "hash has"),
        ("$6$c2FsdA$AAAA", "64 bytes"),
        ("$token-sha256$AAAA", "32 bytes"),
        (f"$scram-sha-256$4096$c2FsdA${DIGEST_32}$AAAA", "32 bytes"),
    ],
)
def test_refused_entries(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        parse_hash(text)
    assert "c2F" not in str(error.value)
    assert "AAAA" not in str(error.value)


def test_secrets_do_not_show_in_a_repr() -> None:
    digest = b"\x01" * 32
    entries: list[Hash] = [
        ScryptHash(1, 1, 1, b"salt", digest),
        Pbkdf2Hash(1, b"salt", digest),
        Sha512Hash(b"salt", digest),
        ScramKeys(1, b"salt", digest, digest),
        TokenHash(digest),
    ]
    for entry in entries:
        assert "x01" not in repr(entry)


digests = st.binary(min_size=32, max_size=32)
salts = st.binary(min_size=1, max_size=64)
entries = st.one_of(
    st.builds(
        ScryptHash, st.integers(1, 14), st.integers(1, 8), st.integers(1, 64), salts, digests
    ),
    st.builds(Pbkdf2Hash, st.integers(1, 10_000_000), salts, digests, st.booleans()),
    st.builds(Sha512Hash, salts, st.binary(min_size=64, max_size=64)),
    st.builds(ScramKeys, st.integers(1, 10_000_000), salts, digests, digests),
    st.builds(TokenHash, digests),
)


@given(entries, st.booleans())
def test_entries_are_read_as_written(entry: Hash, padded: bool) -> None:
    text = entry.encode()
    assert ":" not in text
    assert parse_hash(text if padded else text.replace("=$", "$").rstrip("=")) == entry


@given(st.text(alphabet="$scryptoken7618=,lnrpi-AQ_é ", max_size=60))
def test_any_text_is_an_entry_or_a_value_error(text: str) -> None:
    try:
        parse_hash(text)
    except ValueError:
        return
    assert text.startswith("$")
