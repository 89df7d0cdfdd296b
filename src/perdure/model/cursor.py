"""How far a session's outbound messages are done, as every room sees it."""

from __future__ import annotations

from typing import final

from mypy_extensions import mypyc_attr


@final
@mypyc_attr(acyclic=True)
class Cursor:
    """How far a session's outbound messages are done; nobody changes one.

    Every message that a session is owed takes one serial number, in offset order. The cursor
    says up to which serial all are settled, and what is settled or half done beyond it.

    Attributes:
        offset: every owed message with an offset up to here is settled.
        serial: serial number of the last one of them; 0 = none yet.
        settled: serial numbers above ``serial`` that are settled too, ascending.
        released: serial numbers whose PUBREC came and whose PUBCOMP did not, ascending.
        sent: highest serial number ever sent: a message up to here goes out with DUP.
    """

    __slots__ = ("offset", "released", "sent", "serial", "settled")

    def __init__(
        self,
        offset: int = 0,
        serial: int = 0,
        settled: tuple[int, ...] = (),
        released: tuple[int, ...] = (),
        sent: int = 0,
    ) -> None:
        self.offset: int = offset
        self.serial: int = serial
        self.settled: tuple[int, ...] = settled
        self.released: tuple[int, ...] = released
        self.sent: int = sent

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Cursor):
            return NotImplemented
        return (
            self.offset == other.offset
            and self.serial == other.serial
            and self.settled == other.settled
            and self.released == other.released
            and self.sent == other.sent
        )

    def __reduce__(self) -> tuple[type[Cursor], tuple[object, ...]]:
        """How to copy and pickle it; a compiled class cannot be made empty and filled later."""
        return Cursor, (self.offset, self.serial, self.settled, self.released, self.sent)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Cursor({self.offset}, {self.serial}, {self.settled}, {self.released}, {self.sent})"
