"""Private streams: what is addressed to one session alone.

Retained messages at subscribe, replayed messages, a member's share of a group and messages that
are not recorded go through here. Each takes an offset of its own when its batch is sequenced, so
that the session has one order for its log and its private stream, and the same packet identifiers
after a crash.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from perdure.broker.dispatch.items import InboxDelivery, InboxRunDelivery
from perdure.model import InboxEntry, Message

if TYPE_CHECKING:
    from perdure.broker.core import BrokerCore
    from perdure.broker.dispatch.router import Subscriber


@final
class Inbox:
    """Writes to the private streams of connected sessions."""

    def __init__(self, core: BrokerCore) -> None:
        self._core = core

    def give(
        self,
        session: Subscriber,
        message: Message,
        *,
        qos: int,
        retain: bool,
        identifiers: tuple[int, ...],
        group_key: str = "",
        again: bool = False,
    ) -> InboxEntry:
        """Address a QoS 1 or 2 message to a session; it goes out once its commit allows."""
        assert qos
        core = self._core
        entry = InboxEntry(
            0,
            message,
            qos=qos,
            retain=retain,
            identifiers=identifiers,
            group_key=group_key,
            again=again,
        )
        batch = core.committer.batch
        batch.place(entry)
        if session.durable:
            batch.put_inbox(session.client_id, entry, epoch=session.record.epoch)
        session.inbox_queued += 1
        core.pipeline.dispatch_placed(InboxDelivery(session, entry))
        return entry

    def give_run(self, session: Subscriber, entries: list[InboxEntry]) -> None:
        """Address what a group gives to a session: QoS 1, all alike but for their messages.

        Args:
            session: counts them in ``inbox_queued`` already.
            entries: without offsets.
        """
        core = self._core
        batch = core.committer.batch
        batch.place_run(entries)
        if session.durable:
            batch.put_inbox_run(session.client_id, entries, epoch=session.record.epoch)
        else:
            # The group keeps them: nobody else would find them after a crash.
            batch.put_group_run(entries[0].group_key, entries)
        core.pipeline.dispatch_placed(InboxRunDelivery(session, entries))
