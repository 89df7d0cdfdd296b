"""Small things that all nodes know: each is a name and a value, kept as a retained message below a
prefix of its own (``model.reserved``), or told and kept by nobody.

Whoever looks after a prefix is told of each change when the log has it, in the order of the log, on
every node alike: of two that cross the later one counts everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, final

from perdure.broker.commit.waiters import LEVEL_OS
from perdure.broker.dispatch.items import OffsetAdvance
from perdure.errors import StorageError, StorageUnavailable
from perdure.model import Message
from perdure.storage.retained_pages import all_retained

if TYPE_CHECKING:
    from perdure.broker.core import BrokerCore


class Listener(Protocol):
    """Who looks after a prefix."""

    def heard(self, name: str, value: bytes) -> None:
        """A value has changed; an empty one = it is not there any more."""
        ...

    def settle(self) -> None:
        """All that came together was told."""
        ...


@final
class _Returned:
    """Tells of changes of this node when the log gives them back.

    Args:
        notices: tells.
        values: the changes, by topic.
    """

    def __init__(self, notices: Notices, values: Mapping[str, bytes]) -> None:
        self._notices = notices
        self._values = values

    def committed(self) -> None:
        """The log has them."""
        for topic, value in self._values.items():
            self._notices.heard(topic, value)
        self._notices.settle()

    def failed(self, error: StorageError, *, in_doubt: bool) -> None:
        """Who has asked for it is told."""

    def broke(self, error: Exception) -> None:
        """What a listener does must not fail."""
        raise error


@final
class Notices:
    """Keeps them, and tells of them.

    Args:
        core: what every part stands on.

    Attributes:
        listeners: by prefix; to be there before ``load``.
    """

    def __init__(self, core: BrokerCore) -> None:
        self._core = core
        self.listeners: dict[str, Listener] = {}
        self._unsettled: list[Listener] = []

    async def load(self) -> None:
        """Tell of all that is there."""
        for prefix, listener in self.listeners.items():
            async for message in all_retained(self._core.database, prefix + "#"):
                listener.heard(message.topic.removeprefix(prefix), message.payload)
            listener.settle()

    def heard(self, topic: str, value: bytes) -> None:
        """The log has a change; ``settle`` follows, once for all that came together."""
        for prefix, listener in self.listeners.items():
            if topic.startswith(prefix):
                listener.heard(topic.removeprefix(prefix), value)
                if listener not in self._unsettled:
                    self._unsettled.append(listener)

    def settle(self) -> None:
        """Have in force what was heard."""
        while self._unsettled:
            self._unsettled.pop().settle()

    def tell(self, prefix: str, name: str, value: bytes) -> None:
        """Tell the other nodes something that nobody keeps: who is not there does not hear of it.

        It takes the way of a message at QoS 0, so it waits for nothing, nor does anybody for it. It
        is not told at all while the log takes no records.
        """
        core = self._core
        if core.committer.writable:
            core.pipeline.now_us = core.clock.now_us()
            core.committer.batch.pass_on(Message(prefix + name, value), awaited=False)
            core.pipeline.schedule()

    async def change(self, prefix: str, values: Mapping[str, bytes]) -> None:
        """Change some; all nodes have it, or will have it next, when this returns.

        Args:
            prefix: of all.
            values: by name; an empty one takes it away.

        Raises:
            StorageUnavailable: the log takes nothing now, or it is not known whether it has.
        """
        core = self._core
        if not core.committer.writable:
            raise StorageUnavailable("the log takes no records")
        core.pipeline.now_us = core.clock.now_us()
        batch = core.committer.batch
        for name, value in values.items():
            topic = prefix + name
            if value:
                message = Message(
                    topic, value, qos=1, retain=True, published_at_us=core.pipeline.wall_us()
                )
                batch.place(message)
                batch.put_retained(message)
                core.pipeline.dispatch_placed(OffsetAdvance(message))
            else:
                batch.delete_retained(topic)
        told = {prefix + name: value for name, value in values.items()}
        core.committer.wait(_Returned(self, told), LEVEL_OS)
        await core.pipeline.committed()
        if not batch.is_sequenced:
            raise StorageUnavailable(
                "the log has not given it back: it may still count", hint="look, and try again"
            )
