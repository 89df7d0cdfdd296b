"""Tokens: which hold, whose they are, what they grant and until when."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from perdure.auth_methods.jwks import PublishedKeys
from perdure.auth_methods.jwt import JwtMethod, open_method
from perdure.broker.auth.grant import Grant
from perdure.broker.auth.method import MethodUnavailable
from perdure.config.schema.auth_methods import JwtConfig
from perdure.errors import ConfigError
from perdure.topic.rules import Permission, Rule
from tests.support.clock import START_US, VirtualClock
from tests.unit.auth_methods.helpers import Told, asking, make_context

NOW_S = START_US // 1_000_000
SECRET = b"s" * 48
RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER_RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC = ec.generate_private_key(ec.SECP256R1())
ED = ed25519.Ed25519PrivateKey.generate()


def pem(key: Any) -> bytes:
    written: bytes = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return written


def token(
    key: Any = SECRET, alg: str = "HS256", *, kid: str | None = None, **changes: Any
) -> bytes:
    claims = {"sub": "ada", "exp": NOW_S + 60} | changes
    headers = None if kid is None else {"kid": kid}
    return jwt.encode(
        {name: value for name, value in claims.items() if value is not None},
        key,
        algorithm=alg,
        headers=headers,
    ).encode()


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
    good = {"iss": "i", "aud": ["a", "b"], "cid": "c", "acl": ["read x"]}
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


class Issuer:
    """Publishes keys."""

    def __init__(self) -> None:
        self.keys: list[dict[str, Any]] = []
        self.asked = 0
        self.status = 200

    def publish(self, kid: str, key: Any, **fields: Any) -> None:
        algorithm = jwt.algorithms.get_default_algorithms()["RS256"]
        self.keys.append(
            dict(algorithm.to_jwk(key.public_key(), as_dict=True)) | {"kid": kid} | fields
        )

    def answer(self, _request: httpx.Request) -> httpx.Response:
        self.asked += 1
        return httpx.Response(self.status, json={"keys": self.keys})


class Place:
    """A method that gets its keys of an issuer."""

    def __init__(self, issuer: Issuer) -> None:
        self.clock = VirtualClock()
        self.issuer = issuer
        self.settings = JwtConfig(jwks_url="http://issuer/keys", stale_max_s=100)
        self.told = Told()
        context = make_context("jwt", clock=self.clock, changed=self.told)
        transport = httpx.MockTransport(issuer.answer)
        self.keys = PublishedKeys(self.settings, context, transport)
        self.method = JwtMethod(self.settings, context, self.keys)

    async def lets_in(self, kid: str | None, key: Any, alg: str = "RS256") -> bool:
        exp = self.clock.now_us() // 1_000_000 + 60
        result = await self.method.authenticate(asking("ada", token(key, alg, kid=kid, exp=exp)))
        assert not result.undecided
        return result.ok


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    issuer = Issuer()
    issuer.publish("one", RSA)
    place = Place(issuer)
    yield place
    await place.method.close()


async def test_a_new_key_is_found_and_an_old_one_forgotten(place: Place) -> None:
    assert await place.lets_in("one", RSA)
    place.issuer.keys.clear()
    place.issuer.publish("two", OTHER_RSA)
    place.clock.advance_us(10_000_000)
    assert await place.lets_in("two", OTHER_RSA)
    assert place.issuer.asked == 2
    assert not await place.lets_in("one", RSA)
    assert not await place.lets_in("two", RSA)


async def test_whom_a_withdrawn_key_has_let_in_is_let_go(place: Place) -> None:
    place.issuer.publish("two", OTHER_RSA)
    proofs = {}
    for kid, key in (("one", RSA), ("two", OTHER_RSA)):
        exp = place.clock.now_us() // 1_000_000 + 60
        signed = token(key, "RS256", kid=kid, exp=exp)
        proofs[kid] = (await place.method.authenticate(asking("ada", signed))).proof
    # A key by another name is the same key, and an issuer that is away withdraws nothing.
    place.issuer.keys.clear()
    place.issuer.publish("other", RSA)
    place.issuer.publish("two", OTHER_RSA)
    for status in (200, 503):
        place.issuer.status = status
        place.clock.advance_us(10_000_000)
        assert not await place.lets_in("unknown", RSA)
        assert place.told.users == []
        assert (await place.method.renew(asking("ada"), proofs["one"])).undecided
    place.issuer.status = 200
    place.issuer.keys.pop(0)
    place.clock.advance_us(10_000_000)
    assert not await place.lets_in("unknown", RSA)
    assert place.told.users == [None]
    gone = await place.method.renew(asking("ada"), proofs["one"])
    assert (gone.ok, gone.undecided, gone.reason_code) == (False, False, 0x87)
    assert (await place.method.renew(asking("ada"), proofs["two"])).undecided


async def test_withdrawn_keys_may_be_kept(made: Made, tmp_path: Path) -> None:
    for fate in ("keep", "disconnect"):
        method = made(withdrawn_keys=fate)
        proof = (await method.authenticate(asking("ada", token()))).proof
        assert (await method.renew(asking("ada"), proof)).undecided
        (tmp_path / "key").write_bytes(b"n" * 48)
        method.reload()
        assert (await method.renew(asking("ada"), proof)).undecided == (fate == "keep")


async def test_unknown_keys_cause_one_fetch_in_a_while(place: Place) -> None:
    for number in range(20):
        assert not await place.lets_in(f"made-up-{number}", RSA)
    assert place.issuer.asked == 1
    place.clock.advance_us(9_999_999)
    assert not await place.lets_in("another", RSA)
    assert place.issuer.asked == 1
    place.clock.advance_us(1)
    assert not await place.lets_in("another", RSA)
    assert place.issuer.asked == 2


async def test_keys_hold_on_while_the_issuer_is_away(place: Place) -> None:
    assert await place.lets_in("one", RSA)
    place.issuer.status = 503
    place.clock.advance_us(100_000_000)
    assert not await place.lets_in("unknown", RSA)
    assert await place.lets_in("one", RSA)
    place.clock.advance_us(1)
    with pytest.raises(MethodUnavailable):
        await place.lets_in("one", RSA)


async def test_without_any_key_nobody_knows(place: Place) -> None:
    place.issuer.status = 500
    with pytest.raises(MethodUnavailable):
        await place.lets_in("one", RSA)


async def test_the_key_says_for_which_algorithm_it_is(place: Place) -> None:
    place.settings = JwtConfig(jwks_url="http://issuer/keys")
    place.issuer.keys.clear()
    place.issuer.publish("one", RSA, alg="RS512")
    assert not await place.lets_in("one", RSA)


async def test_a_published_secret_is_no_key(place: Place) -> None:
    text = base64.urlsafe_b64encode(SECRET).rstrip(b"=").decode()
    place.issuer.keys.append({"kty": "oct", "kid": "shared", "k": text})
    assert not await place.lets_in("shared", SECRET, "HS256")
    assert await place.keys.find("one") is not None
    assert await place.keys.find("shared") is None


async def test_a_document_that_is_too_long_or_none(place: Place) -> None:
    place.issuer.keys.append({"kty": "RSA", "n": "A" * 300_000})
    with pytest.raises(MethodUnavailable):
        await place.lets_in("one", RSA)
