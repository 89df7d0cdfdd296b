"""Names that clients state, as tables remember them that bound how many they hold.

A user name or a client identifier may have 65,535 bytes, and is stated by anybody: twenty thousand
of them would be more than a gigabyte.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

NAME_LENGTH_MAX: Final = 256
"""Characters; what is longer is remembered by its beginning and its digest."""
_SHOWN: Final = 64


def remembered(name: str) -> str:
    """A name, or what stands for a long one: always the same."""
    if len(name) <= NAME_LENGTH_MAX:
        return name
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return f"{name[:_SHOWN]}\N{HORIZONTAL ELLIPSIS}{digest}"
