"""What one listener needs to know, gathered from the configuration's sections.

Holds values only: no socket is opened and no file is read here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from perdure.config.listener_kinds import LISTENER_KINDS
from perdure.config.schema import Listener as ListenerConfig
from perdure.config.schema import MqttConfig, SessionConfig
from perdure.errors import ConfigError

FRAME_HEADROOM_BYTES: Final = 5
"""Largest fixed header of a packet: a WebSocket message must hold it besides the body."""


@final
@dataclass(frozen=True, slots=True)
class TlsSettings:
    """Files and demands of one TLS listener; ``path`` names it in error messages."""

    certificate: str
    private_key: str
    client_ca: str = ""
    require_client_certificate: bool = False
    path: str = "listeners.tls"
    client_crl: str = ""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSettings:
    """One listening address and how its connections are treated."""

    name: str
    kind: str
    host: str
    port: int
    backlog: int = 4096
    connections_max: int = 100_000
    connections_per_ip_max: int = -1
    """In place of the broker's own bound; -1 = that one."""
    connect_rate: int = -1
    """In place of the broker's own rate; -1 = that one."""
    proxy_protocol: bool = False
    path: str = "/mqtt"
    message_bytes_max: int = 16 * 1024 * 1024 + FRAME_HEADROOM_BYTES
    """Largest WebSocket message."""
    origins: tuple[str, ...] | None = None
    """Web origins that may open a WebSocket; ``None`` = any."""
    tls: TlsSettings | None = None
    write_high_bytes: int = 1024 * 1024
    write_low_bytes: int = 256 * 1024
    handshake_timeout_s: float = 10.0
    """Time for a PROXY header, a TLS handshake or a WebSocket upgrade, each."""
    close_timeout_s: float = 5.0
    """Time in which a closing connection must have flushed and seen the peer's end."""

    @property
    def setting(self) -> str:
        """The path of this listener in the configuration."""
        return f"listeners.{self.kind}"


def split_bind(bind: str, default_port: int, *, path: str) -> tuple[str, int]:
    """Split ``host:port``, ``[v6]:port``, ``:port`` or ``host`` into host and port.

    An empty host or ``*`` means every address of the machine, and is returned as ``""``.

    Raises:
        ConfigError: the text is no address; ``path`` names the setting.
    """
    hint = "write host:port, [ipv6]:port or :port"
    host, port_text = bind, ""
    if bind.startswith("["):
        host, bracket, rest = bind[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ConfigError(f"{bind!r} is not an address", path=path, hint=hint)
        port_text = rest[1:]
    elif bind.count(":") == 1:
        host, _, port_text = bind.partition(":")
    if not port_text:
        port = default_port
    elif port_text.isascii() and port_text.isdigit() and int(port_text) <= 65_535:
        port = int(port_text)
    else:
        raise ConfigError(f"{bind!r} has no valid port", path=path, hint=hint)
    return ("" if host == "*" else host), port


def listener_settings(
    kind: str,
    config: ListenerConfig,
    *,
    mqtt: MqttConfig,
    session: SessionConfig,
    name: str = "",
) -> ListenerSettings:
    """Settings of one listener from its configuration.

    Args:
        kind: which list of ``listeners`` it stands in.
        config: its own section.
        mqtt: for the packet size and the connect timeout.
        session: for the outbound buffer.
        name: unique name; the kind and the address when empty.

    Raises:
        ConfigError: the address is unusable, or a TLS listener has no certificate.
    """
    path = f"listeners.{kind}"
    host, port = split_bind(config.bind, LISTENER_KINDS[kind].port, path=f"{path}.bind")
    tls: TlsSettings | None = None
    if LISTENER_KINDS[kind].is_tls:
        for field, value in (
            ("certificate", config.certificate),
            ("private_key", config.private_key),
        ):
            if not value:
                raise ConfigError(f"a {kind} listener needs a {field}", path=f"{path}.{field}")
        tls = TlsSettings(
            certificate=config.certificate,
            private_key=config.private_key,
            client_ca=config.client_ca,
            require_client_certificate=config.require_client_certificate,
            path=path,
            client_crl=config.client_crl,
        )
    return ListenerSettings(
        name=name or f"{kind}:{config.bind}",
        kind=kind,
        host=host,
        port=port,
        backlog=config.backlog,
        connections_max=config.connections_max,
        connections_per_ip_max=config.connections_per_ip_max,
        connect_rate=config.connect_rate,
        proxy_protocol=config.proxy_protocol,
        path=config.path,
        origins=config.origins or None,
        message_bytes_max=mqtt.packet_size_max + FRAME_HEADROOM_BYTES,
        tls=tls,
        write_high_bytes=session.outbound_buffer_bytes,
        write_low_bytes=session.outbound_buffer_bytes // 4,
        handshake_timeout_s=mqtt.connect_timeout_ms / 1000,
    )
