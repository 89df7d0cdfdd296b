"""Tokens in the forms that the layouts keep, and back. Pure.

The seed's JSON and MessagePack have its own members (``identity_id``, ``expires_at``; ``i``, ``x``)
and a number where the identity is one. ``pack_short`` is the form of ``planned``::

    expires_at (4 bytes)  1  identity as a number, big-endian, 1 to 8 bytes
    expires_at (4 bytes)  2  identity, UTF-8
    expires_at (4 bytes)  3  MessagePack [identity, client_id, rights]
"""

from __future__ import annotations

import struct
from typing import Any, Final

import msgspec

from perdure.errors import StorageCorrupt
from perdure.tokens.token import Token

_EXPIRY: Final = struct.Struct(">I")
_HEAD: Final = _EXPIRY.size + 1
_NUMBER: Final = 1
_TEXT: Final = 2
_WHOLE: Final = 3
LONG: Final = 4
"""The value stands for one that is kept elsewhere."""

_DIGITS_MAX: Final = 19


def _number(identity: str) -> int:
    """The number below 2**63 that an identity is, written as ``str`` writes it; -1 = none."""
    if len(identity) > _DIGITS_MAX or not identity.isascii() or not identity.isdigit():
        return -1
    number = int(identity)
    return number if str(number) == identity and number < 1 << 63 else -1


def pack_short(token: Token) -> bytes:
    """The form of ``planned``."""
    head = _EXPIRY.pack(token.expires_at)
    if not token.is_plain:
        whole = (token.identity, token.client_id, token.rights)
        return head + bytes((_WHOLE,)) + msgspec.msgpack.encode(whole)
    number = _number(token.identity)
    if number < 0:
        return head + bytes((_TEXT,)) + token.identity.encode()
    size = max(1, (number.bit_length() + 7) // 8)
    return head + bytes((_NUMBER,)) + number.to_bytes(size, "big")


def pack_stub(token: Token) -> bytes:
    """What stands in ``planned`` for a value that is kept elsewhere."""
    return _EXPIRY.pack(token.expires_at) + bytes((LONG,))


def is_stub(data: bytes) -> bool:
    """Whether a value is such a one."""
    return len(data) == _HEAD and data[-1] == LONG


def expiry_of(data: bytes) -> int:
    """``expires_at`` of what ``pack_short`` or ``pack_stub`` made."""
    if len(data) < _HEAD:
        raise StorageCorrupt("a value of a token is too short")
    found: int = _EXPIRY.unpack_from(data)[0]
    return found


def unpack_short(token_id: bytes, data: bytes) -> Token:
    """The token that ``pack_short`` made a value of.

    Raises:
        StorageCorrupt: it is no such value.
    """
    expires_at = expiry_of(data)
    kind, body = data[_HEAD - 1], data[_HEAD:]
    try:
        if kind == _NUMBER and body:
            return Token(token_id, str(int.from_bytes(body, "big")), expires_at)
        if kind == _TEXT:
            return Token(token_id, body.decode(), expires_at)
        if kind == _WHOLE:
            identity, client_id, rights = msgspec.msgpack.decode(
                body, type=tuple[str, str, tuple[str, ...]]
            )
            return Token(token_id, identity, expires_at, client_id, rights)
    except (UnicodeDecodeError, msgspec.MsgspecError) as error:
        raise StorageCorrupt(f"a value of a token cannot be read: {error}") from None
    raise StorageCorrupt(f"a value of a token is of an unknown kind: {kind}")


def fields(token: Token, names: tuple[str, str, str, str]) -> dict[str, Any]:
    """The members of a token by the names of a layout: those that are empty are left out."""
    identity, expires_at, client_id, rights = names
    number = _number(token.identity)
    found: dict[str, Any] = {
        identity: token.identity if number < 0 else number,
        expires_at: token.expires_at,
    }
    if token.client_id:
        found[client_id] = token.client_id
    if token.rights:
        found[rights] = list(token.rights)
    return found


def of_fields(token_id: bytes, found: object, names: tuple[str, str, str, str]) -> Token:
    """The token that ``fields`` took apart.

    Raises:
        StorageCorrupt: members are missing, or of another kind.
    """
    identity, expires_at, client_id, rights = names
    try:
        if not isinstance(found, dict):
            raise TypeError("not an object")
        return Token(
            token_id,
            str(found[identity]),
            int(found[expires_at]),
            str(found.get(client_id, "")),
            tuple(map(str, found.get(rights, ()))),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise StorageCorrupt(f"a value of a token cannot be read: {error!r}") from None
