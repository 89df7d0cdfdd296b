"""WebSocket frames of one client, as a stream of payload bytes (RFC 6455 section 5).

Knows no sockets. What a data frame carries is handed on as it comes, so no frame is ever held in
memory; control frames have at most 125 bytes. Reading stops after a number of frames, and goes on
when it is told to: a client may send one byte in each frame.

Invariant: whatever the bytes and however they are cut, nothing is raised; after ``end`` is set
nothing is read.
"""

from __future__ import annotations

from typing import Final, final

try:
    from websockets.speedups import apply_mask
except ImportError:  # built without its C part
    from websockets.utils import apply_mask

CONTINUATION: Final = 0x0
TEXT: Final = 0x1
BINARY: Final = 0x2
CLOSE: Final = 0x8
PING: Final = 0x9
PONG: Final = 0xA

NORMAL_CLOSURE: Final = 1000
PROTOCOL_ERROR: Final = 1002
UNSUPPORTED_DATA: Final = 1003
INVALID_DATA: Final = 1007
MESSAGE_TOO_BIG: Final = 1009

CONTROL_BYTES_MAX: Final = 125
"""Payload of a control frame (section 5.5)."""

_KNOWN: Final = frozenset((CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG))
_CLOSE_CODES: Final = frozenset((1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013))


def frame(opcode: int, payload: bytes) -> bytes:
    """A whole frame as a server sends it."""
    size = len(payload)
    if size < 126:
        return bytes((0x80 | opcode, size)) + payload
    if size < 65_536:
        return bytes((0x80 | opcode, 126, size >> 8, size & 0xFF)) + payload
    return bytes((0x80 | opcode, 127)) + size.to_bytes(8, "big") + payload


def close_payload(code: int, reason: str = "") -> bytes:
    """What a Close frame carries."""
    return code.to_bytes(2, "big") + reason.encode()


@final
class FrameReader:
    """Reads what one client sends after its handshake.

    Args:
        message_bytes_max: payload of one message, all its fragments together.

    Attributes:
        pongs: payloads of PINGs, to be answered by whoever fed them and taken away.
        end: payload of the Close frame that is to be sent, as answer or because of a fault; None
            while the stream goes on.
        is_faulty: ``end`` is because of a fault.
    """

    __slots__ = (
        "_control",
        "_in_message",
        "_left",
        "_mask",
        "_message_bytes",
        "_message_bytes_max",
        "_opcode",
        "_rest",
        "_rest_at",
        "_stopped",
        "end",
        "is_faulty",
        "pongs",
    )

    def __init__(self, message_bytes_max: int) -> None:
        self._message_bytes_max: int = message_bytes_max
        # The frame that is being read: its kind, what is to come of it, how it is masked.
        self._opcode: int = -1
        self._left: int = 0
        self._mask: bytes = b""
        self._control: bytes = b""
        # The message that is being read, which may have several frames.
        self._in_message: bool = False
        self._message_bytes: int = 0
        self._rest: bytes = b""
        self._rest_at: int = 0
        self._stopped: bool = False
        self.pongs: list[bytes] = []
        self.end: bytes | None = None
        self.is_faulty: bool = False

    @property
    def has_more(self) -> bool:
        """Whether frames are kept that were not read for want of a budget."""
        return self._stopped and self.end is None

    def keep(self, data: bytes) -> None:
        """Keep bytes for the next ``feed``."""
        if self.end is None:
            self._rest = self._rest[self._rest_at :] + data
            self._rest_at = 0
            self._stopped = True

    def feed(self, data: bytes, frames_max: int) -> bytes:
        """Read more.

        Args:
            data: more bytes, perhaps none.
            frames_max: frames that may begin; at least 1.

        Returns:
            What the data frames carried, in one piece.
        """
        if self._is_over():
            return b""
        at = 0
        if self._rest:
            if data:
                data = self._rest[self._rest_at :] + data
            else:
                data = self._rest
                at = self._rest_at
        self._stopped = False
        pieces: list[bytes] = []
        size = len(data)
        while not self._is_over():
            if self._opcode < 0:
                if at < size and frames_max <= 0:
                    self._stopped = True
                    break
                frames_max -= 1
                following = self._head(data, at, size)
                if following < 0:
                    break
                at = following
            stop = min(size, at + self._left)
            if stop > at:
                self._payload(data[at:stop], pieces)
                at = stop
            if self._left:
                break
            self._frame_over()
        if self._is_over() or at >= size:
            self._rest = b""
            self._rest_at = 0
        else:
            self._rest = data
            self._rest_at = at
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _is_over(self) -> bool:
        """Whether nothing more counts. A call, for the type checker and with it the compiler take
        an attribute that was None for None, whatever is called in between."""
        return self.end is not None

    def _head(self, data: bytes, at: int, size: int) -> int:
        """Read the head of a frame; where its payload begins, -1 if there is none (yet)."""
        if at + 2 > size:
            return -1
        first = data[at]
        second = data[at + 1]
        opcode = first & 0x0F
        if first & 0x70 or opcode not in _KNOWN:
            return self._fail(PROTOCOL_ERROR, "reserved bits or an unknown kind of frame")
        if second < 0x80:
            return self._fail(PROTOCOL_ERROR, "a client must mask its frames")
        length = second & 0x7F
        at += 2
        if opcode >= CLOSE and (length > CONTROL_BYTES_MAX or first < 0x80):
            return self._fail(PROTOCOL_ERROR, "a control frame is too long or in pieces")
        if length == 126:
            if at + 2 > size:
                return -1
            length = data[at] << 8 | data[at + 1]
            at += 2
        elif length == 127:
            if at + 8 > size:
                return -1
            length = int.from_bytes(data[at : at + 8], "big")
            at += 8
        if at + 4 > size:
            return -1
        if opcode < CLOSE and not self._continues(opcode, first >= 0x80, length):
            return -1
        self._mask = data[at : at + 4]
        self._opcode = opcode
        self._left = length
        return at + 4

    def _continues(self, opcode: int, is_last: bool, length: int) -> bool:
        """Whether a data frame may come here; it counts as part of its message then."""
        if opcode == TEXT:
            # [MQTT-6.0.0-1] any other type of data frame closes the connection.
            self._fail(UNSUPPORTED_DATA, "MQTT needs binary frames")
            return False
        if self._in_message != (opcode == CONTINUATION):
            self._fail(PROTOCOL_ERROR, "a fragment out of its place")
            return False
        before = self._message_bytes if self._in_message else 0
        if before + length > self._message_bytes_max:
            self._fail(MESSAGE_TOO_BIG, f"a message has more than {self._message_bytes_max} bytes")
            return False
        self._message_bytes = before + length
        self._in_message = not is_last
        return True

    def _payload(self, masked: bytes, pieces: list[bytes]) -> None:
        """Take a part of the payload, or all of it."""
        count = len(masked)
        plain = apply_mask(masked, self._mask)
        phase = count & 3
        if phase:
            self._mask = self._mask[phase:] + self._mask[:phase]
        self._left -= count
        if self._opcode < CLOSE:
            pieces.append(plain)
        else:
            self._control += plain

    def _frame_over(self) -> None:
        opcode = self._opcode
        self._opcode = -1
        if opcode < CLOSE:
            return
        control = self._control
        self._control = b""
        if opcode == PING:
            self.pongs.append(control)
        elif opcode == CLOSE:
            self._closed(control)

    def _closed(self, payload: bytes) -> None:
        """The peer's Close frame, which is answered with the same code."""
        if not payload:
            self.end = b""
            return
        code = int.from_bytes(payload[:2], "big")
        if len(payload) == 1 or not (code in _CLOSE_CODES or 3000 <= code < 5000):
            self._fail(PROTOCOL_ERROR, "a Close frame has no code that there is")
            return
        try:
            payload[2:].decode()
        except UnicodeDecodeError:
            self._fail(INVALID_DATA, "the reason of a Close frame is not UTF-8")
            return
        self.end = payload

    def _fail(self, code: int, reason: str) -> int:
        self.end = close_payload(code, reason)
        self.is_faulty = True
        return -1
