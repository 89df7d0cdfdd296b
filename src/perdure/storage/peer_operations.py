"""What a batch holds for the other nodes of a log, beside what changes the state.

``batch_codec`` and ``fencing`` treat these as any operation; a store does nothing about them.
"""

from __future__ import annotations

from typing import final

from perdure.model import Message
from perdure.storage.operations import Operation, Target


@final
class Speak(Operation):
    """A publisher's messages in this batch count only if its session has no later owner.

    Refused, it silences them (``fencing.silence``): what a node has taken for a client that has
    another node by then is not recorded, not retained and not handed out anywhere.
    """

    __slots__ = ()

    def apply(self, target: Target) -> None:
        """There is nothing to store."""


@final
class PassMessage(Operation):
    """A message that is not recorded, on its way to who is connected elsewhere."""

    __slots__ = ("message",)

    def __init__(self, message: Message) -> None:
        super().__init__()
        self.message: Message = message

    def apply(self, target: Target) -> None:
        """There is nothing to store."""
