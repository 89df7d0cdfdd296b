"""A token as a value, and its bounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

import msgspec

ID_BYTES: Final = 20
"""160 bits of chance: nobody guesses one, and two are never the same."""

IDENTITY_BYTES_MAX: Final = 255
CLIENT_ID_CHARS_MAX: Final = 255
RIGHTS_MAX: Final = 64
RIGHT_CHARS_MAX: Final = 1024

EXPIRY_MAX_S: Final = 0xFFFFFFFF
"""The last second that a token can hold: early in 2106."""


@final
class Token(msgspec.Struct, frozen=True):
    """One token.

    Attributes:
        id: ``ID_BYTES`` random bytes; whoever has them is ``identity``.
        identity: whose it is: a user name, 1 to ``IDENTITY_BYTES_MAX`` bytes of UTF-8.
        expires_at: Unix time from which on it does not hold, seconds, 1 to ``EXPIRY_MAX_S``.
        client_id: pattern that the client identifier must match (``*``, ``?``, ``[...]``);
            empty = any.
        rights: rules in the words of the ACL file (``read public/#``); empty = it says nothing.
    """

    id: bytes
    identity: str
    expires_at: int
    client_id: str = ""
    rights: tuple[str, ...] = ()

    def holds(self, now_s: int) -> bool:
        """Whether it has not expired."""
        return now_s < self.expires_at

    @property
    def is_plain(self) -> bool:
        """Whether it says no more than whose it is and until when."""
        return not self.client_id and not self.rights


@final
class Listed(msgspec.Struct, frozen=True):
    """A token in a list.

    Attributes:
        handle: its name, which cannot be presented: 64 hexadecimal digits.
        identity, expires_at, client_id, rights: see ``Token``.
    """

    handle: str
    identity: str
    expires_at: int
    client_id: str = ""
    rights: tuple[str, ...] = ()


def listed(handle: str, token: Token) -> Listed:
    """A token as lists show it."""
    return Listed(handle, token.identity, token.expires_at, token.client_id, token.rights)


def new_id(random_bytes: Callable[[int], bytes]) -> bytes:
    """A new identifier, by a source such as ``secrets.token_bytes``."""
    return random_bytes(ID_BYTES)


def show_id(token_id: bytes) -> str:
    """As it is presented: 40 hexadecimal digits."""
    return token_id.hex()


def parse_id(text: str) -> bytes | None:
    """The identifier that a text is; None = it is none."""
    if len(text) != 2 * ID_BYTES or not text.isascii() or not text.isalnum():
        return None
    try:
        return bytes.fromhex(text)
    except ValueError:
        return None


def check_token(token: Token, now_s: int) -> None:
    """Refuse what no store takes.

    Raises:
        ValueError: a part of it is out of bounds, or it has expired already.
    """
    if len(token.id) != ID_BYTES:
        raise ValueError(f"a token identifier has {ID_BYTES} bytes, not {len(token.id)}")
    size = len(token.identity.encode())
    if not 0 < size <= IDENTITY_BYTES_MAX:
        raise ValueError(f"an identity has 1 to {IDENTITY_BYTES_MAX} bytes, not {size}")
    if not now_s < token.expires_at <= EXPIRY_MAX_S:
        raise ValueError("a token expires in the future, in 2106 at the latest")
    if len(token.client_id) > CLIENT_ID_CHARS_MAX:
        raise ValueError(
            f"a client identifier pattern has at most {CLIENT_ID_CHARS_MAX} characters"
        )
    if len(token.rights) > RIGHTS_MAX:
        raise ValueError(f"a token has at most {RIGHTS_MAX} rights")
    if any(len(right) > RIGHT_CHARS_MAX for right in token.rights):
        raise ValueError(f"a right has at most {RIGHT_CHARS_MAX} characters")
