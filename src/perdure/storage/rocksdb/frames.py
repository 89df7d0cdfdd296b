"""RocksDB's log format, read and written: what write-ahead logs and manifests are made of.

From RocksDB's documentation ("Write Ahead Log File Format"). Integers are little-endian. A file is
blocks of 32 KiB; no piece crosses the end of one, and fewer than 7 bytes there are zeros::

    piece   masked CRC-32C of the rest (4) | payload length (2) | kind (1) | payload
    kind    1 = a whole record; 2, 3, 4 = the first, a middle and the last piece of one

Perdure lets RocksDB neither reuse nor compress logs, so the other kinds are damage.

Compiled: a start walks over everything that RocksDB will replay.
"""

from __future__ import annotations

from typing import Final, final

from perdure.storage.rocksdb.crc32c import crc32c, masked

BLOCK_BYTES: Final = 32 * 1024
HEAD_BYTES: Final = 7

CUT: Final = "the file ends inside a record"
ZEROS: Final = "there are only zeros up to the end"
CHECKSUM: Final = "a checksum does not match"
BROKEN: Final = "a record is garbled"

_WHOLE: Final = 1
_FIRST: Final = 2
_MIDDLE: Final = 3
_LAST: Final = 4


@final
class Frames:
    """Goes over the records of a file.

    Args:
        data: the file.
        verify_from: checksums of pieces from this byte on are verified.

    Attributes:
        start, end: bytes ``[start, end)`` that the last record takes, with its heads.
        at: where the next record begins, or where the problem is.
        problem: why there is no next record; empty = the end was reached.
    """

    def __init__(self, data: bytes, verify_from: int = 0) -> None:
        self._data: bytes = data
        self._verify_from: int = verify_from
        self._payload: int = 0
        self._payload_end: int = 0
        self._pieces: list[tuple[int, int]] = []
        self.start: int = 0
        self.end: int = 0
        self.at: int = 0
        self.problem: str = ""

    def next(self) -> bool:
        """Go to the next record; False = there is none, or a problem."""
        data = self._data
        size: int = len(data)
        at: int = self.at
        started = False
        self._pieces = []
        while True:
            left: int = BLOCK_BYTES - at % BLOCK_BYTES
            if left < HEAD_BYTES:
                if at + left >= size:
                    at = size
                    left = 0
                else:
                    at += left
                    continue
            if at >= size:
                self.problem = CUT if started else ""
                return False
            if not started:
                self.at = at
                self.start = at
            if at + HEAD_BYTES > size:
                self.problem = CUT if data[at:].strip(b"\0") else ZEROS
                return False
            length: int = data[at + 4] | data[at + 5] << 8
            kind: int = data[at + 6]
            if kind == 0 and length == 0:
                self.problem = BROKEN if data.count(0, at) < size - at else ZEROS
                return False
            if kind == 0 or kind > _LAST or length > left - HEAD_BYTES:
                self.problem = BROKEN
                return False
            if (kind in (_WHOLE, _FIRST)) == started:
                self.problem = BROKEN
                return False
            payload: int = at + HEAD_BYTES
            at = payload + length
            if at > size:
                self.problem = CUT
                return False
            if payload >= self._verify_from and not is_intact(data, payload, at):
                self.problem = CHECKSUM
                return False
            if not started:
                self._payload = payload
                self._payload_end = at
                started = True
            else:
                self._pieces.append((payload, at))
            if kind in (_WHOLE, _LAST):
                self.at = self.end = at
                return True

    def resume(self) -> bool:
        """After a problem, go to where the next intact record begins; False = there is none."""
        data = self._data
        size = len(data)
        at = self.at + 1
        while at < size:
            block_end = min(size, at - at % BLOCK_BYTES + BLOCK_BYTES)
            if at % BLOCK_BYTES == 0:
                at = self._behind_rest(at, block_end)
            found = self._find(at, block_end)
            if found >= 0:
                self.at = found
                self.problem = ""
                return True
            at = block_end
        return False

    def _behind_rest(self, at: int, block_end: int) -> int:
        """Where the pieces end with which a block continues a record of the one before; nothing
        but a block's beginning is sure to be that of a piece."""
        data = self._data
        while at + HEAD_BYTES <= block_end:
            kind = data[at + 6]
            if kind != _MIDDLE and kind != _LAST:
                break
            end = self._piece_end(at, block_end)
            if end == 0:
                break
            at = end
        return at

    def _find(self, at: int, block_end: int) -> int:
        """Where the first intact piece that begins a record is in a block; -1 = nowhere."""
        data = self._data
        if not data[at:block_end].strip(b"\0"):
            return -1
        while at + HEAD_BYTES < block_end:
            if data[at + 6] in (_WHOLE, _FIRST) and self._piece_end(at, block_end):
                return at
            at += 1
        return -1

    def _piece_end(self, at: int, block_end: int) -> int:
        """Where a piece ends that begins here; 0 = there is no intact one."""
        data = self._data
        start = at + HEAD_BYTES
        end = start + (data[at + 4] | data[at + 5] << 8)
        return end if start < end <= block_end and is_intact(data, start, end) else 0

    def payload(self) -> bytes:
        """What the last record holds."""
        head = self._data[self._payload : self._payload_end]
        if not self._pieces:
            return head
        return head + b"".join([self._data[start:end] for start, end in self._pieces])

    def head(self, size: int) -> bytes:
        """The first bytes of what the last record holds."""
        if self._payload_end - self._payload >= size:
            return self._data[self._payload : self._payload + size]
        return self.payload()[:size]


def is_intact(data: bytes, start: int, end: int) -> bool:
    """Whether the checksum before a piece's payload ``[start, end)`` matches."""
    stored = int.from_bytes(data[start - HEAD_BYTES : start - HEAD_BYTES + 4], "little")
    return masked(crc32c(data, start - 1, end)) == stored


def frame(payload: bytes, at: int) -> bytes:
    """A record as it is appended to a file of some length.

    Args:
        payload: what it holds.
        at: the length, bytes.
    """
    pieces: list[bytes] = []
    first = True
    done = 0
    while True:
        left = BLOCK_BYTES - at % BLOCK_BYTES
        if left < HEAD_BYTES:
            pieces.append(bytes(left))
            at += left
            continue
        part = payload[done : done + left - HEAD_BYTES]
        done += len(part)
        last = done == len(payload)
        kind = (_WHOLE if last else _FIRST) if first else (_LAST if last else _MIDDLE)
        body = bytes([kind]) + part
        check = masked(crc32c(body, 0, len(body)))
        pieces.append(check.to_bytes(4, "little") + len(part).to_bytes(2, "little") + body)
        at += HEAD_BYTES + len(part)
        if last:
            return b"".join(pieces)
        first = False
