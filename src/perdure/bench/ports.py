"""Ports for servers that are started a little later, and perhaps again."""

from __future__ import annotations

import collections
import random
import socket
from typing import Final

_FROM: Final = 10_000
_END: Final = 32_768
"""From here on systems give ports to outgoing connections and to those who ask for any."""

_KEPT: Final = 200

_chance: Final = random.SystemRandom()
_kept: Final[collections.deque[socket.socket]] = collections.deque(maxlen=_KEPT)
"""Bound to the ports that were given last, so that no other process is given them."""


def free_port() -> int:
    """A TCP port of the loopback address on which nobody listens, nor will by chance.

    A server may be started on it later, or be killed and started again: no other program on
    this machine is given such a port in between, and nobody else draws it while this process
    keeps it. A server that may take the address of one that has just ended may listen there.
    """
    while True:
        port = _chance.randrange(_FROM, _END)
        kept = socket.socket()
        try:
            # Taken by whoever drew it, or by a server. A socket that may share would not tell.
            kept.bind(("127.0.0.1", port))
        except OSError:
            kept.close()
            continue
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if len(_kept) == _kept.maxlen:
            _kept[0].close()
        _kept.append(kept)
        return port
