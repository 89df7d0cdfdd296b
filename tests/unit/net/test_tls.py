"""Contexts from files, and what is said about files that cannot be used."""

from __future__ import annotations

import ssl

import pytest

from perdure.errors import ConfigError
from perdure.net.tls import certificate_subject, client_context, server_context
from tests.unit.net.helpers import Certificates


def test_server_context_demands(certificates: Certificates) -> None:
    plain = server_context(certificates.tls())
    assert plain.minimum_version is ssl.TLSVersion.TLSv1_2
    assert plain.verify_mode is ssl.CERT_NONE
    optional = server_context(certificates.tls(client_ca=certificates["ca.pem"]))
    assert optional.verify_mode is ssl.CERT_OPTIONAL
    required = server_context(
        certificates.tls(client_ca=certificates["ca.pem"], require_client_certificate=True)
    )
    assert required.verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize(
    ("changes", "setting", "words"),
    [
        ({"certificate": "absent.pem"}, "certificate", "cannot read"),
        ({"private_key": "absent.key"}, "private_key", "cannot read"),
        ({"certificate": "rubbish.pem"}, "certificate", "not a usable PEM"),
        ({"private_key": "client.key"}, "private_key", "does not belong"),
        ({"certificate": "ca.pem", "private_key": "encrypted.key"}, "private_key", "encrypted"),
        ({"client_ca": "absent.pem"}, "client_ca", "cannot read"),
        ({"client_ca": "rubbish.pem"}, "client_ca", "no PEM certificate"),
    ],
)
def test_bad_files_name_the_setting(
    certificates: Certificates, changes: dict[str, str], setting: str, words: str
) -> None:
    files = {name: certificates[file] for name, file in changes.items()}
    with pytest.raises(ConfigError) as failure:
        server_context(certificates.tls(**files))
    assert failure.value.path == f"listeners.tls.{setting}"
    assert words in failure.value.message


def test_required_certificates_need_an_authority(certificates: Certificates) -> None:
    with pytest.raises(ConfigError) as failure:
        server_context(certificates.tls(require_client_certificate=True))
    assert failure.value.path == "listeners.tls.client_ca"


def test_who_names_authorities_trusts_no_others(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", certificates["other-ca.pem"])
    names = [
        [each["subject"] for each in context.get_ca_certs()]
        for context in (client_context(), client_context(cafile=certificates["ca.pem"]))
    ]
    assert names == [
        [((("commonName", "Another authority"),),)],
        [((("commonName", "Test authority"),),)],
    ]


def test_client_context_demands(certificates: Certificates) -> None:
    strict = client_context(cafile=certificates["ca.pem"])
    assert strict.check_hostname
    assert strict.verify_mode is ssl.CERT_REQUIRED
    loose = client_context(cafile=certificates["ca.pem"], insecure=True)
    assert not loose.check_hostname
    assert loose.verify_mode is ssl.CERT_REQUIRED
    with pytest.raises(ConfigError):
        client_context(cafile=certificates["rubbish.pem"])
    with pytest.raises(ConfigError):
        client_context(certificate=certificates["client.pem"], private_key="absent.key")


@pytest.mark.parametrize(
    ("certificate", "expected"),
    [
        (None, None),
        ({}, None),
        ({"subject": ((("organizationName", "x"),),)}, None),
        ({"subject": ((("organizationName", "x"),), (("commonName", "s-1"),))}, "s-1"),
        ({"subject": ((("commonName", ""),),)}, None),
        ({"subject": "odd"}, None),
    ],
)
def test_common_name(certificate: dict[str, object] | None, expected: str | None) -> None:
    assert certificate_subject(certificate) == expected
