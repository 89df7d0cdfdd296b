"""What a process does when it is told to: stop in order, read its settings again, stay alone."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from pathlib import Path

import pytest

from perdure.bench.ports import free_port
from tests.crash.load import Load, until
from tests.support import packets
from tests.support.bounds import HANG_S
from tests.support.packets import Splitter
from tests.support.process import BrokerProcess, perdure_command


def events(log: Path) -> list[str]:
    """Names of what the broker said, in order."""
    lines = log.read_text().splitlines()
    return [json.loads(line)["event"] for line in lines if line.startswith("{")]


@pytest.mark.slow
async def test_sigterm_in_the_middle_of_everything(tmp_path: Path) -> None:
    """Nothing acknowledged is lost, clients are told why, and the exit code is 0."""
    port, log = free_port(), tmp_path / "broker.log"
    broker = BrokerProcess(perdure_command(tmp_path / "data", port), port=port, log=log)
    load = Load(port)
    for subscriber in load.subscribers:
        subscriber.hold = 0.3
    try:
        await broker.start()
        await load.start()
        for _ in range(2):
            await load.publish(100)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            splitter = Splitter()
            writer.write(packets.connect("witness", protocol=5))
            assert splitter.feed(await reader.read(1000))[0].kind == packets.CONNACK
            publishing = asyncio.create_task(load.publish(2000))
            wanted = load.ledger.acknowledged_count + 300
            await until(lambda: load.ledger.acknowledged_count > wanted, "acknowledgements")  # noqa: B023
            stopping = asyncio.create_task(broker.stop())
            last = splitter.feed(await reader.read())[-1]
            assert (last.kind, last.body[0]) == (packets.DISCONNECT, 0x8B)
            writer.close()
            await writer.wait_closed()
            assert await stopping == 0
            await broker.start()
            await publishing
        await load.read_all()
    finally:
        await load.close()
        await broker.stop()
    load.check()
    names = events(log)
    assert names.count("server.drained") == 3
    assert names[-1] == "server.stopped"


@pytest.mark.slow
async def test_a_second_start_on_a_directory_is_refused(tmp_path: Path) -> None:
    data, port = tmp_path / "data", free_port()
    broker = BrokerProcess(perdure_command(data, port), port=port, log=tmp_path / "broker.log")
    await broker.start()
    try:
        second = subprocess.run(
            perdure_command(data, free_port()),
            capture_output=True,
            text=True,
            timeout=HANG_S,
            check=False,
        )
        broker.check()
    finally:
        assert await broker.stop() == 0
    assert second.returncode == 75
    said = second.stderr.splitlines()
    assert said[-2].startswith(f"perdure: {data} is in use by process ")
    assert said[-1].startswith("hint: ")


@pytest.mark.slow
async def test_sighup_takes_new_settings_and_refuses_bad_ones(tmp_path: Path) -> None:
    port, log = free_port(), tmp_path / "broker.log"
    config, rules = tmp_path / "perdure.yaml", tmp_path / "rules"
    rules.write_text("topic readwrite #\n")
    config.write_text(f"auth:\n  acl_file: {rules}\n")
    command = perdure_command(tmp_path / "data", port, "--config", str(config))
    broker = BrokerProcess(command, port=port, log=log)
    await broker.start()
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        splitter = Splitter()
        writer.write(packets.connect("c", protocol=5))
        assert splitter.feed(await reader.read(1000))[0].kind == packets.CONNACK

        async def publish(packet_id: int) -> int:
            writer.write(
                packets.publish("t", b"", qos=1, packet_id=packet_id, dup=False, protocol=5)
            )
            (answer,) = splitter.feed(await reader.read(1000))
            assert packets.read_acknowledgement(answer)[0] == packet_id
            return packets.read_acknowledgement(answer)[1]

        async def reload(event: str) -> None:
            count = events(log).count(event)
            broker.signal(signal.SIGHUP)
            await until(lambda: events(log).count(event) > count, event)

        assert await publish(1) < 0x80
        rules.write_text("topic read #\n")
        await reload("server.reloaded")
        assert await publish(2) == 0x87
        config.write_text("auth:\n  acl_fiel: nowhere\n")
        await reload("server.reload_failed")
        assert await publish(3) == 0x87
        config.write_text(f"auth:\n  acl_file: {rules}\n")
        rules.write_text("topic readwrite #\n")
        await reload("server.reloaded")
        assert await publish(4) < 0x80
        writer.close()
        await writer.wait_closed()
    finally:
        assert await broker.stop() == 0
