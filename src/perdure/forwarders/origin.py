"""Who a broker is to others: what its bridges and writers are named after."""

from __future__ import annotations

import hashlib
import secrets
from pathlib import Path
from typing import Final

from perdure.broker.auth.key_file import KEY_BYTES, load_or_create_key
from perdure.config.schema import Config

ORIGIN_FILE: Final = "origin.key"
"""In the data directory: what this broker's identity is made of."""


def origin_of(config: Config) -> str:
    """The identity, which is made with its file if there is none.

    Raises:
        ConfigError: the file cannot be used.
        StorageCorrupt: it is damaged.
    """
    key = secrets.token_bytes(KEY_BYTES)
    if config.storage.traits.is_kept:
        key = load_or_create_key(Path(config.storage.path) / ORIGIN_FILE, key)
    if config.cluster.kafka:
        key = config.cluster.name.encode()  # its nodes are one broker to others
    return hashlib.blake2b(key, digest_size=8).hexdigest()
