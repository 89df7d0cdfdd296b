"""How long a client may be silent: until its CONNECT is answered, and then by its keep alive."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from perdure.broker.scheduler import Timer
from perdure.mqtt.reason_codes import KEEP_ALIVE_TIMEOUT

if TYPE_CHECKING:
    from perdure.broker.connection import Connection
    from perdure.broker.services import Services


@final
class KeepAlive:
    """Ends a connection on which nothing comes.

    A packet costs nothing here: the timer looks at when the last bytes came, and is set anew for
    the rest. A client that does not take what it is sent is not read from, so there the timer looks
    whether it takes anything at all.

    Args:
        services: the parts of the broker.
        connection: which is ended.
    """

    __slots__ = ("_connection", "_limit_us", "_services", "_timer", "_unsent_bytes")

    def __init__(self, services: Services, connection: Connection) -> None:
        self._services: Services = services
        self._connection: Connection = connection
        self._limit_us: int = 0
        self._unsent_bytes: int = 0
        """What the client had not taken when the timer looked last; 0 = it was not blocked."""
        self._timer: Timer | None = services.scheduler.call_later(
            services.mqtt_config.connect_timeout_ms * 1000, self._connect_is_late
        )

    def start(self, keep_alive_s: int) -> None:
        """Expect a packet at least every one and a half keep alives [MQTT-3.1.2-22]; 0 = never."""
        self.stop()
        self._limit_us = keep_alive_s * 1_500_000
        if self._limit_us:
            self._timer = self._services.scheduler.call_later(self._limit_us, self._look)

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
        silent_us = self._services.clock.monotonic_us() - connection.received_us
        left_us = self._limit_us - silent_us
        intake = connection.intake
        if intake.is_blocked:
            unsent_bytes = connection.write_buffer_size()
            is_stuck = 0 < self._unsent_bytes <= unsent_bytes
            self._unsent_bytes = unsent_bytes
            left_us = 0 if is_stuck else self._limit_us
        else:
            self._unsent_bytes = 0
            if intake.waits:
                left_us = max(left_us, self._limit_us // 2)  # it is we who do not read
        if left_us > 0:
            self._timer = self._services.scheduler.call_later(left_us, self._look)
            return
        connection.disconnect(KEEP_ALIVE_TIMEOUT, "keep alive timeout", send_will=True)

    def _connect_is_late(self) -> None:
        self._timer = None
        try:
            self._connection.give_up("connect timeout")
        except Exception as error:  # noqa: BLE001 - as above
            self._connection.broke(error, "timer")
