"""What a publisher has said in a batch, taken out of it: to be said again for another owner.

A node may have taken messages of a client that has come to another node meanwhile. If that one's
claim is first in the log they do not count (``fencing.silence``); who hands the session over says
them again, in front of where its client has come to.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, final

from perdure.model import Message
from perdure.storage.operations import (
    DeleteAwaitingRelease,
    DeleteRetained,
    Operation,
    PutAwaitingRelease,
    PutRetained,
)
from perdure.storage.peer_operations import PassMessage, Speak

if TYPE_CHECKING:
    from perdure.storage.batch import Batch


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

    def say(self, batch: Batch, client_id: str, epoch: int) -> tuple[list[Message], list[Message]]:
        """Add it to a batch, at its end.

        Args:
            batch: the open one.
            client_id: the publisher.
            epoch: of the owner of its session.

        Returns:
            The messages in their order, and those that were placed.
        """
        if not self.messages and not self.operations:
            return [], []
        base, taken = len(batch.messages), 0
        said: list[Message] = []
        placed: list[Message] = []
        batch.speak(client_id, epoch=epoch)
        for message in self.messages:
            message.offset = 0
        batch.extend(self.messages)
        for each in self.operations:
            if isinstance(each, PassMessage):
                said += self.messages[taken : each.after]
                taken = max(taken, each.after)
                said.append(each.message)
                batch.add(PassMessage(each.message, base + each.after))
            elif isinstance(each, PutAwaitingRelease):
                batch.add(PutAwaitingRelease(client_id, epoch, each.packet_id))
            elif isinstance(each, DeleteAwaitingRelease):
                batch.add(DeleteAwaitingRelease(client_id, epoch, each.packet_id))
            else:
                if isinstance(each, PutRetained) and not _has(self.messages, each.message):
                    kept = each.message
                    if not _has(batch.placed, kept):
                        kept.offset = 0
                        batch.place(kept)
                        placed.append(kept)
                batch.add(each)
        said += self.messages[taken:]
        return said, placed

    def _last_retained(self, topic: str) -> Operation | None:
        found: Operation | None = None
        for each in self.operations:
            if isinstance(each, PutRetained | DeleteRetained) and _topic(each) == topic:
                found = each
        return found


def unsaid_of(batch: Batch, client_id: str) -> Unsaid:
    """What a publisher says in a batch, which stays as it is."""
    own = [message.publisher == client_id for message in batch.messages]
    before = [0, *accumulate(own)]
    operations: list[Operation] = []
    for each in batch.operations:
        if isinstance(each, PassMessage):
            if each.message.publisher == client_id:
                operations.append(PassMessage(each.message, before[each.after]))
        elif _belongs(each, client_id):
            operations.append(each)
    return Unsaid([each for each in batch.messages if each.publisher == client_id], operations)


def take_out(batch: Batch, client_id: str) -> Unsaid:
    """``unsaid_of`` a batch that is not submitted, which is without it then."""
    found = unsaid_of(batch, client_id)
    kept = [0, *accumulate(message.publisher != client_id for message in batch.messages)]
    operations: list[Operation] = []
    for each in batch.operations:
        if isinstance(each, PassMessage):
            if each.message.publisher == client_id:
                continue
            each.after = kept[each.after]
        elif _belongs(each, client_id) or (isinstance(each, Speak) and each.client_id == client_id):
            continue
        operations.append(each)
    batch.operations = operations
    batch.messages = [each for each in batch.messages if each.publisher != client_id]
    return found


def _has(things: Sequence[object], thing: object) -> bool:
    return any(each is thing for each in things)


def _topic(operation: PutRetained | DeleteRetained) -> str:
    return operation.message.topic if isinstance(operation, PutRetained) else operation.topic


def _belongs(operation: Operation, client_id: str) -> bool:
    if isinstance(operation, PutRetained):
        return operation.message.publisher == client_id
    if isinstance(operation, DeleteRetained):
        return operation.publisher == client_id
    if isinstance(operation, PutAwaitingRelease | DeleteAwaitingRelease):
        return operation.client_id == client_id
    return False
