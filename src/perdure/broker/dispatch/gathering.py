"""What comes to shared groups message by message, until the end of a run of the dispatch.

What a group gives is far less work together (``broker.shared.member_shares``), and where several
groups or sessions want a message, it comes to each group alone.
"""

from __future__ import annotations

from typing import final

from perdure.broker.dispatch.items import is_plain
from perdure.broker.dispatch.router import GroupSubscriber
from perdure.model import Message


@final
class Gathering:
    """The groups that have gathered messages of this run."""

    __slots__ = ("_groups",)

    def __init__(self) -> None:
        self._groups: list[GroupSubscriber] = []

    def deliver(self, message: Message, groups: dict[str, GroupSubscriber]) -> None:
        """A message comes to some groups; ``hand_out`` must follow, before anything else runs."""
        may_wait = is_plain(message)
        for group in list(groups.values()):
            try:
                if not may_wait:
                    group.deliver(message)
                elif group.gather(message):
                    self._groups.append(group)
            except Exception as error:  # noqa: BLE001 - it reads the message again
                group.failed(message, error)

    def hand_out(self) -> None:
        """The groups give out what they have gathered."""
        while self._groups:
            groups, self._groups = self._groups, []
            for group in groups:
                group.hand_out()
