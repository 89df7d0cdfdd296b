"""A target that writes down what a batch does to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perdure.storage.batch import Batch, apply


class Recorder:
    """Has every method of ``operations.Target``: each call is a line."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *arguments: self.calls.append((name, *arguments))


def told(batch: Batch) -> list[tuple[object, ...]]:
    """What the operations of a batch do, in order, and who asks for it."""
    recorder: Any = Recorder()
    apply(batch.operations, recorder)
    asked = [(operation.client_id, operation.epoch) for operation in batch.operations]
    return list(zip(recorder.calls, asked, strict=True))
