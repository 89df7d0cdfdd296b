"""SUBACK and UNSUBACK, which wait for their commit, and what waits for SUBACK."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from perdure.errors import StorageError
from perdure.mqtt.packets import Packet, Suback, Unsuback
from perdure.mqtt.reason_codes import UNSPECIFIED_ERROR

if TYPE_CHECKING:
    from perdure.broker.connection.client import ClientConnection
    from perdure.broker.core import BrokerCore
    from perdure.broker.delivery.backfill import Backfill
    from perdure.broker.delivery.sender import Sender
    from perdure.broker.runtime.scheduler import Timer

HOLD_US: Final = 1_000_000
"""How long what is sent to a client may wait for SUBACK: it must not take a broker whose log stalls
for dead."""


@final
class Hold:
    """What a client is sent waits for the SUBACK that the log has still to allow.

    Args:
        core: what every part stands on.
        sender: of the connection.
    """

    __slots__ = ("_is_over", "_sender", "_timer")

    def __init__(self, core: BrokerCore, sender: Sender) -> None:
        self._sender: Sender = sender
        self._is_over: bool = False
        sender.hold()
        self._timer: Timer = core.scheduler.call_later(HOLD_US, self._give_up)

    def end(self, packet: Packet) -> bool:
        """Send the answer first; False if it was not waited for so long."""
        if self._is_over:
            return False
        self._is_over = True
        self._timer.cancel()
        self._sender.release(packet)
        return True

    def _give_up(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._sender.release(None)


@final
class SubscriptionAck:
    """SUBACK or UNSUBACK that waits for its commit, and the backfills that begin after it."""

    __slots__ = ("_backfill", "_connection", "_hold", "_names", "_packet")

    def __init__(
        self,
        backfill: Backfill,
        connection: ClientConnection,
        packet: Suback | Unsuback,
        backfills: list[str],
        hold: Hold | None = None,
    ) -> None:
        self._backfill = backfill
        self._connection = connection
        self._packet = packet
        self._names = backfills
        self._hold: Hold | None = hold

    def committed(self) -> None:
        """The subscriptions are durable."""
        connection = self._connection
        if not connection.is_connected:
            return
        hold = self._hold
        if hold is None or not hold.end(self._packet):
            connection.sender.packet(self._packet)
        session = connection.session
        assert session is not None
        for name in self._names:
            self._backfill.start(session, name)

    def failed(self, error: StorageError, *, in_doubt: bool) -> None:
        """The client must subscribe again after a reconnect."""
        self._connection.storage_lost(UNSPECIFIED_ERROR)

    def broke(self, error: Exception) -> None:
        """Its connection ends."""
        self._connection.broke(error, "answer")
