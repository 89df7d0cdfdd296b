"""When a node has what other nodes have acknowledged: what a PINGRESP says in a cluster.

A client that has an acknowledgement of one node may tell another client, which is at another node,
that its message is there. On one broker that one's PINGRESP comes behind the message; so does it
here: the answer waits until the node has read the log up to the question. What a shared group gives
takes one step more, for the node that serves the group submits it when it has read the message:
that node is asked, and answers behind what it has given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from perdure.broker.dispatch.items import Barrier

if TYPE_CHECKING:
    from perdure.broker.core import BrokerCore
    from perdure.broker.delivery.live_session import LiveSession
    from perdure.broker.runtime.scheduler import Gate
    from perdure.broker.shared.group import SharedGroup
    from perdure.broker.shared.subscriptions import SharedSubscriptions
    from perdure.storage.peer_operations import Echo

WAIT_US: Final = 1_000_000
"""How long a PINGREQ waits for each step: a client must not take a broker that stalls for dead."""


@final
class Echoes:
    """Asks other nodes, and answers them.

    Args:
        core: what every part stands on.
        shared_subscriptions: the groups.
    """

    def __init__(self, core: BrokerCore, *, shared_subscriptions: SharedSubscriptions) -> None:
        self._core = core
        self._shared: SharedSubscriptions = shared_subscriptions
        self._number = 0
        self._waiting: dict[int, Gate] = {}

    def heard(self, echo: Echo) -> None:
        """A question of another node (a number above zero), or its answer (below)."""
        core, peers = self._core, self._core.peers
        assert peers is not None
        if echo.node != peers.node:
            return
        if echo.number > 0:
            if core.committer.writable:
                core.committer.batch.echo(echo.asker, peers.node, -echo.number)
                core.pipeline.schedule()
            return
        gate = self._waiting.pop(-echo.number, None)
        if gate is not None:
            gate.open()

    async def caught_up(self, session: LiveSession) -> None:
        """Return when a connected session was sent what the nodes have acknowledged before, as far
        as its client takes it; after a while in any case."""
        core = self._core
        if not core.committer.writable or session.fenced:
            return
        core.committer.batch.speak(session.client_id, epoch=session.record.epoch)
        asked = [self._ask(node) for node in self._servers(session)]
        await self._handed_out()
        for gate in asked:
            await self._open(gate)
        if any(group.is_served for group in self._groups(session)):
            # What this node has given of what it has read by now.
            await self._handed_out()

    def _groups(self, session: LiveSession) -> list[SharedGroup]:
        groups = self._shared.groups
        return [groups[key] for key in session.groups if key in groups]

    def _servers(self, session: LiveSession) -> list[str]:
        """Other nodes that serve a group of the session."""
        peers = self._core.peers
        assert peers is not None
        records = [group.record for group in self._groups(session) if not group.is_served]
        return sorted(
            {each.node for each in records if peers.is_member(each.node, each.incarnation)}
        )

    def _ask(self, node: str) -> Gate:
        peers = self._core.peers
        assert peers is not None
        self._number += 1
        gate = self._waiting[self._number] = self._core.scheduler.gate()
        self._core.committer.batch.echo(node, peers.node, self._number)
        return gate

    async def _handed_out(self) -> None:
        gate = self._core.scheduler.gate()
        self._core.pipeline.dispatch_placed(Barrier(gate))
        await self._open(gate)

    async def _open(self, gate: Gate) -> None:
        timer = self._core.scheduler.call_later(WAIT_US, gate.open)
        await gate
        timer.cancel()
        for number in [each for each, other in self._waiting.items() if other is gate]:
            del self._waiting[number]  # nobody has answered
