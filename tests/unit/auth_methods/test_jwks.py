"""Keys as issuers publish them: rotated, shared between kinds, away, and what is no set of keys."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from perdure.auth_methods.jwks import PublishedKeys
from perdure.auth_methods.jwt import JwtMethod
from perdure.broker.auth.method import MethodUnavailable
from perdure.config.schema.auth_methods import JwtConfig
from tests.support.clock import VirtualClock
from tests.unit.auth_methods.helpers import (
    EC,
    ED,
    OTHER_RSA,
    RSA,
    SECRET,
    Told,
    asking,
    make_context,
    token,
)


class Issuer:
    """Publishes keys."""

    def __init__(self) -> None:
        self.keys: list[dict[str, Any]] = []
        self.asked = 0
        self.status = 200
        self.document: str | bytes | None = None
        """In place of the keys."""

    def publish(self, kid: str | None, key: Any, kind: str = "RS256", **fields: Any) -> None:
        algorithm = jwt.algorithms.get_default_algorithms()[kind]
        named = {} if kid is None else {"kid": kid}
        self.keys.append(dict(algorithm.to_jwk(key.public_key(), as_dict=True)) | named | fields)

    def answer(self, _request: httpx.Request) -> httpx.Response:
        self.asked += 1
        said = json.dumps({"keys": self.keys}) if self.document is None else self.document
        return httpx.Response(self.status, content=said)


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
        return not await self.refuses(kid, key, alg)

    async def refuses(self, kid: str | None, key: Any, alg: str = "RS256") -> str:
        """The reason for operators; empty = the client is let in."""
        exp = self.clock.now_us() // 1_000_000 + 60
        result = await self.method.authenticate(asking("ada", token(key, alg, kid=kid, exp=exp)))
        assert not result.undecided
        assert result.ok != bool(result.reason)
        return result.reason


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
    # A key that was withdrawn is not waited for as one that may still come.
    for _ in range(2):
        assert await place.refuses("one", RSA) == "the issuer has no key 'one' for RS256"
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


async def test_unknown_keys_cause_one_fetch_in_a_while(place: Place) -> None:
    for number in range(20):
        exp = place.clock.now_us() // 1_000_000 + 60
        signed = token(RSA, "RS256", kid=f"made-up-{number}", exp=exp)
        result = await place.method.authenticate(asking("ada", signed))
        # Who was not asked about may come with a key of a minute ago: no failure of a login.
        assert (result.ok, result.reason_code) == (False, 0x88 if number else 0x86)
        assert result.reason.startswith("no key " if number else "the issuer has no key ")
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
    assert len(await place.keys.find("one")) == 1
    place.clock.advance_us(10_000_000)
    assert await place.keys.find("shared") == ()


async def test_a_document_that_is_too_long_or_none(place: Place) -> None:
    place.issuer.keys.append({"kty": "RSA", "n": "A" * 300_000})
    with pytest.raises(MethodUnavailable):
        await place.lets_in("one", RSA)


@pytest.mark.parametrize(
    "document",
    [
        b"",
        "{",
        "[]",
        "null",
        "7",
        '"keys"',
        "{}",
        '{"keys": {}}',
        '{"keys": null}',
        '{"keys": []}',
        '{"keys": [7, null, "x", [], {}]}',
        '{"keys": [{"kty": ["RSA"]}]}',
        '{"keys": [{"kty": "RSA", "alg": ["RS256"]}]}',
        '{"keys": [{"kty": "RSA", "n": 7, "e": "AQAB"}]}',
        '{"keys": [{"kty": "RSA", "n": "AA", "e": "AA"}]}',
        '{"keys": [{"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"}]}',
        '{"keys": [{"kty": "OKP", "crv": "Ed25519", "x": "AA"}]}',
        '{"keys": [{"kty": "oct", "kid": "one", "k": "AAAA"}]}',
        "[" * 100_000,
        '{"keys": [' + "[" * 100_000,
        '{"keys": [{"kty": "RSA", "x5c": ' + "[" * 5_000 + "]" * 5_000 + "}]}",
        b'{"keys": "\xff"}',
    ],
)
async def test_what_is_no_set_of_keys_withdraws_none(place: Place, document: str | bytes) -> None:
    assert await place.lets_in("one", RSA)
    place.issuer.document = document
    place.clock.advance_us(10_000_000)
    assert await place.refuses("two", RSA) == "the issuer has no key 'two' for RS256"
    assert place.issuer.asked == 2
    assert await place.lets_in("one", RSA)
    assert place.told.users == []


async def test_members_that_are_no_keys_are_passed_over(place: Place) -> None:
    wrong: list[Any] = [7, {"kty": "RSA", "kid": {}}, {"kty": "new", "kid": "one"}]
    place.issuer.keys[:0] = wrong
    assert await place.lets_in("one", RSA)


async def test_keys_without_an_identifier_are_tried(place: Place) -> None:
    place.issuer.keys.clear()
    place.issuer.publish(None, RSA)
    place.issuer.publish(None, OTHER_RSA)
    place.issuer.publish(None, EC, "ES256")
    place.issuer.publish(None, ED, "EdDSA")
    signers: list[tuple[Any, str]] = [(RSA, "RS256"), (OTHER_RSA, "RS256")]
    for key, alg in (*signers, (EC, "ES256"), (ED, "EdDSA")):
        assert await place.lets_in(None, key, alg)
    assert place.issuer.asked == 1


async def test_a_token_that_names_no_key_outlives_a_rotation(place: Place) -> None:
    assert await place.lets_in(None, RSA)
    place.issuer.publish("two", OTHER_RSA)
    assert await place.refuses(None, OTHER_RSA) == "no key of the issuer has signed it"
    place.clock.advance_us(10_000_000)
    assert await place.lets_in(None, OTHER_RSA)
    assert await place.lets_in(None, RSA)
    assert place.issuer.asked == 2


async def test_an_identifier_may_get_another_key(place: Place) -> None:
    assert await place.lets_in("one", RSA)
    place.issuer.keys.clear()
    place.issuer.publish("one", OTHER_RSA)
    for _ in range(3):
        assert await place.refuses("one", OTHER_RSA)
    assert place.issuer.asked == 1
    place.clock.advance_us(10_000_000)
    assert await place.lets_in("one", OTHER_RSA)
    assert not await place.lets_in("one", RSA)
    assert place.issuer.asked == 2


async def test_keys_of_several_kinds_may_share_an_identifier(place: Place) -> None:
    place.issuer.publish("one", EC, "ES256")
    assert await place.lets_in("one", RSA)
    assert await place.lets_in("one", EC, "ES256")


@pytest.mark.parametrize("fields", [{"use": "enc"}, {"key_ops": ["encrypt"]}, {"key_ops": []}])
async def test_a_key_for_something_else_verifies_nothing(
    place: Place, fields: dict[str, Any]
) -> None:
    place.issuer.publish("two", OTHER_RSA, **fields)
    assert not await place.lets_in("two", OTHER_RSA)
    place.issuer.publish("three", OTHER_RSA, use="sig", key_ops=["sign", "verify"])
    place.clock.advance_us(10_000_000)
    assert await place.lets_in("three", OTHER_RSA)


@pytest.mark.filterwarnings("ignore::jwt.InsecureKeyLengthWarning")
async def test_a_short_key_verifies_nothing(place: Place) -> None:
    short = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    place.issuer.publish("short", short)
    assert not await place.lets_in("short", short)
    assert await place.lets_in("one", RSA)
