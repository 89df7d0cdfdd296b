"""From when until when a certificate holds."""

from __future__ import annotations

import datetime as dt
import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from perdure.net.certificate import validity


def pem(since: dt.datetime, until: dt.datetime, *, name: str = "x") -> str:
    """A certificate signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(since)
        .not_valid_after(until)
        .sign(key, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM).decode()


@pytest.mark.parametrize("name", ["x", "x" * 64])
@pytest.mark.parametrize(
    ("since", "until"),
    [
        ("2020-01-01T00:00:00", "2021-06-30T23:59:59"),
        ("1950-01-01T00:00:00", "2049-12-31T23:59:59"),
        # From 2050 on times are written with four digits of the year.
        ("2049-12-31T23:59:59", "2050-01-01T00:00:00"),
        ("2026-01-01T00:00:00", "9999-12-31T23:59:59"),
    ],
)
def test_validity(since: str, until: str, name: str) -> None:
    bounds = [dt.datetime.fromisoformat(each).replace(tzinfo=dt.UTC) for each in (since, until)]
    text = pem(*bounds, name=name)
    assert list(validity("# a comment\n" + text + pem(*bounds))) == bounds


def test_what_is_no_certificate() -> None:
    now = dt.datetime.now(dt.UTC)
    der = ssl.PEM_cert_to_DER_cert(pem(now, now))
    for cut in (0, 1, 4, 20, 60, len(der) - 1):
        with pytest.raises(ValueError, match=r"cut off|type"):
            validity(ssl.DER_cert_to_PEM_cert(der[:cut]))
    for text in ("", "no certificate", "-----BEGIN CERTIFICATE-----\n"):
        with pytest.raises(ValueError, match="no certificate"):
            validity(text)
