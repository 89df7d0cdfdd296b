"""What is addressed to one session or group alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, final

from mypy_extensions import mypyc_attr

from perdure.model.message import Message

if TYPE_CHECKING:
    from mypy_extensions import u8


@final
@mypyc_attr(acyclic=True)
class InboxEntry:
    """A message addressed to one session (or group) alone: an entry of its private stream.

    Attributes:
        offset: position in the order of the owner; allocated like a log offset.
        message: the message; ``message.offset`` is where it stands in the log, if it does.
            None = settled already, kept because its serial number is taken (a tombstone).
        qos: QoS to deliver with, 1 or 2.
        retain: RETAIN flag to deliver with.
        identifiers: subscription identifiers to deliver with.
        group_key: the shared group that gave it, to which it returns when the session ends;
            empty = none.
        serial: serial number that it must have, because a client knows the packet identifier
            from another broker; 0 = the next one. The numbers that it leaves out are settled.
        forget_at_us: steady time after which it is not sent for the first time, whatever its
            Message Expiry Interval says, and of which the client is not told; 0 = never.
        again: a crash may have taken an entry of the same message that was sent; not stored, it
            counts when the entry is dispatched.
    """

    __slots__ = (
        "again",
        "forget_at_us",
        "group_key",
        "identifiers",
        "message",
        "offset",
        "qos",
        "retain",
        "serial",
    )

    def __init__(
        self,
        offset: int,
        message: Message | None,
        *,
        qos: int,
        retain: bool = False,
        identifiers: tuple[int, ...] = (),
        group_key: str = "",
        serial: int = 0,
        forget_at_us: int = 0,
        again: bool = False,
    ) -> None:
        self.offset: int = offset
        self.message: Message | None = message
        self.qos: u8 = qos
        self.retain: bool = retain
        self.identifiers: tuple[int, ...] = identifiers
        self.group_key: str = group_key
        self.serial: int = serial
        self.forget_at_us: int = forget_at_us
        self.again: bool = again

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, InboxEntry):
            return NotImplemented
        return (
            self.offset == other.offset
            and self.message == other.message
            and self.qos == other.qos
            and self.retain == other.retain
            and self.identifiers == other.identifiers
            and self.group_key == other.group_key
            and self.serial == other.serial
            and self.forget_at_us == other.forget_at_us
        )

    def __reduce__(self) -> tuple[Callable[..., InboxEntry], tuple[object, ...]]:
        """How to copy and pickle it; a compiled class cannot be made empty and filled later."""
        return _made, (
            self.offset,
            self.message,
            self.qos,
            self.retain,
            self.identifiers,
            self.group_key,
            self.serial,
            self.forget_at_us,
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"InboxEntry({self.offset}, {self.message!r}, qos={self.qos})"


def _made(
    offset: int,
    message: Message | None,
    qos: int,
    retain: bool,
    identifiers: tuple[int, ...],
    group_key: str,
    serial: int,
    forget_at_us: int,
) -> InboxEntry:
    return InboxEntry(
        offset,
        message,
        qos=qos,
        retain=retain,
        identifiers=identifiers,
        group_key=group_key,
        serial=serial,
        forget_at_us=forget_at_us,
    )
