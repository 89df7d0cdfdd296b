"""TLS contexts for listeners and for our own clients.

TLS 1.2 is the least. Certificates are read when a context is made; a reload makes a new context,
so a broken file leaves the running one in place.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.errors import ConfigError
from perdure.net.certificate import read_revoked

if TYPE_CHECKING:
    from perdure.net.settings import TlsSettings


def server_context(settings: TlsSettings, *, alpn: str = "mqtt") -> ssl.SSLContext:
    """The context of a listener.

    Args:
        settings: files and demands.
        alpn: protocol to agree on where the client offers it (``mqtt`` or ``http/1.1``).

    Raises:
        ConfigError: a file is missing, unreadable or not what it should be.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.set_alpn_protocols([alpn])
    _load_chain(context, settings.certificate, settings.private_key, path=settings.path)
    if settings.client_ca:
        _load_authorities(context, settings.client_ca, path=f"{settings.path}.client_ca")
        required = settings.require_client_certificate
        context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
        if settings.client_crl:
            _load_revoked(context, settings.client_crl, path=f"{settings.path}.client_crl")
    elif settings.require_client_certificate:
        raise ConfigError(
            "client certificates are required but no authority is named to check them",
            path=f"{settings.path}.client_ca",
            hint="name the PEM file of the authorities that sign client certificates",
        )
    return context


def client_context(
    *,
    cafile: str = "",
    certificate: str = "",
    private_key: str = "",
    insecure: bool = False,
    alpn: str = "",
) -> ssl.SSLContext:
    """The context of our own client.

    Args:
        cafile: PEM file of the only authorities to trust; the system's when empty.
        certificate: PEM file with the client's certificate chain, or empty.
        private_key: PEM file with its key; empty when the key is in ``certificate``.
        insecure: check the chain but not that the certificate is for this host.
        alpn: protocol to offer, or empty.

    Raises:
        ConfigError: a file is missing, unreadable or not what it should be.
    """
    # Not create_default_context: without its cafile that trusts the system's authorities as well.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = not insecure
    if cafile:
        _load_authorities(context, cafile, path="cafile")
    else:
        context.load_default_certs()
    if certificate:
        _load_chain(context, certificate, private_key or certificate, path="client")
    if alpn:
        context.set_alpn_protocols([alpn])
    return context


def certificate_subject(certificate: Mapping[str, object] | None) -> str | None:
    """The common name in what ``getpeercert`` returned, or ``None``."""
    if not certificate:
        return None
    names = certificate.get("subject")
    if not isinstance(names, tuple):
        return None
    for relative_name in names:
        for key, value in relative_name:
            if key == "commonName" and value:
                return str(value)
    return None


def _load_chain(context: ssl.SSLContext, certificate: str, private_key: str, *, path: str) -> None:
    _check_readable(certificate, path=f"{path}.certificate")
    _check_readable(private_key, path=f"{path}.private_key")
    try:
        # Without a password callback OpenSSL would ask at the terminal and block the broker.
        context.load_cert_chain(certificate, private_key, password=_no_password)
    except _EncryptedKey:
        raise ConfigError(
            f"the private key in {private_key} is encrypted",
            path=f"{path}.private_key",
            hint="decrypt it into a file that only the broker may read",
        ) from None
    except ssl.SSLError as exc:
        if "KEY_VALUES_MISMATCH" in str(exc):
            raise ConfigError(
                f"the private key in {private_key} does not belong to {certificate}",
                path=f"{path}.private_key",
            ) from exc
        raise ConfigError(
            f"{certificate} and {private_key} are not a usable PEM certificate and key: {exc}",
            path=f"{path}.certificate",
        ) from exc


def _load_authorities(context: ssl.SSLContext, file: str, *, path: str) -> None:
    _check_readable(file, path=path)
    try:
        context.load_verify_locations(cafile=file)
    except ssl.SSLError as exc:
        raise ConfigError(f"{file} holds no PEM certificate: {exc}", path=path) from exc


def _load_revoked(context: ssl.SSLContext, file: str, *, path: str) -> None:
    """Refuse what the lists of a file have revoked.

    Only the client's own certificate is looked up: an authority that is revoked is taken out of
    ``client_ca``, and a list of each authority above it would have to be there as well.
    """
    _check_readable(file, path=path)
    if b"-----BEGIN X509 CRL-----" not in Path(file).read_bytes():
        # OpenSSL takes a certificate for one, and then refuses every client.
        raise ConfigError(f"{file} holds no list of revoked certificates in PEM", path=path)
    try:
        context.load_verify_locations(cafile=file)
    except ssl.SSLError as exc:
        raise ConfigError(f"{file} is not usable: {exc}", path=path) from exc
    try:
        read_revoked(file)
    except ValueError as exc:
        raise ConfigError(f"{file} is not usable: {exc}", path=path) from exc
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def _check_readable(file: str, *, path: str) -> None:
    """Open ``file`` once, because OpenSSL's own errors do not name it."""
    try:
        with Path(file).open("rb"):
            pass
    except OSError as exc:
        raise ConfigError(f"cannot read {file}: {exc.strerror}", path=path) from exc


class _EncryptedKey(Exception):
    """OpenSSL asked for a password."""


def _no_password() -> str:
    raise _EncryptedKey
