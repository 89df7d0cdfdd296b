"""What all clients of one run count together."""

from __future__ import annotations

from typing import final

from perdure.bench.histogram import Histogram


@final
class Meter:
    """Totals since the start, and latencies since ``reset_latencies``.

    Attributes:
        sent: PUBLISH packets made.
        acked: messages for which the broker has taken responsibility: PUBACK, or with QoS 2
            PUBCOMP.
        refused: messages that it answered with a reason code of 0x80 or more.
        received: messages that subscribers got, without those of QoS 2 that came again before
            their release, which a client does not show to its user.
        foreign: PUBLISH packets that no client of this run had sent.
        ack_ns: from the (intended) time of sending to the acknowledgement.
        delivery_ns: from the (intended) time of sending to the subscriber.
        late_ns: open loop: how late the generator itself was.
        credited: QoS 0 in a closed loop: streams of which messages came, to be followed by more.
    """

    __slots__ = (
        "ack_ns",
        "acked",
        "credited",
        "delivery_ns",
        "foreign",
        "late_ns",
        "received",
        "refused",
        "sent",
    )

    def __init__(self) -> None:
        self.sent: int = 0
        self.acked: int = 0
        self.refused: int = 0
        self.received: int = 0
        self.foreign: int = 0
        self.ack_ns = Histogram()
        self.delivery_ns = Histogram()
        self.late_ns = Histogram()
        self.credited: list[int] = []

    def reset_latencies(self) -> None:
        """Begin a measured phase."""
        self.ack_ns.reset()
        self.delivery_ns.reset()
        self.late_ns.reset()
