"""Where clients connect: the section `listeners`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, final

import msgspec

from perdure.config.fields import about
from perdure.config.listener_kinds import LISTENER_KINDS
from perdure.config.schema.section import Section


@final
class Listener(Section, frozen=True):
    """One listening address. `tcp`, `tls`, `ws` and `wss` each take one of these or a list."""

    enabled: Annotated[bool, about("Whether this listener is opened.")] = True
    bind: Annotated[
        str,
        about(
            "`host:port` to listen on; the default port is 1883 (tcp), 8883 (tls), 8083 (ws) or "
            "8084 (wss). Port 0 lets the system choose.",
            unit="address",
        ),
    ] = "127.0.0.1:1883"
    connections_max: Annotated[
        int, about("Connections that this listener holds at once.", ge=1)
    ] = 100_000
    connections_per_ip_max: Annotated[
        int,
        about("In place of the one in `limits` for connections here; -1 = that one.", ge=-1),
    ] = -1
    connect_rate: Annotated[
        int, about("In place of the one in `limits`; -1 = that one.", ge=-1)
    ] = -1
    publish_rate: Annotated[
        int, about("In place of the one in `limits` for clients here; -1 = that one.", ge=-1)
    ] = -1
    publish_bytes_rate: Annotated[
        int,
        about(
            "In place of the one in `limits` for clients here; -1 = that one.",
            ge=-1,
        ),
    ] = -1
    subscribe_rate: Annotated[
        int, about("In place of the one in `limits` for clients here; -1 = that one.", ge=-1)
    ] = -1
    durability: Annotated[
        Literal["", "memory", "os", "fsync"],
        about("Durability for what arrives here; empty means `storage.durability`."),
    ] = ""
    auth_chain: Annotated[
        tuple[str, ...],
        about("In place of `auth.chain` for clients here; empty = that one."),
    ] = ()
    proxy_protocol: Annotated[
        bool, about("Expect a PROXY protocol header (v1 or v2) before the first packet.")
    ] = False
    backlog: Annotated[
        int,
        about(
            "Connections that the kernel holds until they are accepted; no more than "
            "`net.core.somaxconn`.",
            ge=1,
        ),
    ] = 4096
    path: Annotated[str, about("HTTP path of the WebSocket (ws, wss).")] = "/mqtt"
    origins: Annotated[
        tuple[str, ...],
        about(
            "Web pages that may open a WebSocket (ws, wss), such as `https://app.example`; others "
            "are refused with HTTP 403. Empty = all pages. Only browsers send an origin: a client "
            "without one is let in."
        ),
    ] = ()
    certificate: Annotated[
        str, about("PEM file with the certificate chain (tls, wss; required there).", unit="path")
    ] = ""
    private_key: Annotated[
        str, about("PEM file with the private key (tls, wss; required there).", unit="path")
    ] = ""
    client_ca: Annotated[
        str,
        about("PEM file with the authorities that client certificates come from.", unit="path"),
    ] = ""
    client_crl: Annotated[
        str,
        about(
            "PEM file with the certificates that these authorities have revoked, a list of each; "
            "SIGHUP reads it again, and disconnects who has one of them (0x87). Where a list has "
            "run out, no client certificate is accepted. Empty = none is asked for.",
            unit="path",
        ),
    ] = ""
    require_client_certificate: Annotated[
        bool, about("Refuse a client without a valid certificate; needs `client_ca`.")
    ] = False
    username_from_certificate: Annotated[
        bool, about("Take the common name of the client certificate as the user name.")
    ] = False


if TYPE_CHECKING:

    class _Kinds(Section, frozen=True):
        """A field for each kind in ``LISTENER_KINDS``."""

        def __init__(self, **kinds: tuple[Listener, ...]) -> None: ...

        def __getattr__(self, name: str) -> tuple[Listener, ...]: ...

else:
    _Kinds = msgspec.defstruct(
        "_Kinds",
        [
            (name, tuple[Listener, ...], (Listener(),) if name == "tcp" else ())
            for name in LISTENER_KINDS
        ],
        bases=(Section,),
        frozen=True,
        kw_only=True,
    )


@final
class ListenersConfig(_Kinds, frozen=True):
    """Where clients connect. Without any setting: TCP on localhost, port 1883."""
