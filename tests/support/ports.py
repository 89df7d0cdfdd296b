"""Ports for servers that tests start."""

from __future__ import annotations

import random
import socket
from typing import Final

_FIRST: Final = 10_000
_END: Final = 32_768
"""From here on systems give ports to outgoing connections and to those who ask for any."""

_chance: Final = random.SystemRandom()


def free_port() -> int:
    """A TCP port of the loopback address on which nobody listens, nor will by chance.

    A server may be started on it later, or be killed and started again: no other program on
    this machine is given such a port in between, and other tests hardly draw the same one.
    """
    while True:
        port = _chance.randrange(_FIRST, _END)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
