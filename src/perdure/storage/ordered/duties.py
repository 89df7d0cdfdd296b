"""Which member does what one of them has to do: all compute it alike, and little ever moves.

Rendezvous hashing: each member has a weight for each duty, and the heaviest has it. When a member
goes only its own duties move; when one comes it takes its share from all.

Two members that have not read as far as each other may both believe that they have a duty: a duty
done twice must be harmless, and what is submitted for it says what it has seen.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable


def owner_of(duty: str, names: Iterable[str]) -> str:
    """The member that has a duty; empty = there are no members.

    Args:
        duty: what is to be done, or a group's key.
        names: of all members.
    """
    return max(((_weight(duty, name), name) for name in names), default=(0, ""))[1]


def _weight(duty: str, name: str) -> int:
    # A length before the first part: no two pairs are the same bytes.
    raw = duty.encode()
    text = len(raw).to_bytes(4, "big") + raw + name.encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")
