"""Who may write: the one rule by which operations of an earlier owner are refused.

A session has one owner at a time, whose epoch is in its record; a takeover writes a later one. An
operation of a session holds if the session is there and its owner is the one that asks; a record
holds if no later owner is there, a claim if the owner is still the one that it has read, and what
follows a claim that does not hold does not hold either. The operations of a batch are asked in
their order, each about what those before it have left: a batch may take over, discard and create.

Whoever applies a batch asks when it is applied: then the order of the log is the only fence.

Invariant: the same state and the same operations are refused the same, wherever that is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from perdure.model import InboxEntry
from perdure.storage.batch import ANYBODY, Batch
from perdure.storage.operations import (
    ClaimSession,
    DeleteGroupEntry,
    DeleteGroupMember,
    DiscardGroup,
    DiscardSession,
    Operation,
    PutGroup,
    PutGroupEntry,
    PutGroupMember,
    PutInbox,
    PutSession,
    PutTombstone,
)
from perdure.storage.peer_operations import PassShare, ReturnUnseen, Speak
from perdure.storage.saying import take_refused

_UNKNOWN: Final = -1
_NONE: Final = -2
_LOST: Final = -3


def stale(operations: list[Operation], owner_epoch: Callable[[str], int | None]) -> list[Operation]:
    """The operations that do not hold, in their order; mostly none.

    What an owner asks for holds under its own epoch and no other, also no lower one: a node that
    was behind may have begun a session anew, after others had ended it, below epochs of theirs.

    Args:
        operations: of one batch.
        owner_epoch: epoch of a stored session; None = there is no such session.
    """
    found: list[Operation] = []
    owners: dict[str, int] = {}
    for operation in operations:
        client_id = operation.client_id
        if not client_id:
            continue
        owner = owners.get(client_id, _UNKNOWN)
        if owner == _UNKNOWN:
            stored = owner_epoch(client_id)
            owner = owners[client_id] = _NONE if stored is None else stored
        if owner == _LOST:
            found.append(operation)
        elif isinstance(operation, DiscardSession):
            if operation.epoch not in (owner, ANYBODY) and owner != _NONE:
                found.append(operation)
            else:
                owners[client_id] = _NONE
        elif isinstance(operation, ClaimSession):
            if operation.seen != (0 if owner == _NONE else owner):
                owners[client_id] = _LOST
                found.append(operation)
            else:
                owners[client_id] = operation.epoch
        elif isinstance(operation, PutSession):
            # Where there is one writer, whoever comes is the owner. Of several nodes one may write
            # for a claim of its own that did not hold.
            latest = owner + 1 if operation.record.node else operation.epoch
            if owner != _NONE and not owner <= operation.epoch <= latest:
                found.append(operation)
            else:
                owners[client_id] = operation.epoch
        elif operation.epoch != owner:
            found.append(operation)
    return found


class State(Protocol):
    """What is asked of the state that a batch meets; ``storage.ordered.Local`` has it all."""

    def owner_epoch(self, client_id: str) -> int | None:
        """The epoch of a session's owner; None = there is no such session."""
        ...

    def group_turn(self, group_key: str) -> int:
        """The turn of a group's record; 0 = there is no such group."""
        ...

    def members_of(self, group_key: str) -> list[str]:
        """Client identifiers of a group's members."""
        ...

    def given_after(self, client_id: str, after_offset: int) -> list[InboxEntry]:
        """What stands in a session's private stream behind an offset, tombstones too."""
        ...


def silence(batch: Batch, state: State) -> None:
    """Take out of a batch what does not count, where several nodes write: what publishers say in it
    for an owner of their session that is none any more, what is given out for a group that another
    node has given out for, and the end of a group that somebody has joined. What a group has given
    to a session that has another owner, or is let go of without having seen it, goes back to the
    group.

    To be asked before the batch is applied; the offsets of what goes are not used again.
    """
    # One look: most batches have nothing but what publishers say.
    has_owners = has_groups = has_ends = has_returns = False
    for each in batch.operations:
        if isinstance(each, (Speak, PutInbox)):
            has_owners = True
        elif isinstance(each, PutGroup):
            has_groups = True
        elif isinstance(each, DiscardGroup):
            has_ends = True
        elif isinstance(each, ReturnUnseen):
            has_returns = True
    lost = _lost_groups(batch, state.group_turn) if has_groups else frozenset()
    if lost:
        batch.lost_groups = lost
        batch.operations = [each for each in batch.operations if _group(each) not in lost]
    operations = batch.operations
    if has_ends:
        operations = batch.operations = _without_joined(operations, state)
    if not has_owners and not has_returns:
        return
    refused = stale(operations, state.owner_epoch)
    if any(isinstance(each, Speak) for each in refused):
        batch.silenced = take_refused(batch, refused)
        operations = batch.operations
    if has_returns:
        _return_unseen(batch, refused, state)
    for each in refused:
        if isinstance(each, PutInbox) and each.entry.group_key and each.entry.message is not None:
            batch.returned.append(each.entry)
            batch.operations.append(PutGroupEntry(each.entry.group_key, each.entry))


def _without_joined(operations: list[Operation], state: State) -> list[Operation]:
    """Without the ends of groups that have members by then."""
    kept: list[Operation] = []
    members: dict[str, set[str]] = {}
    for each in operations:
        if isinstance(each, PutGroupMember | DeleteGroupMember | DiscardGroup):
            key = each.group_key
            if key not in members:
                members[key] = set(state.members_of(key))
            if isinstance(each, PutGroupMember):
                members[key].add(each.member)
            elif isinstance(each, DeleteGroupMember):
                members[key].discard(each.member)
            elif members[key]:
                continue
        kept.append(each)
    return kept


def _return_unseen(batch: Batch, refused: list[Operation], state: State) -> None:
    """Put behind each ``ReturnUnseen`` that holds what it comes to."""
    tombstones = {each.entry.offset for each in batch.operations if isinstance(each, PutTombstone)}
    operations: list[Operation] = []
    for each in batch.operations:
        operations.append(each)
        if not isinstance(each, ReturnUnseen) or any(each is other for other in refused):
            continue
        for entry in state.given_after(each.client_id, each.after_offset):
            if entry.group_key and entry.message is not None and entry.offset not in tombstones:
                operations.append(PutTombstone(each.client_id, each.epoch, entry))
                operations.append(PutGroupEntry(entry.group_key, entry))
                batch.returned.append(entry)
    batch.operations = operations


def _lost_groups(batch: Batch, group_turn: Callable[[str], int]) -> frozenset[str]:
    """Groups whose record is not the one that the batch goes on from."""
    turns: dict[str, int] = {}
    lost: set[str] = set()
    for each in batch.operations:
        if isinstance(each, PutGroup) and each.seen >= 0:
            key = each.record.key
            if turns.get(key, group_turn(key)) != each.seen:
                lost.add(key)
            turns[key] = each.record.turn
    return frozenset(lost)


def _group(operation: Operation) -> str:
    """The group that an operation gives out for."""
    if isinstance(operation, PutInbox | PassShare):
        return operation.entry.group_key
    if isinstance(operation, PutGroup):
        return operation.record.key
    return operation.group_key if isinstance(operation, DeleteGroupEntry) else ""
