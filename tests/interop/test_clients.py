"""Clients as they are used: each subscribes durably, is away while all publish and the broker is
killed, and comes back to every message, once and in order.

``PERDURE_INTEROP_BROKER=mosquitto`` runs the cases without the kill on Mosquitto, which checks
the cases themselves. A client that is not installed is skipped (`make peers` installs them).
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from functools import cache
from pathlib import Path

import pytest

from perdure.bench.ports import free_port
from tests.support.bounds import HANG_S
from tests.support.process import BrokerProcess, perdure_command

HERE = Path(__file__).parent
ON_MOSQUITTO = os.environ.get("PERDURE_INTEROP_BROKER") == "mosquitto"
COUNT = 20
CLIENTS = ("paho", "gmqtt", "mqttjs", "paho_c", "mosquitto")

pytestmark = pytest.mark.slow


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[BrokerProcess]:
    """A broker that has just been started."""
    port = free_port()
    if ON_MOSQUITTO:
        config = tmp_path / "mosquitto.conf"
        config.write_text(
            f"listener {port} 127.0.0.1\nallow_anonymous true\nmax_inflight_messages 1000\n",
            encoding="utf-8",
        )
        program = shutil.which("mosquitto") or "/usr/sbin/mosquitto"
        command = [program, "-c", str(config)]
    else:
        command = perdure_command(tmp_path / "data", port)
    process = BrokerProcess(command, port=port, log=tmp_path / "broker.log")
    await process.start()
    yield process
    await process.stop()


@cache
def program(client: str, build: Path) -> tuple[str, ...]:
    """How a client is called; skips the test if it is not here."""
    if client == "paho":
        return (sys.executable, str(HERE / "programs/paho_client.py"))
    if client == "gmqtt":
        return (sys.executable, str(HERE / "programs/gmqtt_client.py"))
    if client == "mosquitto":
        if not shutil.which("mosquitto_sub"):
            pytest.skip("mosquitto_sub is not installed")
        return ("bash", str(HERE / "programs/mosquitto.sh"))
    if client == "mqttjs":
        node = shutil.which("node")
        if node is None or not (HERE / "node/node_modules/mqtt").is_dir():
            pytest.skip("MQTT.js is not installed")
        return (node, str(HERE / "node/client.mjs"))
    compiler, output = shutil.which("cc"), build / "paho_c"
    if compiler is None or not Path("/usr/include/MQTTClient.h").exists():
        pytest.skip("Paho C or a C compiler is not installed")
    source = str(HERE / "programs/paho_c.c")
    subprocess.run(
        [compiler, "-O1", "-Wall", "-Werror", "-o", str(output), source, "-lpaho-mqtt3c"],
        check=True,
    )
    return (str(output),)


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where compiled clients go."""
    return tmp_path_factory.mktemp("build")


async def run(*command: str) -> list[str]:
    """Run a client to its end; returns the lines that it printed."""
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        output, errors = await asyncio.wait_for(process.communicate(), HANG_S)
    except TimeoutError:
        process.kill()
        output, errors = await process.communicate()
        pytest.fail(f"{command} hangs; it printed:\n{output.decode()}{errors.decode()}")
    assert process.returncode == 0, f"{command}: {errors.decode()}"
    return output.decode().splitlines()


@pytest.mark.parametrize("protocol", ["4", "5"])
@pytest.mark.parametrize("client", CLIENTS)
async def test_a_durable_session_gets_everything_once_and_in_order(
    broker: BrokerProcess, build: Path, client: str, protocol: str
) -> None:
    subscriber, port = program(client, build), str(broker.port)
    await run(*subscriber, "subscribe", port, protocol, "sub", "interop/sub/#")
    for qos in ("1", "2"):
        topic = f"interop/sub/{qos}"
        await run(
            *subscriber, "publish", port, protocol, f"pub{qos}", topic, qos, str(COUNT), "word"
        )
    if not ON_MOSQUITTO:
        await broker.kill()
        await broker.start()
    lines = await run(*subscriber, "collect", port, protocol, "sub", str(2 * COUNT))
    for qos in ("1", "2"):
        expected = [f"{qos} interop/sub/{qos} word {number}" for number in range(1, COUNT + 1)]
        assert [line for line in lines if line.startswith(qos)] == expected
    assert len(lines) == 2 * COUNT


@pytest.mark.parametrize("publisher", CLIENTS)
async def test_every_client_reads_every_other(
    broker: BrokerProcess, build: Path, publisher: str
) -> None:
    sender, port = program(publisher, build), str(broker.port)
    readers = []
    for client in CLIENTS:
        try:
            readers.append((client, program(client, build)))
        except pytest.skip.Exception:
            continue
    for name, reader in readers:
        await run(*reader, "subscribe", port, "5", name, f"interop/{name}/#")
    for name, _ in readers:
        topic = f"interop/{name}/x"
        await run(*sender, "publish", port, "4", "sender", topic, "2", "3", "wörter")
    for name, reader in readers:
        lines = await run(*reader, "collect", port, "5", name, "3")
        assert lines == [f"2 interop/{name}/x wörter {number}" for number in (1, 2, 3)]


@pytest.mark.skipif(not shutil.which("mosquitto_rr"), reason="mosquitto_rr is not installed")
async def test_mosquitto_rr_gets_its_response(broker: BrokerProcess) -> None:
    """A responder answers on the response topic with the correlation data (MQTT 5.0)."""
    common = ("-h", "127.0.0.1", "-p", str(broker.port), "-V", "5", "-q", "1")
    await run("mosquitto_sub", *common, "-i", "responder", "-c", "-x", "60", "-t", "ask", "-E")
    asking = asyncio.create_task(
        run(
            "mosquitto_rr",
            *common,
            "-t",
            "ask",
            "-e",
            "answer/1",
            "-m",
            "how many",
            "-W",
            str(int(HANG_S)),
        )
    )
    request = await run(
        *("mosquitto_sub", *common, "-i", "responder", "-c", "-x", "60", "-t", "ask"),
        *("-C", "1", "-W", str(int(HANG_S)), "-F", "%R %p"),
    )
    assert request == ["answer/1 how many"]
    await run("mosquitto_pub", *common, "-t", "answer/1", "-m", "54")
    assert await asking == ["54"]
