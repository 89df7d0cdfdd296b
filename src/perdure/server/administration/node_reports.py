"""What the nodes of a cluster say of themselves: each tells the others its overview now and then.

Nodes do not ask each other: they share one log and nothing else. So each node says every
``INTERVAL_S`` what it counts, in a message of the log that nobody stores (``Notices.tell``), and
remembers the last words of each other one; whoever is asked answers for all of them.

Sketch: 1.3 KB and one record of the log for each node and ten seconds, a tenth of what it says
while it is idle (a heartbeat each second); a node that hears it reads it, some ten microseconds,
and keeps the numbers of an hour (``node_histories``).

The format is an ``Overview`` in JSON. A later release may add fields that have defaults, and none
else: an older one skips what it does not know.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, final

import msgspec

from perdure.admin.problems import Refused
from perdure.admin.records.node import History, Node, Overview
from perdure.broker.services import Services
from perdure.config.units import format_time
from perdure.model.reserved import NODES_PREFIX
from perdure.observe.logs import get_logger
from perdure.server.administration.node_histories import NodeHistories
from perdure.server.administration.node_totals import total
from perdure.storage.peers import PeerNode

log = get_logger("cluster")

INTERVAL_S: Final = 10.0
"""Time between two reports of a node, as long as its rates look back."""

STALLED_S: Final = 3
"""A node of a cluster that has waited so long for the log is not ready, seconds: what it says would
be old when the log has it."""

RUNNING: Final = "running"


@final
class Report(msgspec.Struct, frozen=True):
    """What a node says.

    Attributes:
        incarnation: of its process.
        overview: of that node.
    """

    incarnation: int
    overview: Overview


@final
class NodeReports:
    """Tells the others of this node, and remembers what they have told.

    Args:
        services: the parts of the broker.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._told: dict[str, Report] = {}
        self._unknown: set[str] = set()
        """Nodes whose last words nobody here can read."""
        self._histories = NodeHistories()
        services.notices.listeners[NODES_PREFIX] = self

    def heard(self, name: str, value: bytes) -> None:
        """A node has said something."""
        try:
            report = msgspec.json.decode(value, type=Report)
        except ValueError as error:
            # A later release may say it otherwise.
            if self._told.pop(name, None) is not None or name not in self._unknown:
                log.warning("cluster.report_unknown", node=name, reason=str(error))
            self._unknown.add(name)
            return
        self._unknown.discard(name)
        self._told[name] = report
        self._histories.add(report.overview)

    def settle(self) -> None:
        """There is nothing to do before somebody asks."""

    async def run(self, overview: Callable[[], Overview]) -> None:
        """Tell the others, again and again, for ever.

        Args:
            overview: of this node, now.
        """
        while True:
            self.tell(overview())
            await asyncio.sleep(INTERVAL_S)

    def tell(self, overview: Overview) -> None:
        """Tell the others of this node, unless the log stands still."""
        services, peers = self._services, self._services.peers
        if peers is None or services.metrics.cluster_stalled_seconds >= STALLED_S:
            return
        value = msgspec.json.encode(Report(peers.incarnation, overview))
        services.notices.tell(NODES_PREFIX, peers.node, value)
        known = {peer.name for peer in peers.nodes()}
        for name in self._told.keys() - known:
            del self._told[name]  # it was forgotten
            self._histories.forget(name)

    def overview_of(self, name: str) -> Overview:
        """What another node has said last.

        Raises:
            Refused: there is no such node, or nothing was heard of it.
        """
        peer, report = self._heard(name)
        return msgspec.structs.replace(report.overview, state=peer.state)

    def history_of(self, name: str, seconds: int) -> History:
        """What another node has said in the last hour, or a part of it.

        Raises:
            Refused: there is no such node, or nothing was heard of it.
        """
        self._heard(name)
        return self._histories.history(name, seconds)

    def total_history(self, own: History) -> History:
        """The last hour of all members together.

        Args:
            own: this node's.
        """
        members = [peer.name for peer in self._others() if peer.state == RUNNING]
        return self._histories.total(own, members)

    def total(self, own: Overview) -> Overview:
        """All members together.

        Args:
            own: this node's.
        """
        found, unheard = [own], []
        for peer in self._others():
            if peer.state != RUNNING:
                continue
            report = self._told.get(peer.name)
            if report is not None and self._is_of_member(peer.name, report):
                found.append(report.overview)
            else:
                unheard.append(peer.name)
        return total(found, unheard=unheard)

    def rows(self, own: Overview) -> list[Node]:
        """All nodes, this one first.

        Args:
            own: this node's.
        """
        rows = [_row(own, is_self=True)]
        for peer in self._others():
            report = self._told.get(peer.name)
            if report is not None and self._is_of_member(peer.name, report):
                rows.append(_row(report.overview, is_self=False))
                continue
            rows.append(
                Node(
                    name=peer.name,
                    is_self=False,
                    state=peer.state,
                    version=None if report is None else report.overview.version,
                    started_at=format_time(peer.since_us) if peer.state == RUNNING else None,
                    started_at_us=peer.since_us if peer.state == RUNNING else None,
                    connections=None,
                    sessions_connected=None,
                    as_of=None if report is None else report.overview.as_of,
                    as_of_us=None if report is None else report.overview.as_of_us,
                )
            )
        return rows

    def _heard(self, name: str) -> tuple[PeerNode, Report]:
        others = self._others()
        peer = next((each for each in others if each.name == name), None)
        if peer is None:
            known = ", ".join(each.name for each in others)
            raise Refused(
                "not_found",
                f"no node {name!r} was heard of",
                hint=f"others: {known}" if known else "this broker knows no other",
            )
        report = self._told.get(name)
        if report is None:
            raise Refused(
                "not_found",
                f"node {name} has said nothing of itself since this one has started",
                hint=f"a member does so every {INTERVAL_S:.0f} s, unless its release is older",
            )
        return peer, report

    def _others(self) -> list[PeerNode]:
        peers = self._services.peers
        return [] if peers is None else [one for one in peers.nodes() if one.name != peers.node]

    def _is_of_member(self, name: str, report: Report) -> bool:
        """Whether what was said still counts: its process is the one that is a member."""
        peers = self._services.peers
        return peers is not None and peers.is_member(name, report.incarnation)


def _row(overview: Overview, *, is_self: bool) -> Node:
    return Node(
        name=overview.node,
        is_self=is_self,
        state=RUNNING,
        version=overview.version,
        started_at=overview.started_at,
        started_at_us=overview.started_at_us,
        connections=overview.connections,
        sessions_connected=overview.sessions_connected,
        storage=overview.storage,
        storage_reason=overview.storage_reason,
        rate_in=overview.rates.messages_received,
        rate_out=overview.rates.messages_delivered,
        messages_dropped=overview.messages_dropped,
        cluster_lag=overview.cluster_lag,
        log_bytes=overview.log_bytes,
        as_of=overview.as_of,
        as_of_us=overview.as_of_us,
    )
