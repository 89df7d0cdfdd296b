"""What a node submits to the shared log: its records in order, and the batches that wait.

A batch becomes a record, or several where it is large. What is beyond ``IN_FLIGHT_MAX`` records on
their way is *held*, and encoded when its turn comes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import final

from perdure.errors import RecordTooLarge, StorageError
from perdure.storage.batch import Batch
from perdure.storage.batch_codec import encode
from perdure.storage.ordered.contract import OrderedLog
from perdure.storage.ordered.earlier import IN_FLIGHT_MAX
from perdure.storage.ordered.record import PREFIX_BYTES_MAX, Act, Expel, Record, encode_record


@final
class OwnBatch:
    """A batch, and how many of its records are still to come back (0 = none was submitted yet)."""

    __slots__ = ("batch", "records_left")

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.records_left = 0


@final
class OwnRecords:
    """The records of one incarnation of a node.

    Args:
        node: its name.
        fail: called when the log has refused a record: the next one would leave a number out.
        version: the one in which a record is written now.

    Attributes:
        incarnation: whose records are submitted; 0 = of none yet.
        number: records submitted.
        returned_count: those that have come back.
        held: batches that wait for their turn.
    """

    def __init__(
        self, node: str, fail: Callable[[StorageError], None], version: Callable[[], int]
    ) -> None:
        self._node = node
        self._version = version
        self._fail = fail
        self._log: OrderedLog | None = None
        self.incarnation = 0
        self.number = 0
        self.returned_count = 0
        self._expelled_in = 0
        """Number of the record that expels somebody, the last one."""
        self._in_flight: deque[OwnBatch] = deque()
        self.held: deque[OwnBatch] = deque()

    def begin(self, log: OrderedLog, incarnation: int) -> None:
        """Submit to a log from here on, as an incarnation of which it has nothing."""
        self._log = log
        self.incarnation = incarnation
        self.number = self.returned_count = self._expelled_in = 0

    def end(self) -> None:
        """The incarnation is over: what waits is not submitted."""
        self.held.clear()
        self._in_flight.clear()

    @property
    def flying_count(self) -> int:
        """Records on their way."""
        return self.number - self.returned_count

    @property
    def is_expelling(self) -> bool:
        """Whether a record that expels somebody is on its way."""
        return self._expelled_in > self.returned_count

    def expel(self, acts: list[Expel]) -> None:
        """Submit what expels nodes.

        Raises:
            StorageError: as ``submit``.
        """
        self.submit(acts=tuple(acts))
        self._expelled_in = self.number

    def submit(self, *, acts: tuple[Act, ...] = (), batch: bytes = b"", more: bool = False) -> None:
        """Submit one record.

        Raises:
            StorageError: the log has refused it; ``fail`` was told.
        """
        assert self._log is not None
        self.number += 1
        record = Record(self._node, self.incarnation, self.number, acts, batch, more)
        try:
            self._log.submit(encode_record(record, self._version()))
        except StorageError as error:
            self._fail(error)
            raise

    def send_held(self) -> None:
        """Submit what has waited, as far as there is room.

        Raises:
            RecordTooLarge: a batch is; it waits no more.
            StorageError: as ``submit``.
        """
        assert self._log is not None
        part_bytes_max = self._log.record_bytes_max - PREFIX_BYTES_MAX
        while self.held and self.flying_count < IN_FLIGHT_MAX:
            earlier = [each.batch for each in self._in_flight]
            value = encode(self.held[0].batch, earlier)
            count = max(1, -(-len(value) // part_bytes_max))
            if count > IN_FLIGHT_MAX:
                self.held.popleft()
                raise RecordTooLarge(
                    f"a batch of {len(value)} bytes; {IN_FLIGHT_MAX} of {part_bytes_max} fit",
                    hint="lower limits.packet_bytes_max, or raise max.message.bytes of the topic",
                )
            if self.flying_count + count > IN_FLIGHT_MAX:
                return
            own = self.held.popleft()
            own.records_left = count
            self._in_flight.append(own)
            for at in range(0, len(value), part_bytes_max):
                part = value[at : at + part_bytes_max]
                self.submit(batch=part, more=at + part_bytes_max < len(value))

    def returned(self, record: Record) -> Batch | None:
        """A record has come out of the log.

        Returns:
            The batch that is complete with it; None where it is another's, or more is to come.
        """
        if (
            record.node != self._node
            or record.incarnation != self.incarnation
            or record.number != self.returned_count + 1
        ):
            return None
        self.returned_count += 1
        if not record.batch:
            return None
        own = self._in_flight[0]
        own.records_left -= 1
        return None if own.records_left else own.batch

    def applied(self) -> None:
        """The oldest batch on its way is not on its way any more."""
        self._in_flight.popleft()
