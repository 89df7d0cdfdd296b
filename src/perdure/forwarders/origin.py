"""Who a broker is to others: what its bridges and writers are named after."""

from __future__ import annotations

import hashlib
import secrets
from pathlib import Path
from typing import Final

from perdure.broker.auth.key_file import KEY_BYTES, KEY_HINT, load_or_create_key
from perdure.config.schema import Config
from perdure.errors import StorageCorrupt
from perdure.storage.directory_record import is_noted

ORIGIN_FILE: Final = "origin.key"
"""In the data directory: what this broker's identity is made of."""


def origin_of(config: Config) -> str:
    """The identity, which is made with its file if there is none.

    Raises:
        ConfigError: the file cannot be used.
        StorageCorrupt: it is damaged, or gone.
    """
    key = secrets.token_bytes(KEY_BYTES)
    if config.storage.traits.is_kept:
        path = Path(config.storage.path) / ORIGIN_FILE
        if not path.exists() and is_noted(path.parent, ORIGIN_FILE):
            raise StorageCorrupt(f"{path} is gone", hint=KEY_HINT)
        key = load_or_create_key(path, key)
    if config.cluster.kafka:
        key = config.cluster.name.encode()  # its nodes are one broker to others
    return hashlib.blake2b(key, digest_size=8).hexdigest()
