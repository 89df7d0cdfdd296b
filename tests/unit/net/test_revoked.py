"""Client certificates that their authority has revoked."""

from __future__ import annotations

import asyncio
import datetime as dt
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from perdure.errors import ConfigError
from perdure.net.certificate import name_of, revoked
from perdure.net.tls import client_context, server_context
from tests.unit.net.helpers import Bench, Certificates, Issuer, issue


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


def test_lists_and_certificates_are_read_as_the_library_reads_them(
    tmp_path: Path, authority: Issuer
) -> None:
    crl = tmp_path / "crl.pem"
    made = [issue(tmp_path, f"c{number}", "c", authority)[0] for number in range(3)]
    revoke(crl, authority)
    assert revoked(crl.read_text()) == frozenset()
    revoke(crl, authority, *made[:2])
    names = [name_of(each.public_bytes(serialization.Encoding.DER)) for each in made]
    assert revoked(crl.read_text()) == frozenset(names[:2])
    assert names[0] == (
        authority[0].subject.public_bytes(),
        made[0].serial_number.to_bytes((made[0].serial_number.bit_length() + 8) // 8, "big"),
    )
    other = issue(tmp_path, "other", "Another authority")
    revoke(tmp_path / "second", other, made[2])
    both = revoked(crl.read_text() + (tmp_path / "second").read_text())
    assert len(both) == 3
    assert names[2] not in both
    with pytest.raises(ValueError, match="cut off"):
        name_of(made[0].public_bytes(serialization.Encoding.DER)[:-200])


async def test_who_is_connected_when_its_certificate_is_revoked(
    bench: Bench, tmp_path: Path, authority: Issuer, files: Certificates
) -> None:
    issue(tmp_path, "good", "good", authority)
    gone, _ = issue(tmp_path, "gone", "gone", authority)
    crl = tmp_path / "crl.pem"
    revoke(crl, authority)
    listener = bench.listen("tls", tls=files.tls(client_ca=files["ca.pem"], client_crl=str(crl)))
    writers = []
    for name in ("good", "gone", ""):
        context = client_context(
            cafile=files["ca.pem"],
            certificate=name and files[f"{name}.pem"],
            private_key=name and files[f"{name}.key"],
        )
        _, writer = await asyncio.open_connection(
            "127.0.0.1", listener.port, ssl=context, server_hostname="localhost"
        )
        writers.append(writer)
        await bench.connection(len(writers) - 1)
    revoke(crl, authority, gone)
    listener.reload_tls()
    closed = next(each for each in bench.connections if each.peer.certificate_subject == "gone")
    await closed.until(lambda connection: connection.lost)
    assert closed.reason_codes == [0x87]
    assert not any(each.lost for each in bench.connections if each is not closed)
    for writer in writers:
        writer.close()
