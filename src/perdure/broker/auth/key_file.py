"""The broker's own secret key, made at the first start and kept in a file of its own.

It must not know randomness (the fresh key is an argument).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from perdure.errors import ConfigError
from perdure.files import replace_file

KEY_BYTES: Final = 32


def load_or_create_key(path: Path, fresh: bytes) -> bytes:
    """Read a broker's own secret key, or keep ``fresh`` as the key from now on.

    Args:
        path: the key file, readable by its owner alone.
        fresh: 32 random bytes, used if there is no key yet.

    Raises:
        ConfigError: the file cannot be read or written, or is not a key.
    """
    try:
        if not path.exists():
            # As a whole or not at all: a broker that finds half a key does not start.
            replace_file(path, fresh)
        key = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot use key file {path}: {error.strerror}") from error
    if len(key) != KEY_BYTES:
        raise ConfigError(f"key file {path} is damaged", hint="delete it; a new one is made")
    return key
