"""What a child process is told at its start, as one line of JSON on its standard input."""

from __future__ import annotations

from typing import final

import msgspec

from perdure.config.schema import StorageConfig


@final
class WebSettings(msgspec.Struct, frozen=True):
    """Everything that an HTTP process needs to know.

    Attributes:
        data: data directory, absolute.
        token_file: absolute.
        sockets: descriptors of the listening sockets.
        version: release.
        reads_max: reads of the log at once.
        connections_max: connections at once.
        head_bytes_max: bytes of a request before its body.
        head_timeout_s, body_timeout_s, idle_timeout_s, send_timeout_s: deadlines, seconds.
        page_bytes: bytes of values after which a page of a read is sent.
        certificate, private_key: PEM files, absolute; empty = no TLS.
        proxies: addresses and networks of those that stand before us.
        login_store: a Redis URL, where logins are kept; empty = in the data directory.
        login_idle_s, login_total_s: how long a login holds, seconds.
        storage: where the log is, if that is a server; None = in the data directory.
        token_store, token_layout, token_prefix: of login tokens; empty = none are taken.
    """

    data: str
    token_file: str
    sockets: tuple[int, ...]
    version: str
    reads_max: int = 4
    connections_max: int = 512
    head_bytes_max: int = 16 * 1024
    head_timeout_s: float = 10
    body_timeout_s: float = 30
    idle_timeout_s: float = 30
    send_timeout_s: float = 60
    page_bytes: int = 8 * 1024 * 1024
    certificate: str = ""
    private_key: str = ""
    proxies: tuple[str, ...] = ()
    login_store: str = ""
    login_idle_s: int = 3_600
    login_total_s: int = 43_200
    storage: StorageConfig | None = None
    token_store: str = ""
    token_layout: str = "planned"  # noqa: S105 - the name of a layout
    token_prefix: str = ""
