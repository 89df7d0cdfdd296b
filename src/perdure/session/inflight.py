"""What is in flight to one client, found by packet identifier.

A table of places: a packet identifier has the place that its low bits name. Identifiers are given
in a row, so what is in flight at the same time nearly always has different places; where it has
not, the table grows, within reason: a client that keeps one message for ever while others go round
must not make it large. What finds its place taken then is a *stray*, in a dict. So a look-up is one
index, and a table for a window of 16 takes 128 bytes, where a dict takes five times that.

What was sent once, with QoS 1 and without RETAIN, is not in the table: see ``sent_runs``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import mypyc_attr

from perdure.model import Message
from perdure.session.sent_runs import SentRun, SentRuns
from perdure.session.seqno import PACKET_IDS

if TYPE_CHECKING:
    from mypy_extensions import i64, u8

SENT: Final = 1
RELEASED: Final = 2

_PLACES_MIN: Final = 8

_PLACES_PER_DELIVERY: Final = 8
"""A table grows no further than to this."""

_PLACES_KEPT: Final = 1_024
"""A larger table is given up when nothing is in flight any more."""


@final
@mypyc_attr(acyclic=True)
class GroupSource:
    """Where a delivery comes from that a shared group gave.

    Attributes:
        identifiers: subscription identifiers to send.
        group_key: the group.
    """

    __slots__ = ("group_key", "identifiers")

    def __init__(self, identifiers: tuple[int, ...], group_key: str) -> None:
        self.identifiers: tuple[int, ...] = identifiers
        self.group_key: str = group_key


@final
class _LastSource:
    """The source that was made last: what a session is given comes from one group, mostly."""

    __slots__ = ("source",)

    def __init__(self) -> None:
        self.source: GroupSource = GroupSource((), "")


_last_source: Final = _LastSource()


def _group_source(identifiers: tuple[int, ...], group_key: str) -> GroupSource:
    source = _last_source.source
    if source.group_key != group_key or source.identifiers != identifiers:
        source = _last_source.source = GroupSource(identifiers, group_key)
    return source


@final
@mypyc_attr(acyclic=True)
class Delivery:
    """One message on its way to one session.

    A session may have a thousand in flight, and a broker as many sessions: compiled, one takes 64
    bytes, so what can be reckoned or is rare has no place of its own.

    Attributes:
        message: what is delivered; None once it was sent: a connection sends it once, and what is
            in flight should not keep it.
        offset: place in the session's order (log or inbox offset).
        serial: serial number.
        qos: 1 or 2.
        state: SENT or RELEASED.
        retain: RETAIN flag to send.
        dup: it may have been sent before.
    """

    __slots__ = ("_source", "dup", "message", "offset", "qos", "retain", "serial", "state")

    def __init__(
        self,
        message: Message | None,
        qos: int,
        retain: bool,
        identifiers: tuple[int, ...],
        offset: int,
        serial: int,
        group_key: str,
    ) -> None:
        self.message: Message | None = message
        self._source: tuple[int, ...] | GroupSource = (
            _group_source(identifiers, group_key) if group_key else identifiers
        )
        self.offset: i64 = offset
        self.serial: i64 = serial
        self.qos: u8 = qos
        self.state: u8 = SENT
        self.retain: bool = retain
        self.dup: bool = False

    @property
    def packet_id(self) -> i64:
        """Packet identifier, from the serial number."""
        return (self.serial - 1) % PACKET_IDS + 1

    @property
    def identifiers(self) -> tuple[int, ...]:
        """Subscription identifiers to send."""
        source = self._source
        return source.identifiers if isinstance(source, GroupSource) else source

    @property
    def group_key(self) -> str:
        """Shared group that gave it, empty = none."""
        source = self._source
        return source.group_key if isinstance(source, GroupSource) else ""

    @property
    def size(self) -> int:
        """Payload bytes of a message that was not sent yet."""
        assert self.message is not None
        return len(self.message.payload)


_NO_PLACES: Final[list[Delivery | None]] = [None]
"""The table of every session that has sent nothing; never written to."""


@final
class Inflight:
    """The deliveries that were sent and are not settled, in no particular order.

    Attributes:
        count: how many there are.
        runs: those that have no object of their own; ``count`` counts them too.
    """

    __slots__ = ("_mask", "_places", "_strays", "count", "runs")

    def __init__(self) -> None:
        self.count: int = 0
        self.runs: SentRuns = SentRuns()
        self._places: list[Delivery | None] = _NO_PLACES
        self._mask: int = 0
        """Places less one; 0 = the table is shared."""
        self._strays: dict[int, Delivery] | None = None

    def get(self, packet_id: int) -> Delivery | None:
        """What has this packet identifier, or None; to be read only, if its QoS is 1."""
        delivery = self._in_table(packet_id)
        if delivery is not None:
            return delivery
        run = self.runs.find(packet_id)
        return None if run is None else _first_of(run)

    def _in_table(self, packet_id: int) -> Delivery | None:
        delivery = self._places[packet_id & self._mask]
        if delivery is not None and delivery.packet_id == packet_id:
            return delivery
        return None if self._strays is None else self._strays.get(packet_id)

    def add(self, delivery: Delivery) -> None:
        """Add a delivery; nothing in flight has its packet identifier.

        Its serial number is above all others, or it may have been sent before.
        """
        self.count += 1
        if delivery.qos == 1 and not (delivery.retain or delivery.dup):
            self.runs.add(
                delivery.serial, delivery.offset, 1, delivery.identifiers, delivery.group_key
            )
            return
        place = delivery.packet_id & self._mask
        if self._mask and self._places[place] is None and self._strays is None:
            self._places[place] = delivery
            return
        assert self._in_table(delivery.packet_id) is None
        if not self._mask or self._places[place] is not None:
            self._grow()
        self._place(delivery)

    def take(self, packet_id: int) -> Delivery | None:
        """``get``, and it is settled."""
        delivery = self._in_table(packet_id)
        if delivery is not None:
            self._remove(delivery)
            return delivery
        run = self.runs.take(packet_id)
        if run is None:
            return None
        self.count -= 1
        return _first_of(run)

    def _remove(self, delivery: Delivery) -> None:
        place = delivery.packet_id & self._mask
        if self._places[place] is delivery:
            self._places[place] = None
        else:
            strays = self._strays
            assert strays is not None
            del strays[delivery.packet_id]
            if not strays:
                self._strays = None
        self.count -= 1
        if not self.count and self._mask >= _PLACES_KEPT:
            self._places = _NO_PLACES
            self._mask = 0

    def values(self) -> list[Delivery]:
        """Everything in flight; to be read only, as of ``get``."""
        found = self._table()
        for run in self.runs.runs():
            found += [_first_of(run.part(at, 1)) for at in range(run.count)]
        return found

    def released(self) -> list[int]:
        """Serial numbers of what is in state RELEASED."""
        if not self._mask:
            return []
        return [delivery.serial for delivery in self._table() if delivery.state == RELEASED]

    def _table(self) -> list[Delivery]:
        found = [delivery for delivery in self._places if delivery is not None]
        if self._strays is not None:
            found += self._strays.values()
        return found

    def _place(self, delivery: Delivery) -> None:
        place = delivery.packet_id & self._mask
        if self._places[place] is None:
            self._places[place] = delivery
            return
        if self._strays is None:
            self._strays = {}
        self._strays[delivery.packet_id] = delivery

    def _grow(self) -> None:
        """Make the table twice as large, if it is not too large for what it holds."""
        size = max(2 * (self._mask + 1), _PLACES_MIN)
        if size > max(_PLACES_MIN, _PLACES_PER_DELIVERY * self.count):
            return
        held = self._table()
        self._places = [None] * size
        self._mask = size - 1
        self._strays = None
        for delivery in held:
            self._place(delivery)


def _first_of(run: SentRun) -> Delivery:
    return Delivery(None, 1, False, run.identifiers, run.offset, run.serial, run.group_key)
