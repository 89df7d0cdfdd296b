"""Client certificates that their authority has revoked."""

from __future__ import annotations

import datetime as dt
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from tests.unit.net.helpers import Certificates, Issuer, issue

from perdure.errors import ConfigError
from perdure.net.tls import client_context, server_context


@pytest.fixture
def authority(tmp_path: Path) -> Issuer:
    return issue(tmp_path, "ca", "An authority")


@pytest.fixture
def files(tmp_path: Path, authority: Issuer) -> Certificates:
    issue(tmp_path, "server", "localhost", authority)
    return Certificates(tmp_path)


def revoke(file: Path, authority: Issuer, *revoked: x509.Certificate, days: int = 1) -> None:
    """Write a list of the authority's."""
    now = dt.datetime.now(dt.UTC)
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(authority[0].subject)
        .last_update(now - dt.timedelta(days=2))
        .next_update(now + dt.timedelta(days=days))
    )
    for certificate in revoked:
        builder = builder.add_revoked_certificate(
            x509.RevokedCertificateBuilder()
            .serial_number(certificate.serial_number)
            .revocation_date(now)
            .build()
        )
    listed = builder.sign(authority[1], hashes.SHA256())
    file.write_bytes(listed.public_bytes(serialization.Encoding.PEM))


def shakes_hands(server: ssl.SSLContext, files: Certificates, name: str) -> bool:
    """Whether a client with a certificate is let in; all in memory."""
    context = client_context(
        cafile=files["ca.pem"], certificate=files[f"{name}.pem"], private_key=files[f"{name}.key"]
    )
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(to_client, to_server, server_hostname="localhost")
    served = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(10):
        for side in (client, served):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError:
                return False
    return served.getpeercert() is not None


def test_a_revoked_certificate_is_refused_from_the_next_reading_on(
    tmp_path: Path, authority: Issuer, files: Certificates
) -> None:
    issue(tmp_path, "good", "good", authority)
    gone, _ = issue(tmp_path, "gone", "gone", authority)
    crl = tmp_path / "crl.pem"
    settings = files.tls(
        client_ca=files["ca.pem"], client_crl=str(crl), require_client_certificate=True
    )
    revoke(crl, authority)
    before = server_context(settings)
    assert shakes_hands(before, files, "good")
    assert shakes_hands(before, files, "gone")
    revoke(crl, authority, gone)
    after = server_context(settings)
    assert shakes_hands(after, files, "good")
    assert not shakes_hands(after, files, "gone")


def test_a_list_that_has_run_out_lets_nobody_in(
    tmp_path: Path, authority: Issuer, files: Certificates
) -> None:
    issue(tmp_path, "good", "good", authority)
    crl = tmp_path / "crl.pem"
    revoke(crl, authority, days=-1)
    settings = files.tls(client_ca=files["ca.pem"], client_crl=str(crl))
    assert not shakes_hands(server_context(settings), files, "good")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot read"),
        ("", "no list"),
        ("certificate", "no list"),
        ("-----BEGIN X509 CRL-----\nx\n-----END X509 CRL-----\n", "not usable"),
    ],
)
def test_what_is_no_list_is_told(
    tmp_path: Path, files: Certificates, content: str | None, words: str
) -> None:
    crl = tmp_path / "crl.pem"
    if content == "certificate":
        content = Path(files["ca.pem"]).read_text()
    if content is not None:
        crl.write_text(content)
    with pytest.raises(ConfigError, match=words) as caught:
        server_context(files.tls(client_ca=files["ca.pem"], client_crl=str(crl)))
    assert caught.value.path == "listeners.tls.client_crl"
