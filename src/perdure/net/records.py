"""How many TLS records of one client are read at once.

An event loop decrypts all that a read of the socket brought before it hands anything on: of records
with one byte each, some thousands. So a listener's TLS stops after ``RECORDS_PER_SLICE``, as if
nothing more had come; the shell reads the others in slices of the turns that follow.

Invariant: a transport is not left with records that nobody reads: ``is_behind`` says so until
``read_some`` has found the end of them. They outlive the transport, which uvloop closes as soon as
the peer has closed its side, paused or not.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Buffer

    from perdure.broker.runtime.turn_budget import TurnBudget

RECORDS_PER_SLICE: Final = 128
"""Records of one client that are read at once: 2 MiB of an honest one that sends much."""

_RECORD_BYTES_MAX: Final = 16 * 1024


class MeteredTls(ssl.SSLObject):
    """The TLS of one connection, as ``SSLContext.sslobject_class``.

    Attributes:
        is_behind: reading was stopped before the records were all read.
        is_over: the peer has said that nothing more comes, behind such records.
    """

    is_behind: bool = False
    is_over: bool = False
    _left: int = RECORDS_PER_SLICE

    def read(self, len: int = 1024, buffer: Buffer | None = None) -> bytes:  # noqa: A002
        """Read of one record, for the transport.

        Raises:
            SSLWantReadError: there is none, or enough were read.
        """
        if self._left > 0:
            self._left -= 1
        elif not self.is_behind:
            self.is_behind = True
            raise ssl.SSLWantReadError
        # Else the transport drops what has come, for it is closing.
        try:
            return super().read(len, buffer)
        except ssl.SSLWantReadError:
            self._left = RECORDS_PER_SLICE
            raise

    def handed_on(self) -> None:
        """The transport has handed on what it has read. uvloop doesn't try in vain before."""
        if not self.is_behind:
            self._left = RECORDS_PER_SLICE

    def read_some(self) -> bytes:
        """Read a slice of what reading was stopped before, or of what came while nobody read.

        Raises:
            SSLError: the peer has broken the protocol.
        """
        pieces: list[bytes] = []
        try:
            for _ in range(RECORDS_PER_SLICE):
                piece = super().read(_RECORD_BYTES_MAX)
                if not piece:
                    self.is_over = True
                    break
                pieces.append(piece)
            else:
                self.is_behind = True
                return b"".join(pieces)
        except ssl.SSLWantReadError:
            pass
        self.is_behind = False
        self._left = RECORDS_PER_SLICE
        return b"".join(pieces)


@final
class RecordTurns:
    """Waits for a turn in which more records are read.

    Args:
        budget: gives out turns.
        read: reads a slice.
    """

    __slots__ = ("_budget", "_is_waiting", "_read")

    def __init__(self, budget: TurnBudget, read: Callable[[], None]) -> None:
        self._budget: TurnBudget = budget
        self._read: Callable[[], None] = read
        self._is_waiting: bool = False

    def wait(self) -> None:
        """Have ``read`` called in one of the next turns, once."""
        if not self._is_waiting:
            self._is_waiting = True
            self._budget.add(self)

    @property
    def is_closed(self) -> bool:
        """What is left is read, or found to be over, in a turn."""
        return False

    def work_on(self) -> bool:
        """It is time; who has more comes back by itself."""
        self._is_waiting = False
        self._read()
        return False
