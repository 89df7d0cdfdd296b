"""Which member of a group gets a message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from perdure.broker.shared.member import GroupMember
from perdure.model import Message
from perdure.topic.shared import Chooser

if TYPE_CHECKING:
    from perdure.broker.core import BrokerCore

NO_TAKER: Final = -2
"""What ``Choosing.choose`` returns when no connected member may have a message, now or later."""


@final
class Choosing:
    """A group's strategy, among the members that may have a message and have room for it."""

    def __init__(self, core: BrokerCore, chooser: Chooser) -> None:
        self._core = core
        self._chooser = chooser
        self.is_limited: bool = False
        """A member has a Maximum Packet Size."""

    def choose(self, members: list[GroupMember], message: Message) -> int:
        """The index of the member that gets a message, ``NOBODY`` or ``NO_TAKER``."""
        authorizer = self._core.authorizer
        if authorizer.allow_all and not self.is_limited:
            return self._chooser.choose(members, topic=message.topic, publisher=message.publisher)
        able = 0
        for member in members:
            member.is_able = member.may_read(message, authorizer) and member.has_room_for(message)
            able += member.is_able
        if not able and members:
            index = NO_TAKER
        else:
            index = self._chooser.choose(members, topic=message.topic, publisher=message.publisher)
        for member in members:
            member.is_able = True
        return index

    def stretches(self, members: list[GroupMember], count: int) -> tuple[int, int]:
        """See ``Chooser``; none if something is to be decided for each message."""
        if self.is_limited or not self._core.authorizer.allow_all:
            return 1, 0
        return self._chooser.stretches(members, count)

    def pass_over(self, members: list[GroupMember], message: Message) -> None:
        """No connected member may have a message: count why."""
        core = self._core
        authorizer = core.authorizer
        if any(member.may_read(message, authorizer) for member in members):
            core.metrics.messages_dropped_too_large += 1
        else:
            core.metrics.messages_dropped_not_authorized += 1
