"""What a publisher has said in a batch, taken out of it: to be said again for another owner.

A node may have taken messages of a client that has come to another node meanwhile. If that one's
claim is first in the log they do not count (``fencing.silence``); who hands the session over says
them again (``saying``), in front of where its client has come to.
"""

from __future__ import annotations

from typing import final

from perdure.model import Message
from perdure.storage.operations import DeleteRetained, Operation, PutRetained
from perdure.storage.peer_operations import PassMessage


@final
class Unsaid:
    """Messages of one publisher, and what belongs to them.

    Attributes:
        messages: to be recorded, in order.
        operations: what they retain, packet identifiers, and messages that are passed on
            (``after`` counts ``messages``), in order.
    """

    __slots__ = ("messages", "operations")

    def __init__(self, messages: list[Message], operations: list[Operation]) -> None:
        self.messages: list[Message] = messages
        self.operations: list[Operation] = operations

    def said(self) -> list[Message]:
        """The messages, and those that are passed on; not in their order."""
        passed = [each.message for each in self.operations if isinstance(each, PassMessage)]
        return self.messages + passed

    def without(self, message: Message | None) -> Unsaid:
        """All but one message, and what it retains."""
        if message is None:
            return self
        at = [place for place, each in enumerate(self.messages) if each is message]
        kept: list[Operation] = []
        for each in self.operations:
            if isinstance(each, PassMessage):
                if each.message is message:
                    continue
                if at and each.after > at[0]:
                    each.after -= 1
            elif each is self._last_retained(message.topic):
                continue  # it was the last that its publisher said
            kept.append(each)
        return Unsaid([each for each in self.messages if each is not message], kept)

    def _last_retained(self, topic: str) -> Operation | None:
        found: Operation | None = None
        for each in self.operations:
            if isinstance(each, PutRetained | DeleteRetained) and _topic(each) == topic:
                found = each
        return found


def _topic(operation: PutRetained | DeleteRetained) -> str:
    return operation.message.topic if isinstance(operation, PutRetained) else operation.topic
