"""This node among the others: what it hears of them, and what it does about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from perdure.storage.peers import Gone, Peers

if TYPE_CHECKING:
    from perdure.broker.cluster.foreign import ForeignBatches
    from perdure.broker.cluster.survey import Survey
    from perdure.broker.core import BrokerCore
    from perdure.broker.sessions.reaper import Reaper
    from perdure.broker.sessions.stored_filters import StoredFilters
    from perdure.broker.shared.subscriptions import SharedSubscriptions
    from perdure.errors import StorageError


@final
class ClusterNode:
    """Hears of the other nodes.

    Args:
        core: what every part stands on.
        peers: the nodes.
        filters, foreign, reaper, shared_subscriptions, survey: what else it uses.
    """

    def __init__(
        self,
        core: BrokerCore,
        peers: Peers,
        *,
        filters: StoredFilters,
        foreign: ForeignBatches,
        reaper: Reaper,
        shared_subscriptions: SharedSubscriptions,
        survey: Survey,
    ) -> None:
        self._core = core
        self._filters: StoredFilters = filters
        self._reaper: Reaper = reaper
        self._survey: Survey = survey
        self._shared: SharedSubscriptions = shared_subscriptions
        peers.on_foreign = foreign.take
        peers.on_gone = self._gone
        peers.on_failed = self._failed

    async def start(self) -> None:
        """Look at what others, and this node's last process, have left."""
        await self._survey.run()
        self._survey.want()

    def stop(self) -> None:
        """Look at nothing more."""
        self._survey.stopped = True

    def _gone(self, gone: Gone) -> None:
        """An incarnation has ended: its sessions, and perhaps its duties, are for others."""
        if not gone.is_own:
            self._core.log.warning("cluster.node_gone", node=gone.node)
            self._survey.want()
            self._reaper.note(self._core.clock.now_us())
            self._shared.look()
            self._filters.go_on()

    def _failed(self, error: StorageError) -> None:
        """Nothing more is acknowledged in this incarnation."""
        committer = self._core.committer
        if committer.writable:
            committer.lost(error)
