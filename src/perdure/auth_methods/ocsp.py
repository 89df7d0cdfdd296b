"""Client certificates that their authority is asked about (OCSP, RFC 6960).

The TLS handshake has verified the certificate; this asks the responder, before the client is let in
and every ``recheck_s`` while it is there, whether it was revoked. Answers are remembered for as
long as they say, ``cache_s`` at most. A server cannot ask clients for stapled answers with OpenSSL
as Python has it, so the broker asks itself.

Invariant: an answer that is not signed by the certificate's issuer, or by whom the issuer has named
for it, or that is about another certificate or another time, is no answer.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Literal, TypeAlias, final

import httpx
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, padding, rsa
from cryptography.hazmat.primitives.hashes import SHA1, SHA256, HashAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import ocsp
from cryptography.x509.oid import AuthorityInformationAccessOID, ExtendedKeyUsageOID

from perdure.auth_methods.answer_cache import CACHE_KEY_BYTES, AnswerCache
from perdure.broker.auth.authenticate import AuthRequest, AuthResult
from perdure.broker.auth.method import (
    AuthMethod,
    MethodContext,
    MethodUnavailable,
    allow,
    deny,
    ignore,
)
from perdure.config.schema.auth_methods import OcspAuthConfig
from perdure.errors import ConfigError
from perdure.mqtt.reason_codes import NOT_AUTHORIZED
from perdure.net.http_body import PLAIN, read_body
from perdure.net.http_settings import check_http_url

SETTING: Final = "auth.ocsp"
CACHE_MAX: Final = 100_000
"""Certificates whose state is remembered, some 200 bytes each."""
ANSWER_BYTES_MAX: Final = 64 * 1024
SKEW: Final = timedelta(minutes=5)
"""What the responder's clock may be off."""

Verdict: TypeAlias = Literal["good", "revoked", "unknown"]

_VERDICTS: Final[dict[ocsp.OCSPCertStatus, Verdict]] = {
    ocsp.OCSPCertStatus.GOOD: "good",
    ocsp.OCSPCertStatus.REVOKED: "revoked",
    ocsp.OCSPCertStatus.UNKNOWN: "unknown",
}


@final
class OcspMethod(AuthMethod):
    """Asks responders.

    Args:
        settings: of the method.
        context: clock, log.
        issuers: that certificates may be of.
        transport: of HTTP; None = the network.
    """

    def __init__(
        self,
        settings: OcspAuthConfig,
        context: MethodContext,
        issuers: list[x509.Certificate],
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._settings = settings
        self._context = context
        self._issuers = issuers
        self._cache: AnswerCache[Verdict] = AnswerCache(
            context.clock, context.random_bytes(CACHE_KEY_BYTES), size_max=CACHE_MAX
        )
        self._client = httpx.AsyncClient(
            headers=PLAIN,
            timeout=settings.timeout_ms / 1000,
            follow_redirects=False,
            trust_env=False,
            transport=transport,
        )

    def reload(self) -> None:
        """Read the issuers again, and forget all answers."""
        self._issuers = read_issuers(self._settings.issuer_file)
        self._cache.clear()

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def authenticate(self, request: AuthRequest) -> AuthResult:
        """Judge the certificate of a connection; has no opinion on one without."""
        if not request.certificate:
            return ignore()
        return await self._judge(request.certificate, request.certificate_subject)

    async def renew(self, request: AuthRequest, proof: object | None) -> AuthResult:
        """Whether the certificate still holds."""
        if not isinstance(proof, bytes):
            return ignore()
        return await self._judge(proof, request.username)

    async def _judge(self, der: bytes, subject: str | None) -> AuthResult:
        try:
            verdict = await self._verdict(der)
        except MethodUnavailable as error:
            if self._settings.unavailable == "refuse":
                raise
            self._context.log.warning("auth.ocsp_unavailable", reason=str(error))
            verdict = "good"
        if verdict != "good":
            return deny(NOT_AUTHORIZED, f"its certificate is {verdict}, says the responder")
        if not self._settings.identifies:
            return ignore()
        if not subject:
            return deny(NOT_AUTHORIZED, "its certificate has no common name")
        return allow(
            subject, recheck_us=self._context.recheck_us(self._settings.recheck_s), proof=der
        )

    async def _verdict(self, der: bytes) -> Verdict:
        known = self._cache.get(der)
        if known is not None:
            return known
        try:
            certificate = x509.load_der_x509_certificate(der)
        except ValueError as error:
            raise MethodUnavailable(f"the certificate cannot be read: {error}") from None
        issuer = issuer_of(certificate, self._issuers)
        answer = await self._ask(certificate, issuer)
        now = datetime.fromtimestamp(self._context.clock.now_us() / 1e6, UTC)
        verdict, until = judge(answer, certificate, issuer, now)
        holds_s = min(self._settings.cache_s, max(0, int((until - now).total_seconds())))
        self._cache.put(der, verdict, holds_s=holds_s)
        return verdict

    async def _ask(self, certificate: x509.Certificate, issuer: x509.Certificate) -> bytes:
        url = self._settings.url or responder_of(certificate)
        algorithm: HashAlgorithm = SHA1() if self._settings.digest == "sha1" else SHA256()  # noqa: S303
        request = ocsp.OCSPRequestBuilder().add_certificate(certificate, issuer, algorithm).build()
        try:
            async with self._client.stream(
                "POST",
                url,
                content=request.public_bytes(Encoding.DER),
                headers={"Content-Type": "application/ocsp-request"},
            ) as answer:
                body = await read_body(answer, bytes_max=ANSWER_BYTES_MAX)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise MethodUnavailable(f"{url}: {error!r}") from None
        except ValueError as error:
            raise MethodUnavailable(f"{url} {error}") from None
        if answer.status_code != httpx.codes.OK:
            raise MethodUnavailable(f"{url} answers with {answer.status_code}")
        return body


def judge(
    answer: bytes, certificate: x509.Certificate, issuer: x509.Certificate, now: datetime
) -> tuple[Verdict, datetime]:
    """What a responder says of a certificate, and until when it says so.

    Raises:
        MethodUnavailable: it says nothing that can be believed.
    """
    try:
        found = ocsp.load_der_ocsp_response(answer)
    except ValueError as error:
        raise MethodUnavailable(f"the answer is no OCSP response: {error}") from None
    if found.response_status is not ocsp.OCSPResponseStatus.SUCCESSFUL:
        raise MethodUnavailable(f"the responder says {found.response_status.name}")
    _check_signature(found, issuer, now)
    ours = ocsp.OCSPRequestBuilder().add_certificate(certificate, issuer, found.hash_algorithm)
    asked = ours.build()
    is_ours = (
        found.serial_number == asked.serial_number
        and found.issuer_key_hash == asked.issuer_key_hash
        and found.issuer_name_hash == asked.issuer_name_hash
    )
    if not is_ours:
        raise MethodUnavailable("the answer is about another certificate")
    until = found.next_update_utc or now
    if found.this_update_utc > now + SKEW or until < now - SKEW:
        raise MethodUnavailable("the answer is about another time")
    return _VERDICTS[found.certificate_status], until


def _check_signature(found: ocsp.OCSPResponse, issuer: x509.Certificate, now: datetime) -> None:
    """Find out that the issuer says so, or somebody whom it has named for it (RFC 6960 4.2.2.2)."""
    for signer in (issuer, *found.certificates):
        if signer is not issuer and not _is_delegate(signer, issuer, now):
            continue
        try:
            _verify(signer, found)
        except (InvalidSignature, TypeError, ValueError):
            continue
        return
    raise MethodUnavailable("the answer is signed by somebody else")


def _is_delegate(signer: x509.Certificate, issuer: x509.Certificate, now: datetime) -> bool:
    try:
        signer.verify_directly_issued_by(issuer)
        usage = signer.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except (InvalidSignature, TypeError, ValueError, x509.ExtensionNotFound):
        return False
    holds = signer.not_valid_before_utc <= now <= signer.not_valid_after_utc
    return holds and ExtendedKeyUsageOID.OCSP_SIGNING in usage


def _verify(signer: x509.Certificate, found: ocsp.OCSPResponse) -> None:
    key, algorithm = signer.public_key(), found.signature_hash_algorithm
    signature, data = found.signature, found.tbs_response_bytes
    if isinstance(key, rsa.RSAPublicKey) and algorithm is not None:
        key.verify(signature, data, padding.PKCS1v15(), algorithm)
    elif isinstance(key, ec.EllipticCurvePublicKey) and algorithm is not None:
        key.verify(signature, data, ec.ECDSA(algorithm))
    elif isinstance(key, ed25519.Ed25519PublicKey | ed448.Ed448PublicKey):
        key.verify(signature, data)
    else:
        raise TypeError("no such signature")


def issuer_of(certificate: x509.Certificate, issuers: list[x509.Certificate]) -> x509.Certificate:
    """The authority that a certificate is of.

    Raises:
        MethodUnavailable: it is none of those that are known.
    """
    for each in issuers:
        if each.subject != certificate.issuer:
            continue
        try:
            certificate.verify_directly_issued_by(each)
        except (InvalidSignature, TypeError, ValueError):
            continue
        return each
    raise MethodUnavailable("the issuer of the certificate is not in auth.ocsp.issuer_file")


def responder_of(certificate: x509.Certificate) -> str:
    """Where a certificate says that its authority is asked.

    Raises:
        MethodUnavailable: it does not say.
    """
    try:
        found = certificate.extensions.get_extension_for_class(x509.AuthorityInformationAccess)
    except (x509.ExtensionNotFound, ValueError):
        found = None
    for each in found.value if found is not None else ():
        place = each.access_location
        is_url = isinstance(place, x509.UniformResourceIdentifier)
        if each.access_method == AuthorityInformationAccessOID.OCSP and is_url:
            url = str(place.value)
            if url.startswith(("http://", "https://")):
                return url
    raise MethodUnavailable("the certificate names no responder, and auth.ocsp.url neither")


def read_issuers(path: str) -> list[x509.Certificate]:
    """The authorities of a file.

    Raises:
        ConfigError: it cannot be read, or has none.
    """
    setting = f"{SETTING}.issuer_file"
    if not path:
        raise ConfigError("names no file", path=setting, hint="that of client_ca, in most cases")
    try:
        return x509.load_pem_x509_certificates(Path(path).read_bytes())
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", path=setting) from error
    except ValueError as error:
        raise ConfigError(f"{path} holds no PEM certificate: {error}", path=setting) from error


def open_method(settings: OcspAuthConfig, context: MethodContext) -> OcspMethod:
    """Make the method.

    Raises:
        ConfigError: a file or the URL cannot be used.
    """
    if settings.url:
        check_http_url(settings.url, f"{SETTING}.url")
    return OcspMethod(settings, context, read_issuers(settings.issuer_file))
