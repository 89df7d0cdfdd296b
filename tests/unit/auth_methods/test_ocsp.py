"""Certificates that responders are asked about; the responder here signs as an authority does."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import ocsp
from cryptography.x509.oid import AuthorityInformationAccessOID, ExtendedKeyUsageOID, NameOID

from perdure.auth_methods.ocsp import OcspMethod, open_method
from perdure.broker.auth.authenticate import AuthRequest
from perdure.broker.auth.method import MethodUnavailable
from perdure.config.schema.auth_methods import OcspAuthConfig
from perdure.errors import ConfigError
from tests.support.clock import VirtualClock
from tests.unit.auth_methods.helpers import asking, make_context

HOUR: Final = timedelta(hours=1)
URL: Final = "http://responder.test/ocsp"
GOOD: Final = ocsp.OCSPCertStatus.GOOD
REVOKED: Final = ocsp.OCSPCertStatus.REVOKED


class Party:
    """A key and its certificate."""

    def __init__(
        self, name: str, now: datetime, issuer: Party | None = None, *extensions: Any
    ) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer.certificate.subject if issuer else subject)
            .public_key(self.key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - HOUR)
            .not_valid_after(now + 24 * HOUR)
        )
        for each in extensions:
            builder = builder.add_extension(each, critical=False)
        self.certificate = builder.sign(issuer.key if issuer else self.key, SHA256())

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(Encoding.DER)


class Scene:
    """An authority, its clients and its responder."""

    def __init__(self, tmp_path: Path) -> None:
        self.clock = VirtualClock()
        self.now = datetime.fromtimestamp(self.clock.now_us() / 1e6, UTC)
        self.authority = Party("authority", self.now)
        self.stranger = Party("authority", self.now)
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.OCSP_SIGNING])
        self.delegate = Party("delegate", self.now, self.authority, usage)
        self.pretender = Party("pretender", self.now, self.authority)
        where = x509.AccessDescription(
            AuthorityInformationAccessOID.OCSP, x509.UniformResourceIdentifier(URL)
        )
        access = x509.AuthorityInformationAccess([where])
        self.client = Party("pump-7", self.now, self.authority, access)
        self.file = tmp_path / "ca.pem"
        self.file.write_bytes(self.authority.certificate.public_bytes(Encoding.PEM))
        self.asked: list[str] = []
        self.answer: Callable[[], bytes] = lambda: self.response(GOOD)
        self.status = 200

    def response(
        self,
        status: ocsp.OCSPCertStatus,
        *,
        signer: Party | None = None,
        of: Party | None = None,
        begins: timedelta = -HOUR,
        ends: timedelta = HOUR,
    ) -> bytes:
        signer = signer or self.authority
        now = datetime.fromtimestamp(self.clock.now_us() / 1e6, UTC)
        builder = ocsp.OCSPResponseBuilder().add_response(
            cert=(of or self.client).certificate,
            issuer=self.authority.certificate,
            algorithm=SHA256(),
            cert_status=status,
            this_update=now + begins,
            next_update=now + ends,
            revocation_time=now - HOUR if status is REVOKED else None,
            revocation_reason=None,
        )
        builder = builder.responder_id(ocsp.OCSPResponderEncoding.NAME, signer.certificate)
        if signer is not self.authority:
            builder = builder.certificates([signer.certificate])
        return builder.sign(signer.key, SHA256()).public_bytes(Encoding.DER)

    def method(self, **settings: Any) -> OcspMethod:
        def answer(request: httpx.Request) -> httpx.Response:
            self.asked.append(str(request.url))
            ocsp.load_der_ocsp_request(request.content)
            return httpx.Response(self.status, content=self.answer())

        config = OcspAuthConfig(issuer_file=str(self.file), **settings)
        context = make_context("ocsp", clock=self.clock)
        issuers = x509.load_pem_x509_certificates(self.file.read_bytes())
        return OcspMethod(config, context, issuers, httpx.MockTransport(answer))

    def request(self, party: Party | None = None) -> AuthRequest:
        shown = (party or self.client).der
        return msgspec.structs.replace(
            asking(None, None), certificate=shown, certificate_subject="pump-7"
        )


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


async def test_a_good_certificate_is_its_name_and_a_revoked_one_is_none(scene: Scene) -> None:
    method = scene.method()
    result = await method.authenticate(scene.request())
    assert (result.ok, result.username, scene.asked) == (True, "pump-7", [URL])
    assert (await method.authenticate(asking("ada", "pw"))).undecided, "it has no certificate"
    scene.answer = lambda: scene.response(REVOKED)
    assert (await method.renew(asking("pump-7", None), result.proof)).ok, "it is remembered"
    scene.clock.advance_us(3_601_000_000)
    renewed = await method.renew(asking("pump-7", None), result.proof)
    assert (renewed.ok, renewed.undecided) == (False, False)
    scene.answer = lambda: scene.response(ocsp.OCSPCertStatus.UNKNOWN)
    method.reload()
    assert not (await method.authenticate(scene.request())).ok
    assert len(scene.asked) == 3
    await method.close()


async def test_the_next_method_may_say_who_it_is(scene: Scene) -> None:
    method = scene.method(identifies=False, url="http://mine.test/")
    assert (await method.authenticate(scene.request())).undecided
    assert scene.asked == ["http://mine.test/"]
    scene.answer = lambda: scene.response(REVOKED)
    method.reload()
    result = await method.authenticate(scene.request())
    assert (result.ok, result.undecided) == (False, False)
    await method.close()


async def test_whom_the_authority_has_named_may_sign(scene: Scene) -> None:
    scene.answer = lambda: scene.response(REVOKED, signer=scene.delegate)
    method = scene.method()
    assert not (await method.authenticate(scene.request())).ok
    await method.close()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda scene: b"nonsense",
        lambda scene: scene.response(GOOD, signer=scene.stranger),
        lambda scene: scene.response(GOOD, signer=scene.pretender),
        lambda scene: scene.response(GOOD, of=scene.delegate),
        lambda scene: scene.response(GOOD, begins=-3 * HOUR, ends=-2 * HOUR),
        lambda scene: scene.response(GOOD, begins=2 * HOUR, ends=3 * HOUR),
        lambda scene: ocsp.OCSPResponseBuilder.build_unsuccessful(
            ocsp.OCSPResponseStatus.TRY_LATER
        ).public_bytes(Encoding.DER),
        lambda scene: b"x" * 100_000,
    ],
    ids=["nonsense", "stranger", "no delegate", "another", "old", "early", "later", "long"],
)
async def test_what_is_no_answer_lets_nobody_in(scene: Scene, wrong: Any) -> None:
    scene.answer = lambda: wrong(scene)
    method = scene.method()
    with pytest.raises(MethodUnavailable):
        await method.authenticate(scene.request())
    await method.close()
    soft = scene.method(unavailable="accept")
    assert (await soft.authenticate(scene.request())).ok
    await soft.close()


async def test_a_certificate_of_somebody_else_is_not_asked_about(scene: Scene) -> None:
    method = scene.method()
    other = Party("pump-7", scene.now, scene.stranger)
    with pytest.raises(MethodUnavailable, match="issuer"):
        await method.authenticate(scene.request(other))
    mute = Party("pump-7", scene.now, scene.authority)
    with pytest.raises(MethodUnavailable, match="names no responder"):
        await method.authenticate(scene.request(mute))
    scene.status = 500
    with pytest.raises(MethodUnavailable, match="500"):
        await method.authenticate(scene.request())
    await method.close()


def test_it_needs_the_authorities(tmp_path: Path) -> None:
    for file in ("", str(tmp_path / "none")):
        with pytest.raises(ConfigError) as caught:
            open_method(OcspAuthConfig(issuer_file=file), make_context("ocsp"))
        assert caught.value.path == "auth.ocsp.issuer_file"
