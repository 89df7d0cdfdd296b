"""What a group gives to its members in one step, kept together for each of them.

Many at once are one row of a private stream (the member's, or the group's if its session ends with
its connection), one place in the dispatch queue and one write to the
connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from perdure.broker.dispatch.items import is_plain
from perdure.model import InboxEntry, Message
from perdure.storage.entry_run import ENTRIES_MAX

if TYPE_CHECKING:
    from perdure.broker.core import BrokerCore
    from perdure.broker.delivery.inbox import Inbox
    from perdure.broker.shared.member import LocalMember


@final
class MemberShares:
    """The shares of the members of one group.

    Args:
        core: what every part stands on.
        inbox: takes them.
        group_key: of the group.
    """

    __slots__ = ("_core", "_group_key", "_inbox", "_members")

    def __init__(self, core: BrokerCore, inbox: Inbox, group_key: str) -> None:
        self._core: BrokerCore = core
        self._inbox: Inbox = inbox
        self._group_key: str = group_key
        self._members: list[LocalMember] = []
        """Those that have a share."""

    def add(self, member: LocalMember, messages: list[Message], first: int, stop: int) -> None:
        """Give ``messages[first:stop]``, all ``is_plain``, to a member that ``takes_runs``."""
        identifiers, group_key = member.identifiers, self._group_key
        cut_offset = member.session.record.cut_offset
        while first < stop:
            share = member.share
            if not share:
                self._members.append(member)
            end = min(stop, first + ENTRIES_MAX - len(share))
            member.session.inbox_queued += end - first
            while first < end:
                message = messages[first]
                share.append(
                    InboxEntry(
                        0,
                        message,
                        qos=1,
                        identifiers=identifiers,
                        group_key=group_key,
                        again=message.offset <= cut_offset,
                    )
                )
                first += 1
            if len(share) >= ENTRIES_MAX:
                self.hand_over()

    def hand_over(self) -> None:
        """Put the shares into the private streams."""
        if not self._members:
            return
        members, self._members = self._members, []
        for member in members:
            share, member.share = member.share, []
            session = member.session
            session.given[id(share)] = share
            self._inbox.give_run(session, share)
        self._core.pipeline.schedule()

    def drop(self) -> None:
        """Give nobody what was not handed over: the group reads it again."""
        for member in self._members:
            member.session.inbox_queued -= len(member.share)
            member.share = []
        self._members = []


def stretch_end(messages: list[Message], first: int, count: int) -> int:
    """Where a stretch of at most ``count`` messages ends, of which the first ``is_plain``."""
    stop = first + 1
    end = min(first + count, len(messages))
    while stop < end and is_plain(messages[stop]):
        stop += 1
    return stop
