"""What an output keeps: it is opened, given messages in log order, and closed.

An output is made anew for each connection to its target, and used by one task. What it raises ends
the connection: ``TargetUnavailable`` and ``OSError`` are tried again after a pause, a
``ConfigError`` stops the forwarder until somebody changes its settings.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple, final

from perdure.model import Cursor, Message

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from perdure.broker.core import BrokerCore
    from perdure.broker.publish.path import PublishPath
    from perdure.config.schema import ForwarderConfig
    from perdure.forwarders.counts import Counts
    from perdure.forwarders.session import DurableSession

__all__ = ["Context", "Output", "OutputOpener", "Refusal"]


@final
class Refusal(NamedTuple):
    """A message that the target will never take.

    Attributes:
        message: as it was given.
        reason: what the target says.
    """

    message: Message
    reason: str


@final
@dataclass(frozen=True, slots=True)
class Context:
    """What an output is given.

    Attributes:
        name: of the forwarder.
        origin: identity of this broker, for loop protection.
        core: of the broker.
        publish_path: takes messages that come from the target.
        session: the forwarder's own.
        counts: what is counted.
        log: where events go.
    """

    name: str
    origin: str
    core: BrokerCore
    publish_path: PublishPath
    session: DurableSession
    counts: Counts
    log: FilteringBoundLogger

    @property
    def setting(self) -> str:
        """Path of the forwarder's section."""
        return f"forwarders.{self.name}"


class Output(ABC):
    """A connection to a target.

    Settings are also checked by making one, without a broker: the constructor touches neither
    ``core`` nor ``session``.

    Attributes:
        reads_log: it is given messages; False = it only brings some.
        numbers: expired messages are given too, for each takes a serial number.
        passed_over: messages of the last ``write`` that were neither sent nor refused.
    """

    reads_log: bool = True
    numbers: ClassVar[bool] = False
    passed_over: int = 0

    @abstractmethod
    async def open(self, cursor: Cursor) -> int:
        """Connect.

        Args:
            cursor: how far the forwarder was.

        Returns:
            The offset up to which the target is known to have everything; 0 = it does not tell.

        Raises:
            TargetUnavailable, OSError: it is not there now.
            ConfigError: it can never be so.
        """

    @abstractmethod
    async def write(self, messages: Sequence[Message]) -> list[Refusal] | None:
        """Hand messages over; all but those that are returned are safe at the target then.

        Args:
            messages: in log order, one or more; none was passed by the cursor.

        Returns:
            What is refused; None = one of several is, the target does not say which, and none of
            them is there: they are given again in halves, and the cursor follows.

        Raises:
            TargetUnavailable, OSError: some may be there; all will be given again.
        """

    def advance(self, cursor: Cursor, *, count: int, through_offset: int) -> Cursor:
        """The cursor after a page was handed over.

        Args:
            cursor: before it.
            count: messages of the page that ``write`` was given.
            through_offset: everything up to here was read.
        """
        serial = cursor.serial + count
        return Cursor(through_offset, serial, sent=serial)

    def check(self) -> None:
        """Do nothing while the target is there; called while there is nothing to forward.

        Raises:
            TargetUnavailable, OSError: it has gone.
        """
        return

    @abstractmethod
    async def close(self) -> None:
        """Let go; harmless when ``open`` has failed."""


OutputOpener = Callable[["ForwarderConfig", Context], Output]
"""``open_output`` of a type's module; raises ``ConfigError`` for settings that cannot be used."""
