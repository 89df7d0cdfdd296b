"""Nodes of a cluster that do not end as they should: sent out, and forgotten."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias, final

import msgspec
from msgspec import Meta

from perdure.admin.operation import Http, Operation, Request

NodeName: TypeAlias = Annotated[str, Meta(min_length=1, max_length=255)]


@final
class Membership(msgspec.Struct, frozen=True, kw_only=True):
    """What the log says of a node.

    Attributes:
        name: of the node.
        state: ``running``, why it is no member (``left``, ``expelled`` and the like), or
            ``forgotten``.
        since: log time since which it is so; null = it is forgotten.
        silent_s: how long nothing was heard of it, by the log's time; 0 = it is no member.
    """

    name: str
    state: str
    since: str | None = None
    silent_s: float = 0.0


class ExpelNode(Request[Membership], frozen=True, kw_only=True):
    """End the membership of a node: others take over what it holds. If it lives it comes back.

    Attributes:
        force: also if it was heard within ``cluster.dead_after``.
    """

    name: NodeName
    force: bool = False


class ForgetNode(Request[Membership], frozen=True, kw_only=True):
    """Remove what is known of a node that will not come back.

    Attributes:
        force: also if it is a member; it is expelled then.
    """

    name: NodeName
    force: bool = False


OPERATIONS: Final = (
    Operation(
        name="nodes.expel",
        summary="End the membership of a node",
        request=ExpelNode,
        result=Membership,
        right="admin",
        changes=True,
        http=Http("POST", "/nodes/{name}:expel"),
        target="name",
    ),
    Operation(
        name="nodes.forget",
        summary="Forget a node that will not come back",
        request=ForgetNode,
        result=Membership,
        right="admin",
        changes=True,
        http=Http("POST", "/nodes/{name}:forget"),
        target="name",
    ),
)
