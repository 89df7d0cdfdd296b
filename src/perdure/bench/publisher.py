"""A client that publishes stamped messages and waits for their acknowledgements."""

from __future__ import annotations

import struct
from collections import deque
from typing import Final, final

from perdure.bench.client import Client
from perdure.bench.meter import Meter
from perdure.bench.stamp import Stream

_ACKS: Final = struct.Struct(">HH").iter_unpack
_ACK_TYPES: Final = b"\x40\x50\x70"  # PUBACK, PUBREC, PUBCOMP
_PUBREC: Final = 0x5002
_PUBREL: Final = struct.Struct(">HH")


@final
class Publisher(Client):
    """Publishes its streams in turn.

    Args:
        client_id: its identifier.
        version: 4 or 5.
        streams: what it publishes; all of one QoS.
        tag: of the run.
        meter: where it counts.
        username, password: credentials.

    Attributes:
        inflight: packet identifier -> (intended) time of sending, until acknowledged.
        waiting: open loop: intended times of messages that wait for room in the window.
        remaining: how many it may still send; None = no bound.
    """

    __slots__ = (
        "_packet_id",
        "_turn",
        "inflight",
        "meter",
        "remaining",
        "streams",
        "tag",
        "waiting",
    )

    def __init__(
        self,
        client_id: str,
        *,
        version: int,
        streams: list[Stream],
        tag: int,
        meter: Meter,
        username: str | None = None,
        password: bytes | None = None,
    ) -> None:
        super().__init__(client_id, version=version, username=username, password=password)
        self.streams = streams
        self.tag = tag
        self.meter = meter
        self.inflight: dict[int, int] = {}
        self.waiting: deque[int] = deque()
        self.remaining: int | None = None
        self._packet_id = 0
        self._turn = 0

    def publish(self, sent_ns: int, count: int) -> None:
        """Make ``count`` messages, which count as sent at ``sent_ns``."""
        if self.remaining is not None:
            count = min(count, self.remaining)
            self.remaining -= count
        if count <= 0:
            return
        out, inflight, streams, tag = self.out, self.inflight, self.streams, self.tag
        packet_id, turn, turns = self._packet_id, self._turn, len(streams)
        needs_ack = streams[0].qos > 0
        for _ in range(count):
            if needs_ack:
                packet_id = packet_id + 1 if packet_id < 65_535 else 1
                while packet_id in inflight:
                    packet_id = packet_id + 1 if packet_id < 65_535 else 1
                inflight[packet_id] = sent_ns
            out.append(streams[turn].frame(packet_id, tag, sent_ns))
            turn = turn + 1 if turn + 1 < turns else 0
        self._packet_id, self._turn = packet_id, turn
        self.meter.sent += count

    def _bulk(self, data: bytes, at: int, end: int, now_ns: int) -> int:
        count = (end - at) >> 2
        stop = at + (count << 2)
        # Acknowledgements without a reason code, and nothing else? Then every frame has four
        # bytes: the first is its type, the second its remaining length, 2.
        if (
            not count
            or data[at + 1 : stop : 4].count(2) != count
            or data[at:stop:4].strip(_ACK_TYPES)
        ):
            return at
        inflight, done, since, run = self.inflight, 0, -1, 0
        record = self.meter.ack_ns.record
        for head, packet_id in _ACKS(data[at:stop]):
            if head == _PUBREC:
                self.out.append(_PUBREL.pack(0x6202, packet_id))
                continue
            sent = inflight.pop(packet_id, -1)
            if sent < 0:
                continue
            done += 1
            # Messages made at one stroke are mostly acknowledged at one stroke too.
            if sent == since:
                run += 1
            else:
                if run:
                    record(now_ns - since, run)
                since, run = sent, 1
        if run:
            record(now_ns - since, run)
        self.meter.acked += done
        return stop

    def _frame(self, data: bytes, at: int, body: int, stop: int, now_ns: int) -> None:
        kind = data[at] >> 4
        if kind not in (4, 5, 7):
            super()._frame(data, at, body, stop, now_ns)
            return
        packet_id = int.from_bytes(data[body : body + 2], "big")
        reason = data[body + 2] if stop - body > 2 else 0
        if kind == 5 and reason < 0x80:
            self.out.append(_PUBREL.pack(0x6202, packet_id))
            return
        sent = self.inflight.pop(packet_id, -1)
        if sent < 0:
            return
        if reason >= 0x80:
            self.meter.refused += 1
        else:
            self.meter.acked += 1
            self.meter.ack_ns.record(now_ns - sent)
