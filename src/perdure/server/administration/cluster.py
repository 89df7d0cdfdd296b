"""Operations on the members of a cluster: what is decided is the log's, so each waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final, final

from perdure.admin.operation import Request
from perdure.admin.problems import Refused
from perdure.admin.records.cluster import ExpelNode, ForgetNode, Membership
from perdure.config.units import format_time
from perdure.server.administration.service import Call, Handler
from perdure.storage.ordered.member import Member
from perdure.storage.ordered.record import ANYHOW, Expel, Forget
from perdure.storage.ordered.replica import Replica

WAIT_S: Final = 5.0
"""How long the log may take to give back what was decided."""

LOOK_S: Final = 0.02


@final
class ClusterOperations:
    """Answers what is asked of the members.

    Args:
        replica: this node's end of the log; None = it is no node of a cluster.
        dead_after_s: silence after which members expel one another.
    """

    def __init__(self, replica: Replica | None, dead_after_s: float) -> None:
        self._replica = replica
        self._dead_after_s = dead_after_s

    def handlers(self) -> Mapping[type[Request[Any]], Handler]:
        """By request."""
        return {ExpelNode: self.expel, ForgetNode: self.forget}

    async def expel(self, request: ExpelNode, call: Call) -> Membership:
        """End a membership."""
        replica, member = self._find(request.name)
        call.before = self._row(replica, member)
        if not member.incarnation:
            raise Refused("conflict", f"{member.name} is no member: {member.reason}")
        self._refuse_if_fresh(replica, member, force=request.force)
        heard = ANYHOW if request.force else member.number
        await self._submit(replica, Expel(member.name, member.incarnation, heard))
        if replica.members.holds(member.name, member.incarnation):
            raise Refused(
                "conflict", f"{member.name} was heard of meanwhile", hint="see cluster status"
            )
        call.after = found = self._row(replica, self._find(request.name)[1])
        return found

    async def forget(self, request: ForgetNode, call: Call) -> Membership:
        """Remove what is known of a node."""
        replica, member = self._find(request.name)
        call.before = self._row(replica, member)
        acts: tuple[Expel | Forget, ...] = (Forget(member.name),)
        if member.incarnation:
            self._refuse_if_fresh(replica, member, force=request.force)
            heard = ANYHOW if request.force else member.number
            acts = (Expel(member.name, member.incarnation, heard), *acts)
        await self._submit(replica, *acts)
        found = replica.members.get(member.name)
        if found is not None:
            raise Refused(
                "conflict", f"{member.name} was heard of meanwhile", hint="see cluster status"
            )
        call.after = gone = Membership(name=member.name, state="forgotten")
        return gone

    def _find(self, name: str) -> tuple[Replica, Member]:
        replica = self._replica
        if replica is None:
            raise Refused(
                "not_available", "this broker is no node of a cluster", hint="set cluster.kafka"
            )
        if name == replica.peers.node:
            raise Refused(
                "conflict", f"{name} is the node that was asked", hint="ask another, or stop it"
            )
        member = replica.members.get(name)
        if member is None:
            known = ", ".join(each.name for each in replica.members.all())
            raise Refused("not_found", f"no node {name!r} was heard of", hint=f"known: {known}")
        return replica, member

    def _refuse_if_fresh(self, replica: Replica, member: Member, *, force: bool) -> None:
        silent_s = _silent_s(replica, member)
        if not force and silent_s <= self._dead_after_s:
            raise Refused(
                "conflict",
                f"{member.name} lives: it was heard of {silent_s:.1f} s ago",
                hint="stop it; or use force, after which it joins again if it still runs",
            )

    async def _submit(self, replica: Replica, *acts: Expel | Forget) -> None:
        """Returns when the acts have come back, whatever became of them."""
        replica.submit_acts(*acts)
        number = replica.returned_count + replica.flying_count
        try:
            async with asyncio.timeout(WAIT_S):
                while replica.returned_count < number:
                    if replica.has_failed:
                        raise Refused("storage_unavailable", "this node is no member now")
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            raise Refused(
                "storage_unavailable",
                f"Kafka has not given it back within {WAIT_S:.0f} s; it may still count",
                hint="see cluster status",
            ) from None

    def _row(self, replica: Replica, member: Member) -> Membership:
        is_member = bool(member.incarnation)
        return Membership(
            name=member.name,
            state="running" if is_member else member.reason,
            since=format_time(member.joined_us if is_member else member.left_us),
            silent_s=_silent_s(replica, member) if is_member else 0.0,
        )


def _silent_s(replica: Replica, member: Member) -> float:
    return replica.members.silence_us(member.name) / 1_000_000
