"""The kinds of listeners: a line for each, read by everyone who has to tell one from another.

A new one is a module with a shell (``perdure.net.shell.Shell``, a subclass of
``perdure.net.transport_shell.TransportShell`` as a rule) and a line here. Its settings are those
of every listener (``config/schema/listeners.py``), below ``listeners.<name>``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

import msgspec


@final
class ListenerKind(msgspec.Struct, frozen=True, kw_only=True):
    """What others must know of a kind of listener.

    Attributes:
        opens: ``module:name`` of what carries bytes between socket and connection.
        port: where ``bind`` names none.
        is_tls: connections are encrypted below the shell.
        is_web: clients come with an HTTP request: ``path`` and ``origins`` are theirs.
        alpn: the protocol that TLS agrees on where the client offers it.
    """

    opens: str
    port: int
    is_tls: bool = False
    is_web: bool = False
    alpn: str = "mqtt"


LISTENER_KINDS: Final[Mapping[str, ListenerKind]] = {
    "tcp": ListenerKind(opens="perdure.net.tcp:TcpShell", port=1883),
    "tls": ListenerKind(opens="perdure.net.tcp:TcpShell", port=8883, is_tls=True),
    "ws": ListenerKind(opens="perdure.net.websocket:WebSocketShell", port=8083, is_web=True),
    "wss": ListenerKind(
        opens="perdure.net.websocket:WebSocketShell",
        port=8084,
        is_tls=True,
        is_web=True,
        alpn="http/1.1",
    ),
}
"""By the name below ``listeners``."""
