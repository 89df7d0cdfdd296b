"""Who asks, and whether they may: the one place where that is decided.

A viewer reads, an operator acts on sessions, messages and listeners too, an admin changes
everything. Scopes narrow what an API key may do below its role; they never widen it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias, final

import msgspec

from perdure.topic.matching import covers

Role: TypeAlias = Literal["viewer", "operator", "admin"]

_RANKS: Final[Mapping[str, int]] = {"viewer": 1, "operator": 2, "admin": 3}

EVERYTHING: Final = "*"
"""The scope that narrows nothing."""


@final
class Principal(msgspec.Struct, frozen=True):
    """Who asks.

    Attributes:
        name: of the user, the API key or the token.
        role: what it may do at most.
        scopes: operations (``sessions.kick``), resources (``sessions``) or ``*``; empty = ``*``.
        source: how it was recognised: ``socket``, ``token``, ``api_key``, ``session``.
        peer: address that it comes from; empty = this machine.
        topic_filters: it may publish to and read from topics of these only, and have nothing that
            names no topic; empty = all.
    """

    name: str
    role: Role
    scopes: tuple[str, ...] = ()
    source: str = ""
    peer: str = ""
    topic_filters: tuple[str, ...] = ()


def may(principal: Principal, right: Role, operation: str) -> bool:
    """Whether a principal may have an operation.

    Args:
        principal: who asks.
        right: the least role that may.
        operation: its name, ``resource.verb``.
    """
    if _RANKS[principal.role] < _RANKS[right]:
        return False
    scopes = principal.scopes
    return (
        not scopes
        or EVERYTHING in scopes
        or operation in scopes
        or operation.partition(".")[0] in scopes
    )


def what_is_missing(principal: Principal, right: Role, operation: str) -> str:
    """What somebody would need who may not have an operation, in a sentence.

    Args:
        principal, right, operation: see ``may``.
    """
    if _RANKS[principal.role] < _RANKS[right]:
        return f"this needs the role {right}"
    if not may(principal, right, operation):
        resource = operation.partition(".")[0]
        own = ", ".join(principal.scopes)
        return f"this needs the scope {resource} or {operation}; there is {own}"
    return f"there is a right to topics of {', '.join(principal.topic_filters)} only"


def may_touch(principal: Principal, topics: Sequence[str]) -> bool:
    """Whether all topics, or topic filters, that a request names are the principal's.

    Args:
        principal: who asks.
        topics: of the request; none = it names none.
    """
    own = principal.topic_filters
    if not own:
        return True
    return bool(topics) and all(any(covers(each, topic) for each in own) for topic in topics)
