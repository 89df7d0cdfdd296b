"""Names of tokens that lists show: who has one can revoke its token, and cannot present it.

A server keeps the tokens themselves, so a name is the token under a key that the server keeps as
well: a MAC of it, and the token covered by a stream made of that MAC (a synthetic IV, as in
RFC 5297). Pure.
"""

from __future__ import annotations

import hmac
from typing import Final

from perdure.tokens.token import ID_BYTES

KEY_BYTES: Final = 32
_MAC_BYTES: Final = 12


def seal(key: bytes, token_id: bytes) -> str:
    """The name of a token."""
    mac = _mac(key, token_id)
    return (mac + _cover(key, mac, token_id)).hex()


def unseal(key: bytes, handle: str) -> bytes | None:
    """The token of a name; None = it is none."""
    try:
        raw = bytes.fromhex(handle)
    except ValueError:
        return None
    if len(raw) != _MAC_BYTES + ID_BYTES:
        return None
    mac = raw[:_MAC_BYTES]
    token_id = _cover(key, mac, raw[_MAC_BYTES:])
    return token_id if hmac.compare_digest(mac, _mac(key, token_id)) else None


def _mac(key: bytes, token_id: bytes) -> bytes:
    return hmac.digest(key, b"name" + token_id, "sha256")[:_MAC_BYTES]


def _cover(key: bytes, mac: bytes, data: bytes) -> bytes:
    stream = hmac.digest(key, b"cover" + mac, "sha256")
    return bytes(a ^ b for a, b in zip(data, stream, strict=False))
