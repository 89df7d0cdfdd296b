"""How long a client may be silent: until its CONNECT is here, and then by its keep alive.

Between the two it is the broker that owes an answer: who waits for it too long hears so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from perdure.broker.runtime.scheduler import Timer
from perdure.mqtt.reason_codes import KEEP_ALIVE_TIMEOUT, SERVER_BUSY

if TYPE_CHECKING:
    from perdure.broker.connection.client import ClientConnection
    from perdure.broker.core import BrokerCore


@final
class KeepAlive:
    """Ends a connection on which nothing comes.

    A packet costs nothing here: the timer looks at when the last bytes came, and is set anew for
    the rest. A client that does not take what it is sent is not read from, so there the timer looks
    whether it takes anything at all.

    Args:
        core: what every part stands on.
        connection: which is ended.
    """

    __slots__ = ("_connection", "_core", "_limit_us", "_refusal", "_timer", "_unsent_bytes")

    def __init__(self, core: BrokerCore, connection: ClientConnection) -> None:
        self._core: BrokerCore = core
        self._connection: ClientConnection = connection
        self._limit_us: int = 0
        self._refusal: tuple[int, str] = (0, "")
        self._unsent_bytes: int = 0
        """What the client had not taken when the timer looked last; 0 = it was not blocked."""
        self._timer: Timer | None = None
        self._begin()

    def connack_is_due(self) -> None:
        """The CONNECT is here, and something must be waited for before it is answered."""
        self.stop()
        self._begin()

    def refuse_later(self, delay_us: int, reason_code: int, reason: str) -> None:
        """Let the client wait for a refusal that the log has already."""
        self.stop()
        self._refusal = (reason_code, reason)
        self._timer = self._core.scheduler.call_later(delay_us, self._refuse)

    def start(self, keep_alive_s: int) -> None:
        """Expect a packet at least every one and a half keep alives [MQTT-3.1.2-22]; 0 = never."""
        self.stop()
        self._limit_us = keep_alive_s * 1_500_000
        if self._limit_us:
            self._timer = self._core.scheduler.call_later(self._limit_us, self._look)

    def stop(self) -> None:
        """Expect nothing more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        try:
            self._look_now()
        except Exception as error:  # noqa: BLE001 - a timer of one connection costs that one
            self._connection.broke(error, "timer")

    def _look_now(self) -> None:
        connection = self._connection
        silent_us = self._core.clock.monotonic_us() - connection.received_us
        left_us = self._limit_us - silent_us
        inbound_gate = connection.inbound_gate
        if inbound_gate.is_blocked:
            unsent_bytes = connection.write_buffer_size()
            is_stuck = 0 < self._unsent_bytes <= unsent_bytes
            self._unsent_bytes = unsent_bytes
            left_us = 0 if is_stuck else self._limit_us
        else:
            self._unsent_bytes = 0
            if inbound_gate.waits:
                left_us = max(left_us, self._limit_us // 2)  # it is we who do not read
        if left_us > 0:
            self._timer = self._core.scheduler.call_later(left_us, self._look)
            return
        connection.disconnect(KEEP_ALIVE_TIMEOUT, "keep alive timeout", send_will=True)

    def _refuse(self) -> None:
        self._timer = None
        reason_code, reason = self._refusal
        try:
            self._connection.disconnect(reason_code, reason, send_will=False, is_logged=True)
        except Exception as error:  # noqa: BLE001 - as above
            self._connection.broke(error, "timer")

    def _begin(self) -> None:
        self._timer = self._core.scheduler.call_later(
            self._core.mqtt_config.connect_timeout_ms * 1000, self._connect_is_late
        )

    def _connect_is_late(self) -> None:
        self._timer = None
        connection = self._connection
        try:
            if connection.is_connack_due:
                connection.disconnect(SERVER_BUSY, "not decided in time", send_will=False)
            else:
                connection.give_up("connect timeout")
        except Exception as error:  # noqa: BLE001 - as above
            self._connection.broke(error, "timer")
