"""Who may write: the one rule by which operations of an earlier owner are refused.

A session has one owner at a time, whose epoch is in its record; a takeover writes a later one. An
operation of a session holds if the session is there and its owner is not later than the one that
asks; a record holds if no later owner is there, a claim if the owner is still the one that it has
read. The operations of a batch are asked in their
order, each about what those before it have left: a batch may take over, discard and create.

Whoever applies a batch asks when it is applied: then the order of the log is the only fence.

Invariant: the same state and the same operations are refused the same, wherever that is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from perdure.storage.operations import ClaimSession, DiscardSession, Operation, PutSession

_UNKNOWN: Final = -1
_NONE: Final = -2


def stale(operations: list[Operation], owner_epoch: Callable[[str], int | None]) -> list[Operation]:
    """The operations that do not hold, in their order; mostly none.

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
        if isinstance(operation, DiscardSession):
            owners[client_id] = _NONE
        elif isinstance(operation, ClaimSession):
            if operation.seen != (0 if owner == _NONE else owner):
                found.append(operation)
            else:
                owners[client_id] = operation.epoch
        elif isinstance(operation, PutSession):
            if operation.epoch < owner:
                found.append(operation)
            else:
                owners[client_id] = operation.epoch
        elif owner == _NONE or operation.epoch < owner:
            found.append(operation)
    return found
