"""When the publishers publish: as fast as a window allows, or by the clock.

*Closed loop*: each publisher keeps ``window`` messages unacknowledged. It measures the most that
a broker takes; latency then only says how long the window takes.

*Open loop*: messages are due at a fixed rate, whatever the broker does. A message that finds its
publisher's window full waits, and its latency counts from when it was due, so that a stall shows
in every message that it delayed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from perdure.bench.loop import Link
from perdure.bench.meter import Meter
from perdure.bench.publisher import Publisher

QOS0_STALL_NS: Final = 500_000_000
"""Closed loop at QoS 0: what has not come for so long is taken for lost, and sending goes on."""


@final
class ClosedLoop:
    """Keeps a window full.

    Args:
        links: those of the publishers.
        window: unacknowledged messages of each; at QoS 0 undelivered ones.
        meter: tells of QoS 0 messages that came.
        limit: messages of each publisher; None = no end.
    """

    def __init__(
        self, links: Sequence[Link], *, window: int, meter: Meter, limit: int | None = None
    ) -> None:
        self._meter = meter
        self._links = list(links)
        self._limit = limit
        self._publishers = [_publisher(link) for link in links]
        self._windows = [min(window, publisher.receive_maximum) for publisher in self._publishers]
        self._index = {id(link): index for index, link in enumerate(links)}
        self._stopped = False
        self._qos0 = self._publishers[0].streams[0].qos == 0
        self._unseen = [0] * len(links)
        self._owner = {
            stream.number: index
            for index, publisher in enumerate(self._publishers)
            for stream in publisher.streams
        }
        self._progress_ns = 0

    def start(self, now_ns: int) -> None:
        """Fill every window."""
        self._progress_ns = now_ns
        for index, link in enumerate(self._links):
            self._publishers[index].remaining = self._limit
            self._fill(index, now_ns)
            link.flush()

    def acknowledged(self, link: Link, now_ns: int) -> None:
        """Fill the window again."""
        if not self._qos0 and not self._stopped:
            self._fill(self._index[id(link)], now_ns)

    def tick(self, now_ns: int) -> int:
        """At QoS 0, follow up what has come; otherwise acknowledgements drive everything."""
        if not self._qos0 or self._stopped:
            return 100_000_000
        credited = self._meter.credited
        if credited:
            self._progress_ns = now_ns
            owners = set()
            for stream in credited:
                index = self._owner[stream]
                self._unseen[index] = max(0, self._unseen[index] - 1)
                owners.add(index)
            credited.clear()
        elif now_ns - self._progress_ns > QOS0_STALL_NS:
            self._progress_ns = now_ns
            self._unseen = [0] * len(self._links)
            owners = set(range(len(self._links)))
        else:
            return 10_000_000
        for index in owners:
            self._fill(index, now_ns)
            self._links[index].flush()
        return 10_000_000

    def stop(self) -> None:
        """Publish nothing more."""
        self._stopped = True

    def _fill(self, index: int, now_ns: int) -> None:
        publisher = self._publishers[index]
        if self._qos0:
            count = self._windows[index] - self._unseen[index]
            self._unseen[index] += count
        else:
            count = self._windows[index] - len(publisher.inflight)
        publisher.publish(now_ns, count)


@final
class OpenLoop:
    """Publishes at a rate, the publishers in turn.

    Args:
        links: those of the publishers.
        rate: messages per second, of all together.
        window: unacknowledged messages of each, at most.
        meter: counts how late the generator was.
    """

    def __init__(self, links: Sequence[Link], *, rate: float, window: int, meter: Meter) -> None:
        assert rate > 0
        self._links = list(links)
        self._publishers = [_publisher(link) for link in links]
        self._windows = [min(window, publisher.receive_maximum) for publisher in self._publishers]
        self._index = {id(link): index for index, link in enumerate(links)}
        self._period_ns = 1e9 / rate
        self._meter = meter
        self._begun_ns = 0
        self._made = 0
        self._stopped = False

    def start(self, now_ns: int) -> None:
        """The first message is due now."""
        for publisher in self._publishers:
            publisher.remaining = None  # whatever another pacing left
        self._begun_ns = now_ns
        self.tick(now_ns)

    def acknowledged(self, link: Link, now_ns: int) -> None:
        """Send what waited for room."""
        index = self._index[id(link)]
        publisher = self._publishers[index]
        while publisher.waiting and len(publisher.inflight) < self._windows[index]:
            publisher.publish(publisher.waiting.popleft(), 1)

    def tick(self, now_ns: int) -> int:
        """Publish what is due."""
        if self._stopped:
            return 100_000_000
        due = int((now_ns - self._begun_ns) / self._period_ns) + 1
        count = len(self._links)
        for number in range(self._made, due):
            index = number % count
            intended = self._begun_ns + int(number * self._period_ns)
            publisher = self._publishers[index]
            self._meter.late_ns.record(now_ns - intended)
            if publisher.waiting or len(publisher.inflight) >= self._windows[index]:
                publisher.waiting.append(intended)
                continue
            publisher.publish(intended, 1)
            self._links[index].flush()
        self._made = due
        return max(1, self._begun_ns + int(due * self._period_ns) - now_ns)

    def stop(self) -> None:
        """Publish nothing more that is not yet due."""
        self._stopped = True


def _publisher(link: Link) -> Publisher:
    assert isinstance(link.client, Publisher)
    return link.client
