"""Publishers and durable subscribers for a broker process, and their audit."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from typing import final

from tests.support.bounds import HANG_S
from tests.support.delivery import Ledger, Receipts, audit
from tests.support.fault_rounds import REFUSALS
from tests.support.peer_connection import PeerConnection
from tests.support.peers import Publisher, Subscriber

WINDOW = 20


def now_us() -> int:
    """Wall time in microseconds."""
    return time.time_ns() // 1000


async def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for what other processes do."""
    end = time.monotonic() + HANG_S
    while not condition():
        assert time.monotonic() < end, f"in {HANG_S:.0f} s not seen: {what}"
        await asyncio.sleep(0.01)


@final
class Load:
    """Two publishers, of 3.1.1 and 5.0, and durable subscribers.

    Args:
        port: where the broker listens.
        subscriptions: topic filter and QoS of each subscriber.
        payload_size: bytes of each message.
    """

    def __init__(
        self,
        port: int,
        *,
        subscriptions: Sequence[tuple[str, int]] = (("t/#", 1), ("t/#", 2)),
        payload_size: int = 32,
    ) -> None:
        self.port = port
        self.ledger = Ledger()
        self.publishers = [
            Publisher(
                f"pub-{protocol}",
                protocol=protocol,
                ledger=self.ledger,
                clock=now_us,
                payload_size=payload_size,
            )
            for protocol in (4, 5)
        ]
        self.subscribers = [
            Subscriber(
                f"sub-{number}", [(name, qos)], protocol=4 + number % 2, chance=random.Random(1)
            )
            for number, (name, qos) in enumerate(subscriptions)
        ]
        for subscriber in self.subscribers:
            ((name, qos),) = subscriber.filters
            if name.startswith("$share/"):
                # One that is alone in its group gets everything.
                name = name.split("/", 2)[2]
                subscriber.receipts = Receipts(subscriber.client_id, {name: qos})
        for peer in (*self.publishers, *self.subscribers):
            peer.forgives = REFUSALS
        self.writers: list[PeerConnection[Publisher]] = []
        self.readers: list[PeerConnection[Subscriber]] = []
        self._number = 0

    async def start(self) -> None:
        """Make the sessions and leave the subscribers online."""
        self.readers = [PeerConnection(peer, self.port) for peer in self.subscribers]
        await until(lambda: all(p.is_subscribed for p in self.subscribers), "SUBACK")
        self.writers = [PeerConnection(peer, self.port) for peer in self.publishers]
        await until(lambda: all(p.is_connected for p in self.publishers), "CONNACK")

    async def leave(self) -> None:
        """The subscribers lose their connections and stay away."""
        for reader in self.readers:
            reader.is_wanted = False
            reader.cut()
        await until(lambda: all(r.link is None for r in self.readers), "the end of connections")

    def come_back(self) -> None:
        """The subscribers connect again."""
        for reader in self.readers:
            reader.is_wanted = True

    async def publish_until(
        self,
        condition: Callable[[], bool],
        what: str,
        *,
        pause_s: float = 0.002,
    ) -> None:
        """Publish at QoS 1 and 2 as fast as acknowledgements come."""
        end = time.monotonic() + HANG_S
        while not condition():
            assert time.monotonic() < end, f"in {HANG_S:.0f} s not seen: {what}"
            for writer in self.writers:
                while writer.peer.is_connected and len(writer.peer.under_way) < WINDOW:
                    self._number += 1
                    topic = f"t/{self._number % 7}"
                    writer.write(writer.peer.publish(topic, qos=1 + self._number % 2))
            await asyncio.sleep(pause_s)

    async def publish(self, count: int) -> None:
        """Publish until so many more messages are acknowledged."""
        wanted = self.ledger.acknowledged_count + count
        await self.publish_until(
            lambda: self.ledger.acknowledged_count >= wanted, "acknowledgements"
        )

    async def finish(self) -> None:
        """The publishers end their exchanges."""
        await until(
            lambda: not any(peer.under_way for peer in self.publishers), "the end of exchanges"
        )

    async def read_all(self) -> None:
        """The subscribers take everything that was acknowledged."""
        await self.finish()
        self.come_back()
        for subscriber in self.subscribers:
            subscriber.hold = 0.0
        await until(
            lambda: not any(audit(self.ledger, p.receipts).lost for p in self.subscribers),
            "everything acknowledged",
        )

    def check(self) -> None:
        """Nobody complains, and nothing is lost, repeated or out of order."""
        for peer in (*self.publishers, *self.subscribers):
            assert peer.breaches == []
        for subscriber in self.subscribers:
            verdict = audit(self.ledger, subscriber.receipts, strict_order=True)
            assert verdict.examples == [], verdict
            assert verdict.breaches == 0
            assert verdict.expected > 50

    async def close(self) -> None:
        """Everybody goes."""
        await asyncio.gather(*(connection.close() for connection in (*self.writers, *self.readers)))
