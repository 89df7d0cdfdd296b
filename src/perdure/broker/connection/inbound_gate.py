"""What one client has sent and nobody has processed yet, and whether more of it is read.

Reading stops for reasons that do not know of each other:

* *held*: a packet is worked on that those behind it must wait for;
* *paused*: commits are behind, or a rate is exceeded;
* *blocked*: the client does not take what it is answered;
* *behind*: a slice was not enough for what was read (``turn_budget``);
* *short*: the packet that has begun has no room among those of all clients (``inbound_frames``).

Packets that were decoded and must wait are kept here in their order; bytes that nobody has looked
at stay with the decoder. Both are bounded, since nothing is read meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, final

from perdure.broker.runtime.scheduler import Gate
from perdure.errors import MqttError
from perdure.mqtt.packets import Packet
from perdure.mqtt.reason_codes import PROTOCOL_ERROR

if TYPE_CHECKING:
    from perdure.broker.runtime.scheduler import Scheduler
    from perdure.broker.runtime.stream import ByteStream
    from perdure.mqtt.decode import Decoder

_HELD: Final = 1
_PAUSED: Final = 2
_BLOCKED: Final = 4
_BEHIND: Final = 8
_SHORT: Final = 16


class Resumed(Protocol):
    """Who goes on when no reason to wait is left."""

    def go_on(self) -> None:
        """Process what was kept, or read on."""
        ...


@final
class InboundGate:
    """The incoming half of a connection, up to where its packets are processed.

    Args:
        scheduler: ends a throttle.
        stream: the transport.
        decoder: has the bytes that were not looked at.
        owner: told when no reason to wait is left.

    Attributes:
        waits: there is a reason: what comes is not processed now.
    """

    __slots__ = (
        "_backlog",
        "_decoder",
        "_gate",
        "_is_closed",
        "_owner",
        "_reasons",
        "_scheduler",
        "_stream",
        "waits",
    )

    def __init__(
        self, scheduler: Scheduler, stream: ByteStream, decoder: Decoder, owner: Resumed
    ) -> None:
        self._scheduler: Scheduler = scheduler
        self._stream: ByteStream = stream
        self._decoder: Decoder = decoder
        self._owner: Resumed = owner
        self._backlog: list[Packet] = []
        self._gate: Gate | None = None
        self._is_closed: bool = False
        self._reasons: int = 0
        self.waits: bool = False

    @property
    def is_held(self) -> bool:
        """Packets are kept until ``release``."""
        return self._reasons & _HELD != 0

    @property
    def awaits_packet(self) -> bool:
        """What is worked on waits for the client to send its next packet."""
        return self._gate is not None

    @property
    def keeps_any(self) -> bool:
        """Something has come that was not processed."""
        return bool(self._backlog) or self._decoder.has_more

    @property
    def is_paused(self) -> bool:
        """We are behind with commits, or the client is too fast."""
        return self._reasons & _PAUSED != 0

    @property
    def is_blocked(self) -> bool:
        """The client does not take what it is sent."""
        return self._reasons & _BLOCKED != 0

    def _stop(self, reason: int) -> None:
        self._reasons |= reason
        self.waits = True
        if not self._is_closed:
            self._stream.pause_reading()

    def _lift(self, reason: int) -> None:
        if not self._reasons & reason:
            return
        self._reasons &= ~reason
        if not self._reasons:
            self.waits = False
            if not self._is_closed:
                self._owner.go_on()

    def read_on(self) -> None:
        """Nothing is kept any more: read, unless there is a reason not to."""
        if not self._reasons and not self._is_closed:
            self._stream.resume_reading()

    # Held: a packet is worked on.

    def hold(self) -> None:
        """Keep the packets that follow until ``release``."""
        self._stop(_HELD)

    def arrived(self) -> None:
        """Bytes came while there is a reason to wait; the decoder has them."""
        if self._gate is not None:
            self._gate.open()

    def put_back(self, packets: list[Packet]) -> None:
        """Packets that were taken and must wait after all, before those that are kept."""
        if not self._is_closed:
            self._backlog = packets + self._backlog

    def release(self) -> list[Packet]:
        """Hold no longer; the packets that were kept, to be processed before ``go_on``."""
        self._reasons &= ~_HELD
        self.waits = self._reasons != 0
        backlog = self._backlog
        self._backlog = []
        return [] if self._is_closed else backlog

    async def next_packet(self) -> Packet:
        """Wait, while held, for one packet that must not wait: it is part of what is worked on.

        Reading goes on until ``hold``.

        Raises:
            MqttError: there will be none.
        """
        while not self._backlog:
            if self._is_closed:
                raise MqttError(PROTOCOL_ERROR, "closed")
            self._backlog.extend(self._decoder.feed(b"", 1))
            if self._backlog:
                break
            if self._decoder.failure is not None:
                raise self._decoder.failure
            self._gate = self._scheduler.gate()
            self._stream.resume_reading()
            await self._gate
            self._gate = None
        return self._backlog.pop(0)

    # Paused: we are behind, or the client is too fast.

    def pause(self) -> None:
        """Read and process nothing until ``commits_caught_up``."""
        self._stop(_PAUSED)

    def throttle(self, wait_us: int) -> None:
        """Read nothing for a while; the slice that is being processed is finished."""
        if not self.is_paused:
            self.pause()
            self._scheduler.call_later(wait_us, self.commits_caught_up)

    def commits_caught_up(self) -> None:
        """Go on after a pause."""
        self._lift(_PAUSED)

    # Blocked, behind, short.

    def block(self) -> None:
        """The client does not read: nothing more is answered until ``unblock``."""
        self._stop(_BLOCKED)

    def unblock(self) -> None:
        """The client reads again."""
        self._lift(_BLOCKED)

    def fall_behind(self) -> bool:
        """Wait for another slice; False if that was so already."""
        if self._reasons & _BEHIND:
            return False
        self._stop(_BEHIND)
        return True

    def catch_up(self) -> bool:
        """The slice has come; whether there is no other reason to wait."""
        self._reasons &= ~_BEHIND
        self.waits = self._reasons != 0
        return not self.waits and not self._is_closed

    def run_short(self) -> None:
        """Read nothing until there is room for the packet that has begun."""
        self._stop(_SHORT)

    def has_room(self) -> None:
        """There is room for it."""
        self._lift(_SHORT)

    def close(self) -> None:
        """Forget what was kept; who waits for a packet gets none."""
        self._is_closed = True
        self._backlog.clear()
        self._decoder.close()
        if self._gate is not None:
            self._gate.open()
