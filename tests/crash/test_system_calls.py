"""The order of system calls: nothing is promised to a client before the log was synced."""

from __future__ import annotations

import shutil
from collections import defaultdict
from pathlib import Path

import pytest

from perdure.bench.ports import free_port
from tests.crash.client import Clients
from tests.support import packets
from tests.support.packets import Splitter
from tests.support.process import BrokerProcess, perdure_command
from tests.support.system_calls import SYNCS, WRITES, Call, read_calls, strace_command

BURSTS, BURST = 12, 5
"""Few enough for the log to stay within its first block, which would cut a payload in two."""


def payload(number: int) -> bytes:
    return b"message-%05d" % number


def qos(number: int) -> int:
    return 1 + number % 2


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
async def test_no_acknowledgement_before_the_log_is_synced(tmp_path: Path) -> None:
    port, output = free_port(), tmp_path / "calls"
    command = strace_command(output, perdure_command(tmp_path / "data", port))
    broker = BrokerProcess(command, port=port, log=tmp_path / "log")
    await broker.start()
    clients = Clients(port)
    try:
        subscriber = await clients.connect("subscriber")
        subscriber.send(packets.subscribe(1, [("t", 2)], protocol=4))
        await subscriber.expect(packets.SUBACK)
        publisher = await clients.connect("publisher")
        for first in range(1, BURSTS * BURST, BURST):
            numbers = range(first, first + BURST)
            for number in numbers:
                publisher.send(
                    packets.publish(
                        "t",
                        payload(number),
                        qos=qos(number),
                        packet_id=number,
                        dup=False,
                        protocol=4,
                    )
                )
            for number in numbers:
                await publisher.expect(packets.PUBACK if qos(number) == 1 else packets.PUBREC)
        for number in range(1, BURSTS * BURST + 1):
            assert payload(number) in (await subscriber.expect(packets.PUBLISH)).body
    finally:
        await clients.close()
        assert await broker.stop() == 0
    check(read_calls(output.read_text().splitlines()))


def check(calls: list[Call]) -> None:
    """Compare each promise with the end of the sync that covers it."""
    acknowledged: dict[int, int] = {}
    delivered: dict[int, int] = {}
    streams: dict[str, Splitter] = defaultdict(Splitter)
    for call in calls:
        if call.name not in WRITES or not call.path.startswith(("socket:", "TCP:")):
            continue
        for packet in streams[call.path].feed(call.data[: call.result]):
            if packet.kind in {packets.PUBACK, packets.PUBREC}:
                acknowledged[packets.read_acknowledgement(packet)[0]] = call.begun
            elif packet.kind == packets.PUBLISH:
                message = packets.read_publish(packet, protocol=4)
                delivered[int(message.payload[-5:])] = call.begun
    assert len(acknowledged) == len(delivered) == BURSTS * BURST
    for number, begun in acknowledged.items():
        safe = synced_at(calls, payload(number))
        assert safe < begun, f"{number} was acknowledged at {begun}, and synced at {safe}"
        if qos(number) == 2:
            assert safe < delivered[number], f"QoS 2 message {number} was handed on unsynced"


def synced_at(calls: list[Call], data: bytes) -> int:
    """When the log that holds some data was synced first."""
    written = next(
        call
        for call in calls
        if call.name in WRITES and call.path.endswith(".log") and data in call.data
    )
    return next(
        call.ended
        for call in calls
        if call.name in SYNCS
        and call.path == written.path
        and call.begun > written.ended
        and call.ended > 0
        and call.result == 0
    )
