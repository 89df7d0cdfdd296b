"""A network in memory: byte streams that split, delay, stall and break as the seed says.

A ``Wire`` has a broker's end, which is the ``ByteStream`` of a connection, and a client's end.
Bytes of one direction arrive in order or not at all; where they are cut into pieces, and when each
piece arrives, is chance. Delays are multiples of ``TICK_US``, so that several clients speak within
one turn of the broker.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol, final

from perdure.broker.runtime.stream import PeerInfo, StreamHandler
from tests.support.scheduler import VirtualLoop

TICK_US: Final = 50
BUFFER_HIGH_BYTES: Final = 16_384
"""Unread bytes at which the broker's end says that writing must pause."""

PEER: Final = PeerInfo("tcp", "tcp", "127.0.0.1", 50_000, loopback=True)


class ClientHandler(Protocol):
    """What a client's end of a wire tells."""

    def received(self, data: bytes) -> None:
        """Bytes from the broker."""
        ...

    def lost(self) -> None:
        """The connection is gone."""
        ...


class NetworkProfile:
    """Delays and fragmentation of a network; may change while it runs.

    Attributes:
        delays_us: what a piece may take, all equally likely.
        pieces_max: most pieces that one write is cut into.
        buffer_bytes: unread bytes at which the broker's end says that writing must pause.
    """

    def __init__(
        self,
        delays_us: tuple[int, ...] = (0, 50, 100, 200, 500),
        pieces_max: int = 3,
        buffer_bytes: int = BUFFER_HIGH_BYTES,
    ) -> None:
        self.delays_us = delays_us
        self.pieces_max = pieces_max
        self.buffer_bytes = buffer_bytes


@final
class _Lane:
    """One direction of a wire."""

    def __init__(
        self,
        loop: VirtualLoop,
        chance: random.Random,
        profile: NetworkProfile,
        deliver: Callable[[bytes], None],
        drained: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._chance = chance
        self._profile = profile
        self._deliver = deliver
        self._drained = drained
        self._last_us = 0
        self._arrived: deque[bytes] = deque()
        self.is_paused = False
        self.is_cut = False
        self.is_ended = False
        """Nothing more is to be sent; ``drained`` is called when all has arrived."""
        self.bytes_under_way = 0

    def send(self, data: bytes) -> None:
        """Let bytes travel."""
        if not data:
            return
        chance = self._chance
        cuts = sorted(
            chance.randrange(1, len(data))
            for _ in range(chance.randrange(self._profile.pieces_max))
            if len(data) > 1
        )
        for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
            if start < end:
                self.bytes_under_way += end - start
                self._at_arrival(self._arrival(data[start:end]))

    def end(self) -> None:
        """Call ``drained`` when everything sent has been delivered."""
        self.is_ended = True
        self._at_arrival(self._flush)

    def pause(self) -> None:
        """Keep what arrives."""
        self.is_paused = True

    def resume(self) -> None:
        """Deliver what was kept."""
        if self.is_paused:
            self.is_paused = False
            self._loop.call_soon(self._flush)

    def _arrival(self, piece: bytes) -> Callable[[], None]:
        def arrive() -> None:
            self._arrived.append(piece)
            self._flush()

        return arrive

    def _at_arrival(self, callback: Callable[[], None]) -> None:
        now_us = self._loop.clock.monotonic_us()
        at_us = now_us + self._chance.choice(self._profile.delays_us)
        self._last_us = max(self._last_us, -(-at_us // TICK_US) * TICK_US)
        self._loop.call_later(self._last_us - now_us, callback)

    def _flush(self) -> None:
        while self._arrived and not self.is_paused and not self.is_cut:
            piece = self._arrived.popleft()
            self.bytes_under_way -= len(piece)
            self._deliver(piece)
        if not self.bytes_under_way and not self.is_cut:
            self._drained()


@final
class Wire:
    """One connection: ``Network.connect`` makes it."""

    def __init__(
        self,
        loop: VirtualLoop,
        chance: random.Random,
        profile: NetworkProfile,
        client: ClientHandler,
    ) -> None:
        self._loop = loop
        self._client = client
        self._buffer_bytes = profile.buffer_bytes
        self._up = _Lane(loop, chance, profile, self._to_broker, self._up_drained)
        self._down = _Lane(loop, chance, profile, self._to_client, self._down_drained)
        self._handler: StreamHandler | None = None
        self._is_broker_told_to_pause = False
        self._is_broker_closed = False
        self._is_reset = False
        self.is_open = True
        """As the client sees it."""

    def accept(self, handler: StreamHandler) -> None:
        """The broker has made its connection."""
        self._handler = handler

    @property
    def is_done(self) -> bool:
        """Whether neither end has anything to do with it any more."""
        return not self.is_open and self._handler is None

    @property
    def is_left(self) -> bool:
        """Whether the broker has nothing to do with it any more."""
        return self._handler is None

    # The broker's end: ``ByteStream``.

    def write(self, data: bytes) -> None:
        """Queue bytes for the client."""
        if self._is_broker_closed or self._handler is None:
            return
        self._down.send(data)
        if self._down.bytes_under_way > self._buffer_bytes and not self._is_broker_told_to_pause:
            self._is_broker_told_to_pause = True
            self._handler.pause_writing()

    def close(self) -> None:
        """Close after what was written has arrived."""
        if not self._is_broker_closed:
            self._is_broker_closed = True
            self._down.end()
            self._lose_broker(None)

    def abort(self) -> None:
        """Close at once."""
        self.cut()

    def pause_reading(self) -> None:
        """Keep what the client sends."""
        self._up.pause()

    def resume_reading(self) -> None:
        """Take what the client has sent."""
        self._up.resume()

    def write_buffer_size(self) -> int:
        """Bytes that the client has not taken."""
        return self._down.bytes_under_way

    def has_ended(self) -> bool:
        """Whether the client has hung up, and all that it sent was read."""
        return self._up.is_ended and not self._up.bytes_under_way

    # The client's end.

    def send(self, data: bytes) -> None:
        """Send bytes to the broker."""
        if self.is_open:
            self._up.send(data)

    def hang_up(self) -> None:
        """Close in order: what was sent arrives first."""
        if self.is_open:
            self.is_open = False
            self._down.is_cut = True
            self._up.end()

    def end_sending(self) -> None:
        """End the client's direction; what the broker still sends arrives."""
        if self.is_open:
            self._up.end()

    def reset(self) -> None:
        """Close with a reset: what was sent arrives first, what comes back is lost."""
        if self.is_open:
            self.is_open = False
            self._is_reset = True
            self._down.is_cut = True
            self._up.end()

    def vanish(self) -> None:
        """The client is gone and the broker is not told, as when a cable is pulled."""
        self.is_open = False
        self._up.is_cut = True
        self._down.is_cut = True

    def stop_taking(self) -> None:
        """The client reads nothing for a while."""
        self._down.pause()

    def take_again(self) -> None:
        """The client reads again."""
        self._down.resume()

    # Both.

    def cut(self) -> None:
        """The connection breaks: what is under way is lost."""
        self._up.is_cut = True
        self._down.is_cut = True
        self._lose_broker(ConnectionResetError("cut"))
        self._lose_client()

    def broker_died(self) -> None:
        """The broker's process is gone; the kernel still sends what it was given."""
        self._handler = None
        self._up.is_cut = True
        self._is_broker_closed = True
        self._down.end()

    def _to_broker(self, data: bytes) -> None:
        if self._handler is not None and not self._is_broker_closed:
            self._handler.receive(data)

    def _to_client(self, data: bytes) -> None:
        if self.is_open:
            self._client.received(data)

    def _up_drained(self) -> None:
        if self._up.is_ended and self._handler is not None:
            if not self._is_broker_closed:
                self._down.end()  # an end that is told of is answered by one
            self._lose_broker(ConnectionResetError("reset") if self._is_reset else None)

    def _down_drained(self) -> None:
        if self._is_broker_told_to_pause and self._handler is not None:
            self._is_broker_told_to_pause = False
            if not self._is_broker_closed:
                self._handler.resume_writing()
        if self._down.is_ended:
            self._lose_client()

    def _lose_broker(self, error: BaseException | None) -> None:
        handler, self._handler = self._handler, None
        self._is_broker_closed = True
        if handler is not None:
            self._loop.call_soon(lambda: handler.connection_lost(error))

    def _lose_client(self) -> None:
        if self.is_open:
            self.is_open = False
            self._loop.call_soon(self._client.lost)


@final
class Network:
    """All wires to one address; the broker behind it may die and come back.

    Args:
        loop: of the simulation.
        chance: where bytes are cut and how long they take.
        profile: delays and fragmentation.
    """

    def __init__(
        self, loop: VirtualLoop, chance: random.Random, profile: NetworkProfile | None = None
    ) -> None:
        self.profile = profile or NetworkProfile()
        self._loop = loop
        self._chance = chance
        self._accept: Callable[[Wire], StreamHandler] | None = None
        self._wires: list[Wire] = []

    @property
    def is_listening(self) -> bool:
        """Whether a broker takes connections."""
        return self._accept is not None

    def listen(self, accept: Callable[[Wire], StreamHandler]) -> None:
        """A broker is there; ``accept`` makes the connection of a wire."""
        self._accept = accept

    def connect(self, client: ClientHandler) -> Wire | None:
        """Connect a client; None if nobody listens."""
        if self._accept is None:
            return None
        wire = Wire(self._loop, self._chance, self.profile, client)
        wire.accept(self._accept(wire))
        self._wires = [other for other in self._wires if not other.is_done]
        self._wires.append(wire)
        return wire

    def broker_died(self) -> None:
        """The broker's process is gone, and every connection with it."""
        self._accept = None
        for wire in self._wires:
            wire.broker_died()
        self._wires = []
