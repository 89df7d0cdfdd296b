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


def take_refused(batch: Batch, refused: list[Operation]) -> dict[str, Unsaid]:
    """Take out of a batch what publishers say in it for owners that are none any more: what stands
    behind a ``Speak`` that is refused, up to the next one of its publisher.

    Args:
        batch: as it was submitted.
        refused: the operations in it that do not hold. They stay, and so do packet identifiers.

    Returns:
        By publisher, what it was.
    """
    silent = {id(each) for each in refused if isinstance(each, Speak)}
    speaking: dict[str, list[Speak]] = {
        each.client_id: [] for each in refused if isinstance(each, Speak)
    }
    for each in batch.operations:
        if isinstance(each, Speak) and each.client_id in speaking:
            speaking[each.client_id].append(each)

    def is_silent(at: int, message: Message) -> bool:
        for speak in reversed(speaking.get(message.publisher, ())):
            if speak.after <= at:
                return id(speak) in silent
        return False

    out = [is_silent(at, message) for at, message in enumerate(batch.messages)]
    found: dict[str, Unsaid] = {}
    gone: list[Operation] = []
    for client_id in sorted(speaking):
        ruling = False
        operations: list[Operation] = []
        for each in batch.operations:
            if isinstance(each, Speak):
                if each.client_id == client_id:
                    ruling = id(each) in silent
            elif _is_of_session(each):
                if each.client_id == client_id and any(each is other for other in refused):
                    operations.append(each)
            elif ruling and _publisher(each) == client_id:
                operations.append(each)
                gone.append(each)
        found[client_id] = _unsaid(batch, client_id, out, operations)
    _remove(batch, out, gone)
    return found


def take_out(batch: Batch, client_id: str) -> Unsaid:
    """Take out of a batch that is not submitted all that a publisher says in it."""
    out = [each.publisher == client_id for each in batch.messages]
    operations = [
        each
        for each in batch.operations
        if (each.client_id if _is_of_session(each) else _publisher(each)) == client_id
    ]
    found = _unsaid(batch, client_id, out, operations)
    speaks = [
        each for each in batch.operations if isinstance(each, Speak) and each.client_id == client_id
    ]
    _remove(batch, out, [*operations, *speaks])
    batch.unspeak(client_id)
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


def _unsaid(batch: Batch, client_id: str, out: list[bool], operations: list[Operation]) -> Unsaid:
    """Of what is to be taken out of a batch, what one publisher says."""
    own = [
        is_out and message.publisher == client_id
        for is_out, message in zip(out, batch.messages, strict=True)
    ]
    before = [0, *accumulate(own)]
    return Unsaid(
        [message for is_own, message in zip(own, batch.messages, strict=True) if is_own],
        [
            PassMessage(each.message, before[each.after]) if isinstance(each, PassMessage) else each
            for each in operations
        ],
    )


def _remove(batch: Batch, out: list[bool], gone: list[Operation]) -> None:
    """Take messages, by their places, and operations out of a batch."""
    kept = [0, *accumulate(not is_out for is_out in out)]
    gone_ids = {id(each) for each in gone}
    operations: list[Operation] = []
    for each in batch.operations:
        if id(each) in gone_ids:
            continue
        if isinstance(each, PassMessage | Speak):
            each.after = kept[each.after]
        operations.append(each)
    batch.operations = operations
    batch.messages = [
        message for is_out, message in zip(out, batch.messages, strict=True) if not is_out
    ]


def _publisher(operation: Operation) -> str:
    """Who says it; empty = nobody, or it is a packet identifier."""
    if isinstance(operation, PutRetained | PassMessage):
        return operation.message.publisher
    return operation.publisher if isinstance(operation, DeleteRetained) else ""


def _is_of_session(operation: Operation) -> bool:
    """Whether it is a packet identifier, which has an epoch of its own."""
    return isinstance(operation, PutAwaitingRelease | DeleteAwaitingRelease)
