"""A target that writes down what a batch does to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perdure.storage.batch import Batch, apply
from perdure.storage.peer_operations import Dismiss, Echo, PassMessage, PassShare, ReturnUnseen


class Recorder:
    """Has every method of ``storage.target.Target``: each call is a line."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *arguments: self.calls.append((name, *arguments))


def told(batch: Batch) -> list[tuple[object, ...]]:
    """What the operations of a batch do, in order, and who asks for it."""
    found: list[tuple[object, ...]] = []
    for operation in batch.operations:
        recorder: Any = Recorder()
        apply([operation], recorder)
        # What is for other nodes does nothing to a store.
        call = recorder.calls[0] if recorder.calls else (type(operation).__name__,)
        if isinstance(operation, PassMessage):
            call = (*call, operation.message, operation.after)
        elif isinstance(operation, PassShare):
            call = (*call, operation.entry)
        elif isinstance(operation, ReturnUnseen):
            call = (*call, operation.after_offset)
        elif isinstance(operation, Dismiss):
            call = (*call, operation.ends)
        elif isinstance(operation, Echo):
            call = (*call, operation.node, operation.asker, operation.number)
        found.append((call, (operation.client_id, operation.epoch)))
    return found
