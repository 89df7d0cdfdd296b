"""How a member of a shared group gets one message: through the private stream of its session, here
or on another node. Runs of messages for members that are here go by ``member_shares``."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from perdure.broker.dispatch.items import OffsetAdvance
from perdure.broker.shared.elsewhere import MemberElsewhere
from perdure.broker.shared.member import GroupMember, LocalMember
from perdure.model import InboxEntry, Message

if TYPE_CHECKING:
    from perdure.broker.core import BrokerCore
    from perdure.broker.delivery.inbox import Inbox


@final
class Giver:
    """Gives messages to the members of one group.

    Args:
        core: what every part stands on.
        inbox: takes them.
        group_key: of the group.
    """

    __slots__ = ("_core", "_group_key", "_inbox")

    def __init__(self, core: BrokerCore, inbox: Inbox, group_key: str) -> None:
        self._core: BrokerCore = core
        self._inbox: Inbox = inbox
        self._group_key: str = group_key

    def give(self, member: GroupMember, message: Message) -> None:
        """Give a recorded message."""
        core = self._core
        sub = member.sub
        qos = min(sub.qos, message.qos)
        retain = sub.retain_as_published and message.retain
        if isinstance(member, MemberElsewhere):
            self._give_elsewhere(member, message, qos, retain)
            return
        assert isinstance(member, LocalMember)
        session = member.session
        identifiers = member.identifiers
        if not qos:
            session.give_qos0(message, retain, identifiers)
            return
        entry = self._inbox.give(
            session,
            message,
            qos=qos,
            retain=retain,
            identifiers=identifiers,
            group_key=self._group_key,
            again=message.offset <= session.record.cut_offset,
        )
        session.given[id(entry)] = [entry]
        if not session.durable and qos == 1:
            core.committer.batch.put_group_entry(self._group_key, entry)
        core.pipeline.schedule()

    def give_unrecorded(self, member: GroupMember, message: Message) -> None:
        """Give one of QoS 0, or one that is not recorded, with no promise."""
        sub = member.sub
        qos = min(sub.qos, message.qos)
        retain = sub.retain_as_published and message.retain
        if isinstance(member, MemberElsewhere):
            self._give_elsewhere(member, message, qos, retain)
            return
        assert isinstance(member, LocalMember)
        member.session.deliver(message, qos, retain, member.identifiers)

    def _give_elsewhere(
        self, member: MemberElsewhere, message: Message, qos: int, retain: bool
    ) -> None:
        """Give a message to a member on another node, by way of the log."""
        core = self._core
        batch = core.committer.batch
        epoch = member.subscriber.record.epoch
        entry = InboxEntry(
            0,
            message,
            qos=qos,
            retain=retain,
            identifiers=member.identifiers,
            group_key=self._group_key,
        )
        if qos:
            batch.place(entry)
            batch.put_inbox(member.client_id, entry, epoch=epoch)
            member.session.pending.append(entry)
            # Its client may come to this node next: what it reads there ends where it is live.
            core.pipeline.dispatch_placed(OffsetAdvance(entry))
        else:
            batch.pass_share(member.client_id, entry, epoch=epoch)
        core.pipeline.schedule()
