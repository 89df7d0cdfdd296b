"""Batches of other nodes: what is in them for the clients that are connected here.

They come when they were applied, in the log's order with this node's own, and are dispatched at
once: the fence of the dispatch passes each batch of whomever before anything behind it is looked
at. A message that nobody here wants costs its decoding, its row and one look at the router.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import msgspec

from perdure.broker.dispatch.items import InboxDelivery, Item, OffsetAdvance
from perdure.model.reserved import FILTERS_PREFIX, is_reserved
from perdure.mqtt.reason_codes import ADMINISTRATIVE_ACTION
from perdure.storage.operations import (
    ClaimSession,
    DeleteGroupMember,
    DeleteRetained,
    DiscardGroup,
    DiscardSession,
    PutCursor,
    PutGroup,
    PutGroupEntry,
    PutGroupMember,
    PutInbox,
    PutRetained,
    PutSession,
)
from perdure.storage.peer_operations import Dismiss, Echo, PassMessage, PassShare, Speak

if TYPE_CHECKING:
    from perdure.broker.cluster.handover import Handover
    from perdure.broker.cluster.notices import Notices
    from perdure.broker.core import BrokerCore
    from perdure.broker.delivery.registry import Registry
    from perdure.broker.sessions.claims import Claims
    from perdure.broker.sessions.lifecycle import Deadlines
    from perdure.broker.sessions.stored_filters import StoredFilters
    from perdure.broker.shared.echoes import Echoes
    from perdure.broker.shared.elsewhere import MembersElsewhere
    from perdure.broker.shared.subscriptions import SharedSubscriptions
    from perdure.storage.batch import Batch
    from perdure.storage.peers import Peers


@final
class ForeignBatches:
    """Takes what other nodes have submitted.

    Args:
        core: what every part stands on.
        deadlines: told of sessions that have something due.
        echoes: told of questions and answers.
        filters: told of stored content filters.
        notices: told of other records that all nodes know.
        registry: who is connected here.
        shared_subscriptions: the groups.
        claims: told of answers.
        handover: told of sessions that have an owner elsewhere.
    """

    def __init__(
        self,
        core: BrokerCore,
        *,
        claims: Claims,
        deadlines: Deadlines,
        echoes: Echoes,
        filters: StoredFilters,
        handover: Handover,
        notices: Notices,
        registry: Registry,
        shared_subscriptions: SharedSubscriptions,
    ) -> None:
        assert core.peers is not None
        self._core = core
        self._peers: Peers = core.peers
        self._claims: Claims = claims
        self._deadlines: Deadlines = deadlines
        self._echoes: Echoes = echoes
        self._filters: StoredFilters = filters
        self._registry: Registry = registry
        self._handover: Handover = handover
        self._notices: Notices = notices
        self._shared: SharedSubscriptions = shared_subscriptions
        assert shared_subscriptions.elsewhere is not None
        self._elsewhere: MembersElsewhere = shared_subscriptions.elsewhere

    def take(self, batch: Batch) -> None:
        """A batch of another node was applied."""
        core = self._core
        # Perhaps nothing has come from a client here for long.
        core.pipeline.now_us = core.clock.now_us()
        items: list[Item] = []
        messages = batch.messages
        taken = 0
        entries: list[Item] = []
        echoes: list[Echo] = []
        refused = batch.refused
        for operation in batch.operations:
            if refused and operation in refused:
                continue
            if isinstance(operation, Speak):
                self._claims.answered(operation.client_id, operation.epoch, told=False)
            elif isinstance(operation, PassMessage):
                message = operation.message
                if not message.publisher and is_reserved(message.topic):
                    # A client's has a publisher, whatever the topic of its will.
                    self._notices.heard(message.topic, message.payload)
                    continue
                # Each publisher's in the order in which they came.
                items += messages[taken : operation.after]
                taken = max(taken, operation.after)
                items.append(message)
            elif isinstance(operation, PutInbox):
                self._entry(operation, entries)
            elif isinstance(operation, PassShare):
                self._share(operation)
            elif isinstance(operation, PutCursor):
                self._claims.answered(operation.client_id, operation.epoch, told=True)
                self._elsewhere.settled(operation.client_id, operation.cursor.offset)
            elif isinstance(operation, PutSession | ClaimSession):
                self._handover.claimed(operation.record)
                self._elsewhere.changed(operation.client_id)
                self._deadlines.note(operation.record.deadline_us)
            elif isinstance(operation, DiscardSession):
                self._handover.discarded(operation.client_id, operation.epoch)
                self._elsewhere.changed(operation.client_id)
            elif isinstance(operation, PutGroupMember):
                self._elsewhere.joined(operation.group_key, operation.member)
            elif isinstance(operation, DeleteGroupMember):
                self._elsewhere.parted(operation.group_key, operation.member)
            elif isinstance(operation, PutGroup):
                self._shared.heard(operation.record)
            elif isinstance(operation, DiscardGroup):
                self._shared.discarded(operation.group_key)
            elif isinstance(operation, PutGroupEntry):
                if operation.client_id:
                    self._elsewhere.returned(
                        operation.group_key, operation.client_id, operation.entry
                    )
                self._shared.came_back(operation.group_key, operation.entry)
            elif isinstance(operation, Echo):
                echoes.append(operation)
            elif isinstance(operation, PutRetained):
                if operation.message.topic.startswith(FILTERS_PREFIX):
                    self._filters.heard(operation.message)
                elif is_reserved(operation.message.topic):
                    self._notices.heard(operation.message.topic, operation.message.payload)
            elif isinstance(operation, DeleteRetained):
                if operation.topic.startswith(FILTERS_PREFIX):
                    self._filters.forgotten(operation.topic)
                elif is_reserved(operation.topic):
                    self._notices.heard(operation.topic, b"")
            elif isinstance(operation, Dismiss):
                self._dismiss(operation)
        self._notices.settle()
        if batch.rows is not None:
            items += core.dispatcher.wanted(batch.rows)
        else:
            items += messages[taken:]
        items += entries
        if batch.placed:
            items.append(OffsetAdvance(batch.placed[-1]))
        if items:
            delivered = core.metrics.messages_delivered
            core.dispatcher.accept(items)
            core.dispatcher.run(core.committer.log_sync.offset)
            if core.metrics.messages_delivered != delivered:
                self._peers.hurry()  # its client may wait for the next one, too
            core.pipeline.schedule()
        for echo in echoes:
            self._echoes.heard(echo)
        if self._registry.is_empty():
            self._peers.rest()

    def _dismiss(self, operation: Dismiss) -> None:
        """An administrator has asked another node to take leave of a client."""
        session = self._registry.live.get(operation.client_id)
        if session is None or session.record.epoch != operation.epoch:
            return
        core = self._core
        if operation.ends:
            session.record = msgspec.structs.replace(session.record, expiry_s=0)
        session.connection.close(ADMINISTRATIVE_ACTION)
        core.pipeline.schedule()

    def _share(self, operation: PassShare) -> None:
        """What a group has given elsewhere, at QoS 0, to a session that is connected here."""
        session = self._registry.live.get(operation.client_id)
        entry = operation.entry
        if session is None or entry.message is None or session.record.epoch != operation.epoch:
            return
        session.deliver(entry.message, 0, entry.retain, entry.identifiers)
        self._core.pipeline.schedule()

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
        session.given[id(entry)] = [entry]
        entries.append(InboxDelivery(session, entry))
