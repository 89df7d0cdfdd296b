"""What stands in the dispatch queue, in log order."""

from __future__ import annotations

from typing import TypeAlias, final

from perdure.broker.dispatch.router import Subscriber
from perdure.broker.runtime.scheduler import Gate
from perdure.model import InboxEntry, Message


@final
class InboxDelivery:
    """An entry of a private stream on its way to the one session it is for.

    It takes its place in the queue like a message, so that a session is offered its log and its
    private stream in one ascending order of offsets.
    """

    __slots__ = ("entry", "qos", "session")

    def __init__(self, session: Subscriber, entry: InboxEntry) -> None:
        self.session: Subscriber = session
        self.entry: InboxEntry = entry
        self.qos: int = entry.qos

    @property
    def offset(self) -> int:
        """Its place in the session's order; 0 = not sequenced yet."""
        return self.entry.offset


@final
class InboxRunDelivery:
    """Entries that a group gave to a session in one step, all of QoS 1."""

    __slots__ = ("entries", "qos", "session")

    def __init__(self, session: Subscriber, entries: list[InboxEntry]) -> None:
        self.session: Subscriber = session
        self.entries: list[InboxEntry] = entries
        self.qos: int = 1

    @property
    def offset(self) -> int:
        """That of the last of them; 0 = not sequenced yet."""
        return self.entries[-1].offset


@final
class OffsetAdvance:
    """The offset of something that is not in the log, behind the messages of its batch.

    A retained message that is not recorded has no place in the log, but what was dispatched before
    a subscription is told from what comes after it by the fence, so the fence has to pass its
    offset.
    """

    __slots__ = ("placed", "qos")

    def __init__(self, placed: Message | InboxEntry) -> None:
        self.placed: Message | InboxEntry = placed
        self.qos: int = 0

    @property
    def offset(self) -> int:
        """The offset; 0 = not sequenced yet."""
        return self.placed.offset


@final
class Passed:
    """Messages of the log that nobody here wants: the fence has to pass them.

    Attributes:
        offset: of the last of them.
    """

    __slots__ = ("offset", "qos")

    def __init__(self, offset: int) -> None:
        self.offset: int = offset
        self.qos: int = 0


def is_plain(message: Message) -> bool:
    """Whether a message may be one of a run: recorded, QoS 1, sent as it came."""
    return (
        message.qos == 1
        and not message.retain
        and not message.expires_at_us
        and message.offset != 0
    )


@final
class Barrier:
    """A place in the queue: its gate opens when everything taken before it was handed out."""

    __slots__ = ("gate", "offset", "qos")

    def __init__(self, gate: Gate) -> None:
        self.gate: Gate = gate
        self.offset: int = 0
        self.qos: int = 0


Item: TypeAlias = Message | InboxDelivery | InboxRunDelivery | OffsetAdvance | Passed | Barrier
