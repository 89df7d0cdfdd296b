"""Closed and open loops, with time as an argument."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from perdure.bench.loop import Link, Loop
from perdure.bench.meter import Meter
from perdure.bench.pacing import QOS0_STALL_NS, ClosedLoop, OpenLoop
from perdure.bench.publisher import Publisher
from perdure.mqtt.encode import ack_bytes
from perdure.mqtt.packets import PUBACK
from tests.unit.bench.helpers import publisher, ready

MS = 1_000_000


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop("127.0.0.1", 1)
    yield loop
    loop.close()


def links_of(loop: Loop, *clients: Publisher) -> list[Link]:
    return [Link(client, loop) for client in clients]


def acknowledge(link: Link, *packet_ids: int, now_ns: int) -> None:
    link.client.received(b"".join(ack_bytes(PUBACK, n) for n in packet_ids), now_ns)


def test_a_closed_loop_keeps_the_window_full(loop: Loop) -> None:
    client = publisher()
    (link,) = links_of(loop, client)
    pacing = ClosedLoop([link], window=4, meter=client.meter)
    pacing.start(0)
    assert len(client.inflight) == 4
    acknowledge(link, 1, 2, now_ns=10)
    pacing.acknowledged(link, 10)
    assert client.inflight == {3: 0, 4: 0, 5: 10, 6: 10}
    pacing.stop()
    acknowledge(link, 3, now_ns=20)
    pacing.acknowledged(link, 20)
    assert len(client.inflight) == 3


def test_the_receive_maximum_of_the_broker_bounds_the_window(loop: Loop) -> None:
    client = publisher(version=5)
    ready(client, receive_maximum=3)
    (link,) = links_of(loop, client)
    ClosedLoop([link], window=16, meter=client.meter).start(0)
    assert len(client.inflight) == 3


def test_a_limit_ends_the_sending(loop: Loop) -> None:
    client = publisher()
    (link,) = links_of(loop, client)
    pacing = ClosedLoop([link], window=4, meter=client.meter, limit=5)
    pacing.start(0)
    acknowledge(link, 1, 2, 3, now_ns=10)
    pacing.acknowledged(link, 10)
    assert client.meter.sent == 5


def test_qos_0_goes_on_when_messages_came_or_were_lost(loop: Loop) -> None:
    client = publisher(qos=0)
    (link,) = links_of(loop, client)
    pacing = ClosedLoop([link], window=4, meter=client.meter)
    pacing.start(0)
    assert client.meter.sent == 4
    pacing.tick(MS)
    assert client.meter.sent == 4
    client.meter.credited += [1, 1, 1]
    pacing.tick(2 * MS)
    assert client.meter.sent == 7
    assert client.meter.credited == []
    pacing.tick(2 * MS + QOS0_STALL_NS)
    assert client.meter.sent == 7
    pacing.tick(3 * MS + QOS0_STALL_NS)
    assert client.meter.sent == 11
    pacing.stop()
    client.meter.credited.append(1)
    pacing.tick(4 * MS + QOS0_STALL_NS)
    assert client.meter.sent == 11


def test_an_open_loop_sends_by_the_clock_in_turn(loop: Loop) -> None:
    meter = Meter()
    first, second = publisher(meter=meter), publisher(meter=meter)
    pacing = OpenLoop(links_of(loop, first, second), rate=1000, window=10, meter=meter)
    pacing.start(0)
    assert (len(first.inflight), len(second.inflight)) == (1, 0)
    assert pacing.tick(MS // 2) == MS // 2
    pacing.tick(3 * MS)
    assert list(first.inflight.values()) == [0, 2 * MS]
    assert list(second.inflight.values()) == [MS, 3 * MS]
    assert meter.late_ns.high == 2 * MS
    pacing.stop()
    pacing.tick(9 * MS)
    assert meter.sent == 4


def test_what_waits_for_the_window_keeps_its_intended_time(loop: Loop) -> None:
    client = publisher()
    (link,) = links_of(loop, client)
    pacing = OpenLoop([link], rate=1000, window=2, meter=client.meter)
    pacing.start(0)
    pacing.tick(3 * MS)
    assert len(client.inflight) == 2
    assert list(client.waiting) == [2 * MS, 3 * MS]
    acknowledge(link, 1, now_ns=50 * MS)
    pacing.acknowledged(link, 50 * MS)
    acknowledge(link, 3, now_ns=60 * MS)
    assert client.meter.ack_ns.high == 58 * MS
    assert list(client.waiting) == [3 * MS]


def test_an_open_loop_has_no_limit_that_another_pacing_left(loop: Loop) -> None:
    client = publisher()
    links = links_of(loop, client)
    ClosedLoop(links, window=5, meter=client.meter, limit=2).start(0)
    assert client.remaining == 0
    OpenLoop(links, rate=1000, window=10, meter=client.meter).start(MS)
    assert client.meter.sent == 3
