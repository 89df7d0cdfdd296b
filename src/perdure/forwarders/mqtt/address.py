"""``mqtt://user:password@host:1883``: where the other broker is, and as whom we come."""

from __future__ import annotations

import ssl
from typing import Final, NamedTuple, final
from urllib.parse import unquote, urlsplit

from perdure.config.schema import MqttForwarderConfig
from perdure.errors import ConfigError
from perdure.net.client_link import Endpoint

_PORTS: Final = {"mqtt": 1883, "mqtts": 8883, "ws": 80, "wss": 443}


@final
class Address(NamedTuple):
    """A parsed URL.

    Attributes:
        endpoint: where.
        username, password: as whom; None = nobody.
    """

    endpoint: Endpoint
    username: str | None
    password: bytes | None


def parse_address(settings: MqttForwarderConfig, setting: str) -> Address:
    """Where a bridge connects to.

    Raises:
        ConfigError: the URL or a certificate cannot be used.
    """
    path = f"{setting}.url"
    try:
        parts = urlsplit(settings.url)
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"{error}", path=path) from None
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ConfigError(
            "no URL of a broker", path=path, hint="such as mqtt://user:password@host:1883"
        )
    secure = parts.scheme in ("mqtts", "wss")
    endpoint = Endpoint(
        host=parts.hostname,
        port=_PORTS[parts.scheme] if port is None else port,
        transport="ws" if parts.scheme.startswith("ws") else "tcp",
        path=parts.path or "/mqtt",
        tls=_tls(settings, setting) if secure else None,
    )
    username = unquote(parts.username) if parts.username is not None else None
    password = unquote(parts.password).encode() if parts.password is not None else None
    return Address(endpoint, username, password)


def _tls(settings: MqttForwarderConfig, setting: str) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=settings.ca_file or None)
        if settings.certificate:
            context.load_cert_chain(settings.certificate, settings.private_key or None)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"the certificates cannot be used: {error}", path=setting) from None
    return context
