"""What is known of a node. Apart from ``members``, which is compiled."""

from __future__ import annotations

import msgspec


class Member(msgspec.Struct, array_like=True, frozen=True):
    """What is known of a node.

    Attributes:
        name: its name.
        incarnation: of its process; 0 = it is no member.
        number: of its last record.
        heard_us: log time of its last record.
        joined_us: log time of its first one.
        format: newest version of records that it reads.
        former: its earlier incarnations, the latest last.
        left_us: log time at which it was a member last; 0 = it is one.
        reason: why it is none (``Ending``).
        advertise: where clients reach it; empty = it does not say.
    """

    name: str
    incarnation: int
    number: int
    heard_us: int
    joined_us: int
    format: int
    former: tuple[int, ...] = ()
    left_us: int = 0
    reason: str = ""
    advertise: str = ""
