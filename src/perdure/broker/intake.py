"""What one client has sent and nobody has processed yet, and whether more of it is read.

Reading stops for two reasons that do not know of each other: it is *held* while a packet is
worked on that those behind it must wait for, and *paused* while commits are behind or a rate is
exceeded. While a packet waits, those behind it are kept here in their order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from perdure.broker.scheduler import Gate
from perdure.errors import MqttError
from perdure.mqtt.packets import Packet
from perdure.mqtt.reason_codes import PROTOCOL_ERROR

if TYPE_CHECKING:
    from perdure.broker.scheduler import Scheduler
    from perdure.broker.stream import ByteStream
    from perdure.mqtt.decode import Decoder


@final
class Intake:
    """The incoming half of a connection, up to where its packets are processed.

    Args:
        scheduler: ends a pause.
        stream: the transport.
        decoder: tells why no packet will come any more.

    Attributes:
        is_held: packets are kept until ``release``.
        is_paused: the stream is not read until ``commits_caught_up``.
    """

    __slots__ = (
        "_backlog",
        "_decoder",
        "_gate",
        "_is_closed",
        "_scheduler",
        "_stream",
        "is_held",
        "is_paused",
    )

    def __init__(self, scheduler: Scheduler, stream: ByteStream, decoder: Decoder) -> None:
        self._scheduler: Scheduler = scheduler
        self._stream: ByteStream = stream
        self._decoder: Decoder = decoder
        self._backlog: list[Packet] = []
        self._gate: Gate | None = None
        self._is_closed: bool = False
        self.is_held: bool = False
        self.is_paused: bool = False

    # Held: a packet is worked on.

    def hold(self) -> None:
        """Keep the packets that follow until ``release``."""
        self.is_held = True
        self._stream.pause_reading()

    def keep(self, packets: list[Packet]) -> None:
        """Packets that came although they must wait."""
        self._backlog.extend(packets)
        if self._gate is not None:
            self._gate.open()

    def put_back(self, packets: list[Packet]) -> None:
        """Packets that were taken and must wait after all, before those that are kept."""
        self._backlog = packets + self._backlog

    def release(self) -> list[Packet]:
        """Hold no longer; the packets that were kept."""
        self.is_held = False
        if self._is_closed:
            return []
        if not self.is_paused:
            self._stream.resume_reading()
        backlog = self._backlog
        self._backlog = []
        return backlog

    async def next_packet(self) -> Packet:
        """Wait, while held, for one packet that must not wait: it is part of what is worked on.

        Reading goes on until ``hold``.

        Raises:
            MqttError: there will be none.
        """
        self._stream.resume_reading()
        while not self._backlog:
            if self._is_closed:
                raise MqttError(PROTOCOL_ERROR, "closed")
            if self._decoder.failure is not None:
                raise self._decoder.failure
            self._gate = self._scheduler.gate()
            await self._gate
        return self._backlog.pop(0)

    # Paused: we are behind, or the client is too fast.

    def pause(self) -> None:
        """Read nothing until ``commits_caught_up``."""
        self.is_paused = True
        self._stream.pause_reading()

    def throttle(self, wait_us: int) -> None:
        """Read nothing for a while; what was read already is processed."""
        if not self.is_paused:
            self.pause()
            self._scheduler.call_later(wait_us, self.commits_caught_up)

    def commits_caught_up(self) -> None:
        """Read on after a pause."""
        if self.is_paused:
            self.is_paused = False
            if not self._is_closed:
                self._stream.resume_reading()

    def close(self) -> None:
        """Forget what was kept; who waits for a packet gets none."""
        self._is_closed = True
        self._backlog.clear()
        if self._gate is not None:
            self._gate.open()
