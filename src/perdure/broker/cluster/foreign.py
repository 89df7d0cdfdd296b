"""Batches of other nodes: what is in them for the clients that are connected here.

They come when they were applied, in the log's order with this node's own, and are dispatched at
once: the fence of the dispatch passes each batch of whomever before anything behind it is looked
at. A message that nobody here wants costs its decoding, its row and one look at the router.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from perdure.broker.dispatch.items import InboxDelivery, Item, OffsetAdvance
from perdure.storage.operations import (
    ClaimSession,
    DiscardGroup,
    DiscardSession,
    PutCursor,
    PutGroup,
    PutGroupEntry,
    PutInbox,
    PutSession,
)
from perdure.storage.peer_operations import PassMessage, Speak

if TYPE_CHECKING:
    from perdure.broker.cluster.handover import Handover
    from perdure.broker.core import BrokerCore
    from perdure.broker.delivery.registry import Registry
    from perdure.broker.sessions.claims import Claims
    from perdure.broker.sessions.lifecycle import Deadlines
    from perdure.broker.shared.subscriptions import SharedSubscriptions
    from perdure.storage.batch import Batch


@final
class ForeignBatches:
    """Takes what other nodes have submitted.

    Args:
        core: what every part stands on.
        deadlines: told of sessions that have something due.
        registry: who is connected here.
        shared_subscriptions: the groups.
        claims: told of cursors.
        handover: told of sessions that have an owner elsewhere.
    """

    def __init__(
        self,
        core: BrokerCore,
        *,
        claims: Claims,
        deadlines: Deadlines,
        handover: Handover,
        registry: Registry,
        shared_subscriptions: SharedSubscriptions,
    ) -> None:
        self._core = core
        self._claims: Claims = claims
        self._deadlines: Deadlines = deadlines
        self._registry: Registry = registry
        self._handover: Handover = handover
        self._shared: SharedSubscriptions = shared_subscriptions

    def take(self, batch: Batch) -> None:
        """A batch of another node was applied."""
        core = self._core
        items: list[Item] = []
        items += batch.messages
        entries: list[Item] = []
        refused = batch.refused
        for operation in batch.operations:
            if refused and operation in refused:
                continue
            if isinstance(operation, Speak):
                self._claims.cursor_came(operation.client_id, operation.epoch)
            elif isinstance(operation, PassMessage):
                items.append(operation.message)
            elif isinstance(operation, PutInbox):
                self._entry(operation, entries)
            elif isinstance(operation, PutCursor):
                self._claims.cursor_came(operation.client_id, operation.epoch)
            elif isinstance(operation, PutSession | ClaimSession):
                self._handover.claimed(operation.record)
                self._deadlines.note(operation.record.deadline_us)
            elif isinstance(operation, DiscardSession):
                self._handover.discarded(operation.client_id, operation.epoch)
            elif isinstance(operation, PutGroup):
                self._shared.heard(operation.record)
            elif isinstance(operation, DiscardGroup):
                self._shared.discarded(operation.group_key)
            elif isinstance(operation, PutGroupEntry):
                self._shared.came_back(operation.entry)
        items += entries
        if batch.placed:
            items.append(OffsetAdvance(batch.placed[-1]))
        if items:
            core.dispatcher.accept(items)
            core.dispatcher.run(core.committer.log_sync.offset)
            core.pipeline.schedule()

    def _entry(self, operation: PutInbox, entries: list[Item]) -> None:
        """What its group has given, elsewhere, to a session that is connected here.

        Whatever else is put into a private stream comes from the node that has the session, or is
        what retention keeps of what was dispatched long ago.
        """
        session = self._registry.live.get(operation.client_id)
        entry = operation.entry
        if session is None or not entry.group_key or session.record.epoch != operation.epoch:
            return
        session.inbox_queued += 1
        entries.append(InboxDelivery(session, entry))
