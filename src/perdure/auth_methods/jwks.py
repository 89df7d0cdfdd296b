"""The keys by which tokens are verified: of a file, or as an issuer publishes them (RFC 7517).

Published keys are fetched at the start and every ``refresh_s``. A token that no known key has
signed makes for a fetch too, since the issuer may have a new one; but of those there is one in
``refresh_min_s`` at most, whatever clients send, and all who wait share it. Keys that cannot be
fetched anew hold on for ``stale_max_s``; a document without any key that could be used counts as
not fetched. When a key is published no more, those whom it has let in are looked at again.
"""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from typing import Final, final

import httpx
import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from perdure.broker.auth.method import MethodContext, MethodUnavailable
from perdure.config.schema.auth_methods import JwtConfig
from perdure.errors import ConfigError
from perdure.net.http_body import PLAIN, read_body

SETTING: Final = "auth.jwt"
KEYS_MAX: Final = 100
"""Keys of one issuer; more are a mistake."""

DOCUMENT_BYTES_MAX: Final = 256 * 1024
SECRET_BYTES_MIN: Final = 32
"""RFC 7518 section 3.2: as long as the hash of HS256."""

KEY_FILE_BYTES_MAX: Final = 64 * 1024

RSA_BITS_MIN: Final = 2048
"""RFC 7518 section 3.3."""

_MATERIAL: Final = ("kty", "crv", "x", "y", "e", "n", "k")
"""What a key is, whatever it is called (RFC 7638 section 3.2)."""


def fingerprint(key: jwt.PyJWK) -> bytes:
    """What tells a key from every other; the same after it was given another identifier."""
    members = [f"{name}={key._jwk_data.get(name)}" for name in _MATERIAL]
    return hashlib.sha256("\n".join(members).encode()).digest()


class KeysAskedLately(Exception):
    """The issuer may have the key of a token by now, and was asked too short a time ago."""


@final
class FileKey:
    """One key, of a file; ``load`` reads it again."""

    def __init__(self, settings: JwtConfig) -> None:
        self._settings = settings
        self._key = self._read()

    async def find(self, kid: str | None) -> tuple[jwt.PyJWK, ...]:
        """The key, whatever the token calls it."""
        return (self._key,)

    async def ask_again(self) -> bool:
        """There is no other one before a reload."""
        return False

    def has(self, known: object) -> bool:
        """Whether a key, by its fingerprint, is this one."""
        return fingerprint(self._key) == known

    async def start(self) -> None:
        """Nothing goes on."""

    def reload(self) -> None:
        """Read the file again.

        Raises:
            ConfigError: it cannot be used; the key stays.
        """
        self._key = self._read()

    async def close(self) -> None:
        """Nothing goes on."""

    def _read(self) -> jwt.PyJWK:
        settings = self._settings
        if settings.secret_file:
            path = f"{SETTING}.secret_file"
            secret = _bytes_of(settings.secret_file, path).strip(b"\r\n")
            if len(secret) < SECRET_BYTES_MIN:
                raise ConfigError(
                    f"the secret has less than {SECRET_BYTES_MIN} bytes",
                    path=path,
                    hint="openssl rand -base64 48",
                )
            return _symmetric(secret, settings.algorithms[0])
        path = f"{SETTING}.public_key_file"
        return _public(_bytes_of(settings.public_key_file, path), settings.algorithms, path)


def _symmetric(secret: bytes, algorithm: str) -> jwt.PyJWK:
    text = jwt.utils.base64url_encode(secret).decode()
    return jwt.PyJWK({"kty": "oct", "k": text}, algorithm=algorithm)


def _public(pem: bytes, algorithms: tuple[str, ...], path: str) -> jwt.PyJWK:
    """The key in a PEM file, for the first accepted algorithm of its kind."""
    known = jwt.algorithms.get_default_algorithms()
    for name in algorithms:
        algorithm = known.get(name)
        try:
            assert algorithm is not None
            key = algorithm.prepare_key(pem)
            made = jwt.PyJWK(algorithm.to_jwk(key, as_dict=True), algorithm=name)
        except (ValueError, TypeError, AssertionError, jwt.PyJWTError):
            continue  # a key of another kind
        if _is_short(made):
            raise ConfigError(
                f"the RSA key has less than {RSA_BITS_MIN} bits",
                path=path,
                hint="openssl genrsa 3072",
            )
        return made
    raise ConfigError(
        "is no public key in PEM for any of auth.jwt.algorithms",
        path=path,
        hint="a file that begins with -----BEGIN PUBLIC KEY-----",
    )


class _Published(msgspec.Struct, frozen=True, omit_defaults=True):
    """A member of a set of keys, as far as it matters (RFC 7517 section 4). Other members, such as
    chains of certificates, verify nothing here."""

    kty: str
    kid: str | None = None
    use: str | None = None
    key_ops: list[str] | None = None
    alg: str | None = None
    crv: str | None = None
    n: str | None = None
    e: str | None = None
    x: str | None = None
    y: str | None = None


class _KeySet(msgspec.Struct, frozen=True):
    """A set of keys; members that are none are passed over (RFC 7517 section 5)."""

    keys: list[msgspec.Raw]


def _key_set(document: bytes) -> tuple[list[jwt.PyJWK], int]:
    """The keys of a document by which signatures may be verified, and how many others it has.

    Raises:
        ValueError: it is no set of keys, or has none for signatures.
    """
    try:
        members = msgspec.json.decode(document, type=_KeySet).keys
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(f"is no set of keys: {error}") from None
    keys = [key for key in map(_verifying, members[:KEYS_MAX]) if key is not None]
    if not keys:
        raise ValueError(f"has no key for signatures among {len(members)}")
    return keys, len(members) - len(keys)


def _verifying(member: msgspec.Raw) -> jwt.PyJWK | None:
    """A key, or None: it is for something else, or of a kind that is not known."""
    try:
        said = msgspec.json.decode(member, type=_Published)
        # A secret that everybody can fetch verifies nothing.
        if said.kty == "oct" or said.use not in (None, "sig"):
            return None
        if said.key_ops is not None and "verify" not in said.key_ops:
            return None
        key = jwt.PyJWK(msgspec.to_builtins(said))
    except (msgspec.MsgspecError, RecursionError, jwt.PyJWTError):
        return None
    return None if _is_short(key) else key


def _is_short(key: jwt.PyJWK) -> bool:
    return isinstance(key.key, RSAPublicKey) and key.key.key_size < RSA_BITS_MIN


def _bytes_of(file: str, path: str) -> bytes:
    try:
        with Path(file).open("rb") as opened:
            data = opened.read(KEY_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}", path=path) from error
    if len(data) > KEY_FILE_BYTES_MAX:
        raise ConfigError(f"{file} is larger than {KEY_FILE_BYTES_MAX} bytes", path=path)
    return data


@final
class PublishedKeys:
    """The keys that an issuer publishes.

    Args:
        settings: of the method.
        context: of the method.
        transport: of HTTP; None = the network.
    """

    def __init__(
        self,
        settings: JwtConfig,
        context: MethodContext,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._settings = settings
        self._context = context
        # Redirects are not followed: keys come from where the operator says.
        self._client = httpx.AsyncClient(
            headers=PLAIN,
            timeout=settings.timeout_ms / 1000,
            follow_redirects=False,
            transport=transport,
        )
        self._keys: tuple[jwt.PyJWK, ...] = ()
        self._withdrawn: dict[str | None, None] = {}
        """Identifiers of keys that were published, the latest at the end."""
        self._unusable = 0
        self._fingerprints: frozenset[bytes] = frozenset()
        self._fetched_us: int | None = None
        self._asked_us: int | None = None
        self._fetching: asyncio.Task[bool] | None = None
        self._task: asyncio.Task[None] | None = None

    async def find(self, kid: str | None) -> tuple[jwt.PyJWK, ...]:
        """The keys that may have signed a token; empty = the issuer has no such key.

        Args:
            kid: its key identifier; None = it names none, so that any may have.

        Raises:
            MethodUnavailable: nobody knows the issuer's keys, or those known are too old.
            KeysAskedLately: none is known, and the issuer is not asked before ``refresh_min_s``.
        """
        keys = self._known(kid)
        is_asked = not keys and self._may_ask()
        if is_asked:
            await self._fetch_once()
            keys = self._known(kid)
        if self._is_stale():
            raise MethodUnavailable("the keys of auth.jwt.jwks_url cannot be fetched")
        if not keys and not is_asked and kid not in self._withdrawn:
            raise KeysAskedLately
        return keys

    async def ask_again(self) -> bool:
        """Fetch, if one may, because no key has signed a token; whether there are other keys."""
        if not self._may_ask():
            return False
        before = self._fingerprints
        await self._fetch_once()
        return self._fingerprints != before

    def has(self, known: object) -> bool:
        """Whether the issuer still publishes a key, by its fingerprint, as far as is known."""
        return self._fetched_us is None or known in self._fingerprints

    async def start(self) -> None:
        """Fetch the keys now and again; an issuer that is away now may come later."""
        self._task = asyncio.create_task(self._refresh(), name="auth.jwks")

    def reload(self) -> None:
        """Fetch the keys now."""
        if self._task is not None:
            self._task.cancel()
            self._task = asyncio.create_task(self._refresh(), name="auth.jwks")

    async def close(self) -> None:
        """Fetch no more."""
        tasks = [task for task in (self._task, self._fetching) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._client.aclose()

    def _known(self, kid: str | None) -> tuple[jwt.PyJWK, ...]:
        if kid is None:
            return self._keys
        # Keys of several kinds may share an identifier (RFC 7517 section 4.5).
        return tuple(key for key in self._keys if key.key_id == kid)

    def _is_stale(self) -> bool:
        if self._fetched_us is None:
            return True
        age_us = self._context.clock.monotonic_us() - self._fetched_us
        return age_us > self._settings.stale_max_s * 1_000_000

    def _may_ask(self) -> bool:
        """Whether a token may cause a fetch; who finds one under way waits for it."""
        if self._fetching is not None or self._asked_us is None:
            return True
        passed_us = self._context.clock.monotonic_us() - self._asked_us
        return passed_us >= self._settings.refresh_min_s * 1_000_000

    async def _refresh(self) -> None:
        while True:
            done = await self._fetch_once()
            settings = self._settings
            await asyncio.sleep(
                settings.refresh_s if done else min(settings.refresh_s, settings.refresh_min_s)
            )

    async def _fetch_once(self) -> bool:
        """Fetch the keys, or wait for whoever does; whether they came."""
        if self._fetching is None:
            self._asked_us = self._context.clock.monotonic_us()
            self._fetching = asyncio.create_task(self._fetch(), name="auth.jwks.fetch")
            self._fetching.add_done_callback(self._fetched)
        return await asyncio.shield(self._fetching)

    def _fetched(self, _task: asyncio.Task[bool]) -> None:
        self._fetching = None

    async def _fetch(self) -> bool:
        try:
            keys, unusable = _key_set(await self._get())
        except (httpx.HTTPError, ValueError) as error:
            self._context.log.warning(
                "auth.keys_missing",
                url=self._settings.jwks_url,
                error=str(error) or type(error).__name__,
            )
            return False
        before, self._fingerprints = self._fingerprints, frozenset(map(fingerprint, keys))
        if (before, self._unusable) != (self._fingerprints, unusable):
            self._context.log.info(
                "auth.keys", url=self._settings.jwks_url, keys=len(keys), unusable=unusable
            )
        self._remember_withdrawn({key.key_id for key in keys})
        self._keys, self._unusable = tuple(keys), unusable
        self._fetched_us = self._context.clock.monotonic_us()
        withdrawn = before - self._fingerprints
        if withdrawn:
            self._context.log.warning(
                "auth.keys_withdrawn", url=self._settings.jwks_url, keys=len(withdrawn)
            )
            self._context.changed(None)
        return True

    def _remember_withdrawn(self, published: set[str | None]) -> None:
        for key in self._keys:
            self._withdrawn[key.key_id] = None
        for kid in published:
            self._withdrawn.pop(kid, None)
        while len(self._withdrawn) > KEYS_MAX:
            del self._withdrawn[next(iter(self._withdrawn))]

    async def _get(self) -> bytes:
        async with self._client.stream("GET", self._settings.jwks_url) as response:
            if response.status_code != httpx.codes.OK:
                raise ValueError(f"answered with status {response.status_code}")
            return await read_body(response, bytes_max=DOCUMENT_BYTES_MAX)
