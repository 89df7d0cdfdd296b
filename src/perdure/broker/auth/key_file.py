"""The broker's own secret key, made at the first start and kept in a file of its own.

It must not know randomness (the fresh key is an argument).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from perdure.errors import ConfigError, StorageCorrupt
from perdure.files import replace_file

KEY_FILE: Final = "broker.key"
"""In the data directory: the secret behind answers for unknown users."""

KEY_BYTES: Final = 32

KEY_HINT: Final = (
    "put it back from a backup; or perdure storage repair puts it aside, and the next start makes "
    "a new one"
)


def load_or_create_key(path: Path, fresh: bytes) -> bytes:
    """Read a broker's own secret key, or keep ``fresh`` as the key from now on.

    Args:
        path: the key file, readable by its owner alone.
        fresh: 32 random bytes, used if there is no key yet.

    Raises:
        ConfigError: the file cannot be read or written.
        StorageCorrupt: it is not a key.
    """
    try:
        if not path.exists():
            # As a whole or not at all: a broker that finds half a key does not start.
            replace_file(path, fresh)
        key = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot use key file {path}: {error.strerror}") from error
    problem = wrong_size(len(key))
    if problem:
        raise StorageCorrupt(f"{path} is damaged: {problem}", hint=KEY_HINT)
    return key


def wrong_size(size: int) -> str:
    """Why a file of so many bytes is no key; empty = it may be one."""
    return "" if size == KEY_BYTES else f"it has {size} bytes, and a key has {KEY_BYTES}"
