"""What publishers say in a batch: looked at, taken out of it, and said again for another owner."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from perdure.model import Message
from perdure.storage.batch import Batch
from perdure.storage.operations import (
    DeleteAwaitingRelease,
    DeleteRetained,
    Operation,
    PutAwaitingRelease,
    PutRetained,
)
from perdure.storage.peer_operations import PassMessage, Speak
from perdure.storage.unsaid import Unsaid


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


def say(
    unsaid: Unsaid, batch: Batch, client_id: str, epoch: int
) -> tuple[list[Message], list[Message]]:
    """Add it to a batch, at its end.

    Args:
        batch: the open one.
        client_id: the publisher.
        epoch: of the owner of its session.

    Returns:
        The messages in their order, and those that were placed.
    """
    if not unsaid.messages and not unsaid.operations:
        return [], []
    base, taken = len(batch.messages), 0
    said: list[Message] = []
    placed: list[Message] = []
    batch.speak(client_id, epoch=epoch)
    for message in unsaid.messages:
        message.offset = 0
    batch.extend(unsaid.messages)
    for each in unsaid.operations:
        if isinstance(each, PassMessage):
            said += unsaid.messages[taken : each.after]
            taken = max(taken, each.after)
            said.append(each.message)
            batch.add(PassMessage(each.message, base + each.after))
        elif isinstance(each, PutAwaitingRelease):
            batch.add(PutAwaitingRelease(client_id, epoch, each.packet_id))
        elif isinstance(each, DeleteAwaitingRelease):
            batch.add(DeleteAwaitingRelease(client_id, epoch, each.packet_id))
        else:
            if isinstance(each, PutRetained) and not _has(unsaid.messages, each.message):
                kept = each.message
                if not _has(batch.placed, kept):
                    kept.offset = 0
                    batch.place(kept)
                    placed.append(kept)
            batch.add(each)
    said += unsaid.messages[taken:]
    return said, placed


def _has(things: Sequence[object], thing: object) -> bool:
    return any(each is thing for each in things)


def _belongs(operation: Operation, client_id: str) -> bool:
    if isinstance(operation, PutRetained):
        return operation.message.publisher == client_id
    if isinstance(operation, DeleteRetained):
        return operation.publisher == client_id
    if isinstance(operation, PutAwaitingRelease | DeleteAwaitingRelease):
        return operation.client_id == client_id
    return False
