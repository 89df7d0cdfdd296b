"""The seam between transports and connections: what each may ask of the other.

A transport shell (``tcp``, ``websocket``) is a ``ByteStream`` to its connection; the connection is
a ``StreamHandler`` to its shell. Neither knows which class stands on the other side, so a test
drives a connection with a list of bytes, and a shell with an echo.

Invariant: after ``connection_lost`` the shell calls nothing more of the handler, and whatever the
handler still calls on the stream does nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias, final


class ByteStream(Protocol):
    """The sending half of a transport, as a connection sees it."""

    def write(self, data: bytes) -> None:
        """Queue ``data``; on WebSocket one call is one binary frame."""
        ...

    def close(self) -> None:
        """Close after what was written has been flushed; ``connection_lost`` follows."""
        ...

    def abort(self) -> None:
        """Close at once and drop what was not sent; ``connection_lost`` follows."""
        ...

    def pause_reading(self) -> None:
        """Stop ``receive`` calls until ``resume_reading``; may be repeated."""
        ...

    def resume_reading(self) -> None:
        """Let ``receive`` calls come again; may be repeated."""
        ...

    def write_buffer_size(self) -> int:
        """Bytes written and not yet given to the operating system."""
        ...

    def has_ended(self) -> bool:
        """Whether the peer has hung up and nothing of it is left to read, also while reading is
        paused; False if that cannot be told."""
        ...


@final
class NoStream:
    """The ``ByteStream`` of a connection that is gone."""

    def write(self, data: bytes) -> None:
        """Nobody reads it."""

    def close(self) -> None:
        """It is."""

    def abort(self) -> None:
        """It is closed."""

    def pause_reading(self) -> None:
        """Nothing comes."""

    def resume_reading(self) -> None:
        """Nothing comes."""

    def write_buffer_size(self) -> int:
        """Nothing is kept."""
        return 0

    def has_ended(self) -> bool:
        """It has."""
        return True


@final
@dataclass(frozen=True, slots=True)
class PeerInfo:
    """Who is on the other side, and through which listener it came."""

    listener: str
    """Name of the listener in the configuration."""
    kind: str
    """How bytes travel on it (``config.listener_kinds``)."""
    address: str
    """IP address of the client, from the PROXY header where the listener trusts one."""
    port: int
    loopback: bool
    """The client is on this machine."""
    certificate_subject: str | None = None
    """Common name of the verified client certificate, or ``None``."""
    certificate: bytes = b""
    """That certificate, DER."""


class StreamHandler(Protocol):
    """What a shell drives: the part of a connection that faces its transport."""

    def receive(self, data: bytes) -> None:
        """Take bytes from the peer, in any split."""
        ...

    def connection_lost(self, exc: BaseException | None) -> None:
        """The transport is gone; ``exc`` is ``None`` when it was closed in order."""
        ...

    def pause_writing(self) -> None:
        """The send buffer is above the high-water mark."""
        ...

    def resume_writing(self) -> None:
        """The send buffer is below the low-water mark again."""
        ...

    def close(self, reason_code: int) -> None:
        """Take leave of the peer with an MQTT reason code, then close the stream."""
        ...


ConnectionFactory: TypeAlias = Callable[[ByteStream, PeerInfo], StreamHandler]
"""Makes the connection of a transport that is ready for MQTT bytes."""
