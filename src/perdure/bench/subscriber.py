"""A client that subscribes, acknowledges what comes and keeps a ledger of it."""

from __future__ import annotations

from typing import Final, final

from perdure.bench.client import Client
from perdure.bench.ledger import Ledger
from perdure.bench.meter import Meter
from perdure.bench.stamp import NO_SHAPE, Shape, shape_of

_PUBACK: Final = b"\x40\x02\x00\x00"
_PUBREC: Final = b"\x50\x02\x00\x00"


@final
class Subscriber(Client):
    """Takes stamped messages.

    Args:
        client_id: its identifier.
        version: 4 or 5.
        filters: (topic filter, QoS).
        tag: of the run.
        meter: where it counts.
        clean, expiry_s, username, password: as in ``Client``.
        follow: closed loop at QoS 0: tell the meter which streams came.
        ledger: shared with the other members of its group; None = one of its own.

    Attributes:
        ledger: what has come, over all connections.
    """

    __slots__ = ("_awaiting", "_follow", "_shape", "ledger", "meter", "tag")

    def __init__(
        self,
        client_id: str,
        *,
        version: int,
        filters: tuple[tuple[str, int], ...],
        tag: int,
        meter: Meter,
        clean: bool = True,
        expiry_s: int = 3600,
        username: str | None = None,
        password: bytes | None = None,
        follow: bool = False,
        ledger: Ledger | None = None,
    ) -> None:
        super().__init__(
            client_id,
            version=version,
            filters=filters,
            clean=clean,
            expiry_s=expiry_s,
            username=username,
            password=password,
        )
        self.tag = tag
        self.meter = meter
        self.ledger = ledger or Ledger()
        self._follow = follow
        self._shape = NO_SHAPE
        self._awaiting: set[int] = set()

    def open(self) -> None:
        """Begin on a new connection; identifiers that await PUBREL outlive the old one."""
        super().open()
        if self.clean:
            self._awaiting.clear()

    def _bulk(self, data: bytes, at: int, end: int, now_ns: int) -> int:
        shape = self._shape
        while data.startswith(shape.head, at):
            count = shape.run(data, at, end)
            if not count:
                break
            stop = at + count * shape.size
            run = data if not at and stop == end else data[at:stop]
            if shape.qos == 1:
                self._acknowledge(run, shape, count, _PUBACK)
                self._take1(run, shape, now_ns)
            elif shape.qos == 2:
                self._acknowledge(run, shape, count, _PUBREC)
                self._take2(run, shape, now_ns)
            else:
                self._take0(run, shape, now_ns)
            at = stop
        return at

    def _acknowledge(self, run: bytes, shape: Shape, count: int, ack: bytes) -> None:
        """One acknowledgement for each frame: the packet identifiers are copied as columns."""
        here, size = shape.packet_id_at, shape.size
        if count == 1:
            self.out.append(ack[:2] + run[here : here + 2])
            return
        acks = bytearray(ack * count)
        acks[2::4] = run[here::size]
        acks[3::4] = run[here + 1 :: size]
        self.out.append(bytes(acks))

    def _take1(self, run: bytes, shape: Shape, now_ns: int) -> None:
        nexts, tag = self.ledger.nexts, self.tag
        record = self.meter.delivery_ns.record
        since, same, taken = -1, 0, 0
        for _, its_tag, stream, counter, sent in shape.unpack(run):
            if its_tag != tag:
                self.meter.foreign += 1
                continue
            if nexts.get(stream, 0) == counter:
                nexts[stream] = counter + 1
            else:
                self.ledger.irregular(stream, counter)
            taken += 1
            if sent == since:
                same += 1
            else:
                if same:
                    record(now_ns - since, same)
                since, same = sent, 1
        if same:
            record(now_ns - since, same)
        self.meter.received += taken

    def _take0(self, run: bytes, shape: Shape, now_ns: int) -> None:
        for its_tag, stream, counter, sent in shape.unpack(run):
            self._one(its_tag, stream, counter, now_ns - sent)
            if self._follow:
                self.meter.credited.append(stream)

    def _take2(self, run: bytes, shape: Shape, now_ns: int) -> None:
        awaiting = self._awaiting
        for packet_id, its_tag, stream, counter, sent in shape.unpack(run):
            # [MQTT-4.3.3-10] Until PUBREL, the same identifier is the same message again.
            if packet_id not in awaiting:
                awaiting.add(packet_id)
                self._one(its_tag, stream, counter, now_ns - sent)

    def _one(self, tag: int, stream: int, counter: int, latency_ns: int) -> None:
        if tag != self.tag:
            self.meter.foreign += 1
            return
        self.ledger.note(stream, counter)
        self.meter.received += 1
        self.meter.delivery_ns.record(latency_ns)

    def _frame(self, data: bytes, at: int, body: int, stop: int, now_ns: int) -> None:
        kind = data[at] >> 4
        if kind == 3:
            self._first_of_its_shape(data, at, body, stop, now_ns)
        elif kind == 6:
            packet_id = data[body : body + 2]
            self._awaiting.discard(int.from_bytes(packet_id, "big"))
            self.out.append(b"\x70\x02" + packet_id)
        else:
            super()._frame(data, at, body, stop, now_ns)

    def _first_of_its_shape(self, data: bytes, at: int, body: int, stop: int, now_ns: int) -> None:
        shape = shape_of(data, at, body, stop, version=self.version)
        if shape is not None:
            self._shape = shape
            self._bulk(data[at:stop], 0, stop - at, now_ns)
            return
        # Too short for a stamp: not ours, but it wants its acknowledgement.
        self.meter.foreign += 1
        qos = data[at] >> 1 & 3
        if qos:
            here = body + 2 + int.from_bytes(data[body : body + 2], "big")
            self.out.append((_PUBACK if qos == 1 else _PUBREC)[:2] + data[here : here + 2])
