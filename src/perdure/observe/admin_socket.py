"""Where a running broker is asked about itself: the socket in its data directory.

``server.admin`` answers there; the command line and the HTTP process ask.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

SOCKET_NAME: Final = "admin.sock"

SOCKET_PATH_BYTES_MAX: Final = 100
"""Unix socket addresses hold 104 to 108 bytes, a directory may have a longer name."""


@contextlib.contextmanager
def socket_address(directory: Path) -> Iterator[str]:
    """The address of the socket in a data directory, whatever the length of its path.

    A path that is too long for ``sun_path`` is reached through a descriptor of the directory.
    """
    path = directory / SOCKET_NAME
    if len(os.fsencode(path)) <= SOCKET_PATH_BYTES_MAX:
        yield str(path)
        return
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{SOCKET_NAME}"
    finally:
        os.close(descriptor)
