"""What a benchmark's payload says of itself, and PUBLISH frames made at one stroke.

::

    payload   run tag (4)  stream (4)  counter (8)  sent at, ns (8)  zeros

A *stream* is one publisher's messages on one topic; its counter goes 0, 1, 2, ... The time is
monotonic, of the machine that both sends and receives. All frames of one stream have the same
size, so a frame is one ``struct.pack``, and a run of received ones a single ``iter_unpack``.
"""

from __future__ import annotations

import functools
import struct
from typing import Final, final

from perdure.mqtt.primitives import text, varint

STAMP: Final = struct.Struct(">IIQQ")
PAYLOAD_SIZE_MIN: Final = STAMP.size

_V5: Final = 5

# Shared by the streams of a run: there may be a million of them.
_layout = functools.cache(struct.Struct)
_zeros = functools.cache(bytes)


@final
class Stream:
    """One publisher's messages on one topic.

    Args:
        number: names the stream within the run.
        topic: where they go.
        qos: of each message.
        version: protocol level, 4 or 5.
        payload_size: bytes, at least ``PAYLOAD_SIZE_MIN``.
        retain: sets RETAIN on each.

    Attributes:
        counter: how many were made.
    """

    __slots__ = ("_head", "_pack", "_padding", "counter", "number", "qos", "topic")

    def __init__(
        self,
        number: int,
        topic: str,
        *,
        qos: int,
        version: int,
        payload_size: int,
        retain: bool = False,
    ) -> None:
        assert payload_size >= PAYLOAD_SIZE_MIN
        self.number: int = number
        self.topic: str = topic
        self.qos: int = qos
        self.counter: int = 0
        name = text(topic)
        size = len(name) + (2 if qos else 0) + (1 if version == _V5 else 0) + payload_size
        self._head: bytes = bytes((0x30 | qos << 1 | retain,)) + varint(size) + name
        self._padding: bytes = _zeros(payload_size - STAMP.size)
        packet_id = "H" if qos else ""
        properties = "x" if version == _V5 else ""
        self._pack = _layout(
            f">{len(self._head)}s{packet_id}{properties}IIQQ{len(self._padding)}s"
        ).pack

    def frame(self, packet_id: int, tag: int, sent_ns: int) -> bytes:
        """The next PUBLISH of the stream.

        Args:
            packet_id: not used with QoS 0.
            tag: of the run.
            sent_ns: when it is sent, or should have been.
        """
        counter = self.counter
        self.counter = counter + 1
        if self.qos:
            return self._pack(
                self._head, packet_id, tag, self.number, counter, sent_ns, self._padding
            )
        return self._pack(self._head, tag, self.number, counter, sent_ns, self._padding)


@final
class Shape:
    """Where the fields of a received PUBLISH are, for frames like one that was seen.

    Attributes:
        head: first byte and remaining length: frames that begin so have this shape.
        size: of the whole frame.
        packet_id_at: offset of the packet identifier in the frame.
        unpack: (packet identifier, tag, stream, counter, sent at) of each frame of a run; without
            the packet identifier for QoS 0.
    """

    __slots__ = ("head", "packet_id_at", "qos", "size", "unpack")

    def __init__(self, head: bytes, *, size: int, packet_id_at: int, payload_at: int) -> None:
        self.head: bytes = head
        self.size: int = size
        self.qos: int = head[0] >> 1 & 3
        self.packet_id_at: int = packet_id_at
        rest = size - payload_at - STAMP.size
        if self.qos:
            between = payload_at - packet_id_at - 2
            fields = f">{packet_id_at}xH{between}xIIQQ{rest}x"
        else:
            fields = f">{payload_at}xIIQQ{rest}x"
        self.unpack = struct.Struct(fields).iter_unpack

    def run(self, data: bytes, at: int, end: int) -> int:
        """How many complete frames of this shape stand one after the other at ``at``."""
        size = self.size
        count = (end - at) // size
        if count <= 1:
            return count
        stop = at + count * size
        for index, byte in enumerate(self.head):
            column = data[at + index : stop : size]
            if column.count(byte) != count:
                good = len(column) - len(column.lstrip(column[:1]))
                count = min(count, good)
                stop = at + count * size
        return count


NO_SHAPE: Final = Shape(b"\x00\x00", size=STAMP.size + 8, packet_id_at=0, payload_at=8)
"""Matches no PUBLISH: its first byte is not one."""


def shape_of(data: bytes, at: int, body: int, stop: int, *, version: int) -> Shape | None:
    """The shape of a PUBLISH in ``data[at:stop]``; None if it is too short for a stamp.

    Args:
        body: where the variable header begins.
    """
    topic_size = int.from_bytes(data[body : body + 2], "big")
    here = body + 2 + topic_size
    packet_id_at = here - at
    if data[at] & 0x06:
        here += 2
    if version == _V5:
        length, here = _varint(data, here)
        here += length
    if stop - here < STAMP.size:
        return None
    return Shape(data[at:body], size=stop - at, packet_id_at=packet_id_at, payload_at=here - at)


def frame_bounds(data: bytes, at: int, end: int) -> tuple[int, int]:
    """(where the body begins, where the frame ends); the end is -1 while it is incomplete."""
    if end - at < 2:
        return at, -1
    size = data[at + 1]
    if size < 0x80:
        stop = at + 2 + size
        return at + 2, stop if stop <= end else -1
    value, shift, here = 0, 0, at + 1
    while here < end and here < at + 5:
        value |= (data[here] & 0x7F) << shift
        if data[here] < 0x80:
            stop = here + 1 + value
            return here + 1, stop if stop <= end else -1
        shift += 7
        here += 1
    return at, -1


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A variable byte integer that is known to be complete."""
    value, shift = 0, 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
