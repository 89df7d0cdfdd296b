"""What was sent with QoS 1 and nothing remarkable about it, as runs: no object for each message.

Messages that a client is sent one behind the other have serial numbers in a row, and nearly always
offsets in a row as well. So a run is four numbers, whatever it holds, and acknowledgements in order
move its lower edge. One that is out of order parts it in two.

Invariant: runs are in the order of their serial numbers, which span at most ``PACKET_IDS``; none
is empty, but for one that is alone: it is used again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import mypyc_attr

from perdure.mqtt.puback_run import PUBACK_SIZE
from perdure.session.seqno import PACKET_IDS, packet_id_of

if TYPE_CHECKING:
    from mypy_extensions import i64


@final
@mypyc_attr(acyclic=True)
class SentRun:
    """Messages with serial numbers and offsets in a row.

    Attributes:
        serial: serial number of the first.
        offset: offset of the first.
        count: how many, >= 1.
        identifiers: subscription identifiers that all were sent with.
        group_key: shared group that gave them, empty = none.
    """

    __slots__ = ("count", "group_key", "identifiers", "offset", "serial")

    def __init__(
        self, serial: int, offset: int, count: int, identifiers: tuple[int, ...], group_key: str
    ) -> None:
        self.serial: i64 = serial
        self.offset: i64 = offset
        self.count: i64 = count
        self.identifiers: tuple[int, ...] = identifiers
        self.group_key: str = group_key

    def part(self, at: int, count: int) -> SentRun:
        """``count`` messages from the ``at``-th on, >= 0."""
        return SentRun(self.serial + at, self.offset + at, count, self.identifiers, self.group_key)


_NO_RUNS: Final[list[SentRun]] = []
"""Of every session that has sent nothing; never written to."""


@final
@mypyc_attr(acyclic=True)
class SentRuns:
    """The runs of one session."""

    __slots__ = ("_runs",)

    def __init__(self) -> None:
        self._runs: list[SentRun] = _NO_RUNS

    def add(
        self, serial: i64, offset: i64, count: i64, identifiers: tuple[int, ...], group_key: str
    ) -> None:
        """Add messages that are sent now.

        Args:
            serial: serial number of the first, above all others.
            offset: of the first; the others have those that follow.
            count: how many, >= 1.
            identifiers: subscription identifiers.
            group_key: shared group that gave them, empty = none.
        """
        runs = self._runs
        if runs is _NO_RUNS:
            runs = self._runs = []
        elif runs:
            last = runs[-1]
            end = last.serial + last.count
            assert end <= serial
            if last.identifiers == identifiers and last.group_key == group_key:
                if end == serial and last.offset + last.count == offset:
                    last.count += count
                    return
                if not last.count:
                    last.serial = serial
                    last.offset = offset
                    last.count = count
                    return
            if not last.count:
                runs.pop()
        runs.append(SentRun(serial, offset, count, identifiers, group_key))

    def settle_in_order(self, raw: bytes, at: i64, serial: i64) -> SentRun | None:
        """Settle the first messages of the first run that PUBACKs name one behind the other.

        Args:
            raw: of a ``PubackRun``.
            at: where the first of them stands.
            serial: the oldest that the client has not settled.

        Returns:
            The run, whose ``serial`` and ``offset`` have moved; None = it is another's turn.
        """
        runs = self._runs
        if not runs:
            return None
        run = runs[0]
        if run.serial != serial:
            return None
        packet_id: i64 = packet_id_of(serial)
        most: i64 = min(run.count, (len(raw) - at) // PUBACK_SIZE)
        count: i64 = 0
        while count < most and (raw[at + 2] << 8 | raw[at + 3]) == packet_id:
            count += 1
            at += PUBACK_SIZE
            packet_id = packet_id + 1 if packet_id < PACKET_IDS else 1
        if not count:
            return None
        run.serial += count
        run.offset += count
        run.count -= count
        if not run.count and len(runs) > 1:
            runs.pop(0)
        return run

    def find(self, packet_id: i64) -> SentRun | None:
        """A run of its own of the message that has this packet identifier, or None."""
        serial = self._serial(packet_id)
        index = self._index(serial)
        if index < 0:
            return None
        run = self._runs[index]
        return run.part(serial - run.serial, 1)

    def take(self, packet_id: i64) -> SentRun | None:
        """``find``, and the message is settled."""
        serial = self._serial(packet_id)
        index = self._index(serial)
        if index < 0:
            return None
        runs = self._runs
        run = runs[index]
        at: i64 = serial - run.serial
        taken = run.part(at, 1)
        behind: i64 = run.count - at - 1
        if at and behind:
            runs.insert(index + 1, run.part(at + 1, behind))
            run.count = at
        elif at:
            run.count = at
        elif behind:
            run.serial += 1
            run.offset += 1
            run.count = behind
        else:
            runs.pop(index)
        return taken

    def runs(self) -> list[SentRun]:
        """All of them; read them only."""
        return self._runs

    def _serial(self, packet_id: i64) -> i64:
        """The serial number that it would have here; 0 = nothing is."""
        if not self._runs:
            return 0
        first: i64 = self._runs[0].serial
        return first + (packet_id - packet_id_of(first)) % PACKET_IDS

    def _index(self, serial: i64) -> i64:
        """Of the run that has a serial number; -1 = none."""
        runs = self._runs
        if not runs:
            return -1
        low: i64 = 0
        high: i64 = len(runs)
        while high - low > 1:
            middle = (low + high) >> 1
            if runs[middle].serial <= serial:
                low = middle
            else:
                high = middle
        run = runs[low]
        return low if run.serial <= serial < run.serial + run.count else -1
