"""Tokens: which hold, whose they are, what they grant and until when."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from perdure.auth_methods.jwt import JwtMethod, open_method
from perdure.broker.auth.grant import Grant
from perdure.config.schema.auth_methods import JwtConfig
from perdure.errors import ConfigError
from perdure.topic.rules import Permission, Rule
from tests.unit.auth_methods.helpers import (
    EC,
    ED,
    NOW_S,
    RSA,
    SECRET,
    asking,
    make_context,
    pem,
    token,
)

Made = Callable[..., JwtMethod]


@pytest.fixture
async def made(tmp_path: Path) -> AsyncIterator[Made]:
    methods: list[JwtMethod] = []

    def make(key: bytes = SECRET, **changes: Any) -> JwtMethod:
        file = tmp_path / "key"
        file.write_bytes(key)
        where = "public_key_file" if key.startswith(b"-----BEGIN") else "secret_file"
        fields = {where: str(file)}
        if where == "secret_file":
            fields["algorithms"] = ("HS256",)  # type: ignore[assignment]
        methods.append(open_method(JwtConfig(**(fields | changes)), make_context("jwt")))
        return methods[-1]

    yield make
    for method in methods:
        await method.close()


async def test_a_token_names_its_user_and_its_end(made: Made) -> None:
    result = await made().authenticate(asking(None, token(), now_us=5))
    assert (result.ok, result.username, result.grant) == (True, "ada", None)
    assert result.expires_us == 5 + 60_000_000


@pytest.mark.parametrize(
    ("key", "alg"), [(RSA, "RS256"), (RSA, "PS384"), (EC, "ES256"), (ED, "EdDSA")]
)
async def test_every_kind_of_key(made: Made, key: Any, alg: str) -> None:
    method = made(pem(key), algorithms=("RS256", "PS384", "ES256", "EdDSA"))
    assert (await method.authenticate(asking("x", token(key, alg)))).ok


@pytest.mark.parametrize(
    "password", [None, b"", b"secret", b"a.b.c", b"x" * 9000, b"..", b"e30.e30.e30"]
)
async def test_what_is_no_token_is_left_to_others(made: Made, password: bytes | None) -> None:
    assert (await made().authenticate(asking("ada", password))).undecided


@pytest.mark.parametrize(
    "changes",
    [
        {"exp": NOW_S},
        {"exp": None},
        {"exp": "soon"},
        {"exp": True},
        {"exp": 1e400},
        {"nbf": NOW_S + 1},
        {"sub": None},
        {"sub": ""},
        {"sub": 7},
        {"sub": "x" * 70_000},
        {"iss": "other"},
        {"iss": None},
        {"aud": "other"},
        {"aud": None},
        {"cid": "other"},
        {"acl": {"write": ["x"]}},
        {"acl": ["fly x"]},
        {"acl": "all"},
    ],
)
async def test_a_claim_that_does_not_hold(made: Made, changes: dict[str, Any]) -> None:
    method = made(
        issuer="i",
        audience="a",
        client_id_claim="cid",
        acl_claim="acl",
        token_bytes_max=65_535,
    )
    good: dict[str, Any] = {"iss": "i", "aud": ["a", "b"], "cid": "c", "acl": ["read x"]}
    assert (await method.authenticate(asking("ada", token(**good)))).ok
    result = await method.authenticate(asking("ada", token(**(good | changes))))
    assert (result.ok, result.undecided) == (False, len(token(**(good | changes))) > 65_535)
    assert result.undecided or result.reason_code == 0x86


async def test_a_signature_by_another_key_or_none(made: Made) -> None:
    head, body, tail = token().split(b".")
    forged = base64.urlsafe_b64encode(json.dumps({"sub": "root", "exp": NOW_S + 9}).encode())
    method = made()
    for bad in (
        token(b"t" * 48),
        b".".join((head, forged.rstrip(b"="), tail)),
        b".".join((head, body, b"")),
        token("", "none"),
    ):
        result = await method.authenticate(asking("ada", bad))
        assert (result.ok, result.undecided) == (False, False)


async def test_a_public_key_is_no_secret(made: Made) -> None:
    """Algorithm confusion: HS256 with the text of the RSA key, which everybody knows."""
    text = pem(RSA)
    head = base64.urlsafe_b64encode(b'{"alg":"HS256","typ":"JWT"}').rstrip(b"=")
    body = base64.urlsafe_b64encode(json.dumps({"sub": "root", "exp": NOW_S + 9}).encode())
    signed = head + b"." + body.rstrip(b"=")
    import hmac

    mac = base64.urlsafe_b64encode(hmac.digest(text, signed, "sha256")).rstrip(b"=")
    result = await made(text).authenticate(asking("root", signed + b"." + mac))
    assert (result.ok, result.undecided) == (False, False)


async def test_times_have_a_leeway(made: Made) -> None:
    method = made(leeway_s=5)
    result = await method.authenticate(asking("ada", token(exp=NOW_S - 4, nbf=NOW_S + 5)))
    assert result.ok
    assert result.expires_us == 1_000_000
    assert not (await method.authenticate(asking("ada", token(exp=NOW_S - 5)))).ok


async def test_without_an_end_if_that_is_allowed(made: Made) -> None:
    result = await made(require_expiry=False).authenticate(asking("ada", token(exp=None)))
    assert (result.ok, result.expires_us) == (True, 0)


async def test_the_token_may_be_the_user_name(made: Made) -> None:
    method = made(token_in="username", check_username=True)
    result = await method.authenticate(asking(token().decode(), None))
    assert (result.ok, result.username) == (True, "ada")
    assert (await method.authenticate(asking("ada", token()))).undecided
    assert (await method.authenticate(asking(None, token()))).undecided


async def test_the_user_name_of_connect_may_have_to_be_its(made: Made) -> None:
    strict = made(check_username=True)
    assert (await strict.authenticate(asking("ada", token()))).ok
    assert not (await strict.authenticate(asking("bob", token()))).ok
    assert not (await strict.authenticate(asking(None, token()))).ok


async def test_what_a_token_grants(made: Made) -> None:
    method = made(acl_claim="acl")
    granted = await method.authenticate(
        asking("ada", token(acl={"pub": ["d/%c"], "sub": ["#"], "deny": ["s/#"]}))
    )
    assert granted.grant == Grant(
        (
            Rule(Permission.WRITE, "d/%c"),
            Rule(Permission.READ, "#"),
            Rule(Permission.DENY, "s/#"),
        )
    )
    assert (await method.authenticate(asking("ada", token()))).grant == Grant()


async def test_a_reload_reads_the_file_again(made: Made, tmp_path: Path) -> None:
    method = made()
    (tmp_path / "key").write_bytes(b"n" * 48 + b"\n")
    method.reload()
    assert not (await method.authenticate(asking("ada", token()))).ok
    assert (await method.authenticate(asking("ada", token(b"n" * 48)))).ok
    (tmp_path / "key").write_bytes(b"short")
    with pytest.raises(ConfigError, match="less than 32 bytes"):
        method.reload()
    assert (await method.authenticate(asking("ada", token(b"n" * 48)))).ok


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({}, "auth.jwt"),
        ({"jwks_url": "http://i/keys", "secret_file": "x"}, "auth.jwt"),
        ({"jwks_url": "ftp://i/keys"}, "auth.jwt.jwks_url"),
        ({"jwks_url": "http://i/keys", "algorithms": ("HS256",)}, "auth.jwt.algorithms"),
        ({"jwks_url": "http://i/keys", "algorithms": ()}, "auth.jwt.algorithms"),
        ({"jwks_url": "http://i/keys", "algorithms": ("none",)}, "auth.jwt.algorithms"),
        ({"secret_file": "/nowhere", "algorithms": ("HS256",)}, "auth.jwt.secret_file"),
        ({"public_key_file": __file__}, "auth.jwt.public_key_file"),
    ],
)
def test_settings_that_cannot_be_used(fields: dict[str, Any], path: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_method(JwtConfig(**fields), make_context("jwt"))
    assert caught.value.path == path


async def test_an_operator_hears_why(made: Made) -> None:
    """What the log and the list of refused clients say; the client hears 0x86 alone."""
    method = made(issuer="i", audience="a", leeway_s=5, acl_claim="acl")
    right: dict[str, Any] = {"iss": "i", "aud": "a", "acl": ["read a/#"], "nbf": NOW_S}
    right["iat"] = NOW_S + 900  # says when it was made, and decides nothing
    assert (await method.authenticate(asking("ada", token(**right)))).ok
    for changes, reason in (
        ({"exp": NOW_S - 5}, "it has expired"),
        ({"nbf": NOW_S + 6}, "it does not hold yet"),
        ({"exp": None}, "it never expires"),
        ({"iss": "j"}, "Invalid issuer"),
        ({"aud": "b"}, "Audience doesn't match"),
        ({"aud": None}, 'Token is missing the "aud" claim'),
        ({"acl": ["fly a/#"]}, "its claim 'acl': "),
        ({"sub": 7}, "Subject must be a string"),
    ):
        result = await method.authenticate(asking("ada", token(**right | changes)))
        assert (result.ok, result.reason_code) == (False, 0x86)
        assert result.reason.startswith(reason), result.reason
    for signed, reason in (
        (token(b"t" * 48, **right), "no key of the issuer has signed it"),
        (token(b"t" * 64, "HS512", **right), "its algorithm 'HS512' is not allowed"),
        (token("", "none", **right), "its algorithm 'none' is not allowed"),
    ):
        assert (await method.authenticate(asking("ada", signed))).reason == reason


def test_a_short_key_of_a_file(made: Made) -> None:
    short = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    with pytest.raises(ConfigError, match="less than 2048 bits"):
        made(pem(short), algorithms=("RS256",))


async def test_withdrawn_keys_may_be_kept(made: Made, tmp_path: Path) -> None:
    for fate in ("keep", "disconnect"):
        method = made(withdrawn_keys=fate)
        proof = (await method.authenticate(asking("ada", token()))).proof
        assert (await method.renew(asking("ada"), proof)).undecided
        (tmp_path / "key").write_bytes(b"n" * 48)
        method.reload()
        assert (await method.renew(asking("ada"), proof)).undecided == (fate == "keep")
