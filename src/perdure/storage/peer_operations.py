"""What a batch holds for the other nodes of a log, beside what changes the state.

``batch_codec`` and ``fencing`` treat these as any operation; a store does nothing about them.
"""

from __future__ import annotations

from typing import final

from perdure.model import InboxEntry, Message
from perdure.storage.operations import Operation
from perdure.storage.target import Target


@final
class Speak(Operation):
    """What a publisher says in this batch, from here on, counts only if its session has no later
    owner: up to the next one of the same publisher, which speaks for another owner.

    Refused, it silences that (``fencing.silence``): what a node has taken for a client that has
    another node by then is not recorded, not retained and not handed out anywhere.

    Attributes:
        after: messages of its batch that are recorded and came before it.
    """

    __slots__ = ("after",)

    def __init__(self, client_id: str, epoch: int, after: int = 0) -> None:
        super().__init__(client_id, epoch)
        self.after: int = after

    def apply(self, target: Target) -> None:
        """There is nothing to store."""


@final
class PassMessage(Operation):
    """A message that is not recorded, on its way to who is connected elsewhere.

    Attributes:
        message: the message.
        after: messages of its batch that are recorded and came before it.
    """

    __slots__ = ("after", "message")

    def __init__(self, message: Message, after: int = 0) -> None:
        super().__init__()
        self.message: Message = message
        self.after: int = after

    def apply(self, target: Target) -> None:
        """There is nothing to store."""


@final
class PassShare(Operation):
    """What a shared group gives at QoS 0 to a session that another node has: no place is kept."""

    __slots__ = ("entry",)

    def __init__(self, client_id: str, epoch: int, entry: InboxEntry) -> None:
        super().__init__(client_id, epoch)
        self.entry: InboxEntry = entry

    def apply(self, target: Target) -> None:
        """There is nothing to store."""


@final
class ReturnUnseen(Operation):
    """A session is let go: what groups have put into its private stream behind an offset, which its
    node has not read when it said so, was not sent, and goes back to them (``fencing.silence``)."""

    __slots__ = ("after_offset",)

    def __init__(self, client_id: str, epoch: int, after_offset: int) -> None:
        super().__init__(client_id, epoch)
        self.after_offset: int = after_offset

    def apply(self, target: Target) -> None:
        """There is nothing to store: what it comes to stands behind it."""


@final
class Echo(Operation):
    """A question of one node to another, and its answer: what the one has read before the question
    the other has acted upon when it reads the answer.

    Attributes:
        node: whom it is for.
        asker: who has asked.
        number: of the question.
    """

    __slots__ = ("asker", "node", "number")

    def __init__(self, node: str, asker: str, number: int) -> None:
        super().__init__()
        self.node: str = node
        self.asker: str = asker
        self.number: int = number

    def apply(self, target: Target) -> None:
        """There is nothing to store."""


@final
class Dismiss(Operation):
    """An administrator takes leave of a client that another node has.

    Attributes:
        ends: its session ends with that.
    """

    __slots__ = ("ends",)

    def __init__(self, client_id: str, epoch: int, ends: bool) -> None:
        super().__init__(client_id, epoch)
        self.ends: bool = ends

    def apply(self, target: Target) -> None:
        """There is nothing to store."""
