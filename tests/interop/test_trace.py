"""Traces of a broker that runs, on its own sockets, from first to last."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiomqtt
import pytest

from perdure.admin.client import AsyncAdmin
from perdure.admin.problems import CODES, Refused
from perdure.admin.records.trace import ListTraces, ReadTrace, StartTrace, StopTrace, TraceEvent
from perdure.admin.rights import Principal
from perdure.bench.ports import free_port
from tests.support.bounds import HANG_S
from tests.support.process import BrokerProcess, perdure_command

ADMIN = Principal(name="eva", role="admin")
VERSIONS = (aiomqtt.ProtocolVersion.V311, aiomqtt.ProtocolVersion.V5)


class Scene:
    def __init__(self, port: int, data: Path) -> None:
        self.port = port
        self.data = data
        self.admin = AsyncAdmin(data)

    def client(self, name: str, version: Any = VERSIONS[1]) -> aiomqtt.Client:
        return aiomqtt.Client("127.0.0.1", self.port, identifier=name, protocol=version)

    async def start(self, kind: Any, value: str, **more: Any) -> str:
        request = StartTrace(kind=kind, value=value, **more)
        return (await self.admin.call(request, ADMIN)).id

    async def until(self, trace_id: str, last: str) -> list[TraceEvent]:
        """The events, once one of a kind is among them."""
        async with asyncio.timeout(HANG_S):
            while True:
                page = await self.admin.call(ReadTrace(trace_id=trace_id), ADMIN)
                if any(event.event == last for event in page.items):
                    return page.items
                await asyncio.sleep(0.01)


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    port = free_port()
    broker = BrokerProcess(
        perdure_command(tmp_path / "data", port), port=port, log=tmp_path / "log"
    )
    await broker.start()
    made = Scene(port, tmp_path / "data")
    yield made
    await made.admin.close()
    await broker.stop()


async def exchange(client: aiomqtt.Client, topic: str, payload: str) -> None:
    await client.publish(topic, payload, qos=1)
    async for message in client.messages:
        assert message.payload == payload.encode()
        return


async def test_a_client_from_its_connect_to_its_end(scene: Scene) -> None:
    for version in VERSIONS:
        trace = await scene.start("client", "pump")
        async with scene.client("other", version) as other, scene.client("pump", version) as pump:
            await pump.subscribe("t/#", qos=1)
            await exchange(pump, "t/1", "secret")
            await other.publish("t/2", "from other", qos=1)
            await anext(aiter(pump.messages))
        events = await scene.until(trace, "closed")
        assert {event.client_id for event in events} == {"pump"}
        kinds = [event.event for event in events]
        assert kinds[:4] == ["connect", "connack", "subscribe", "suback"]
        assert {"publish", "answered", "sent", "acked", "disconnect"} <= set(kinds)
        (published,) = [event for event in events if event.event == "publish"]
        assert (published.topic, published.qos, published.payload_bytes) == ("t/1", 1, 6)
        assert published.payload is None
        acked = [(each.topic, each.detail) for each in events if each.event == "acked"]
        assert sorted(acked) == [("t/1", "PUBACK"), ("t/2", "PUBACK")]
        await scene.admin.call(StopTrace(trace_id=trace), ADMIN)


async def test_one_that_is_connected_already(scene: Scene) -> None:
    async with scene.client("pump") as pump, scene.client("other") as other:
        await pump.subscribe("t", qos=1)
        await exchange(pump, "t", "before")
        trace = await scene.start("client", "pump", payloads=True)
        await exchange(pump, "t", "during")
        events = await scene.until(trace, "acked")
        assert [(each.event, each.payload) for each in events if each.payload] == [
            ("publish", "during"), ("sent", "during"),
        ]  # fmt: skip
        # At its end nothing listens any more, and the clients notice nothing.
        count = (await scene.admin.call(StopTrace(trace_id=trace), ADMIN)).events
        await exchange(pump, "t", "after")
        await other.publish("x", "y", qos=1)
        page = await scene.admin.call(ReadTrace(trace_id=trace), ADMIN)
        assert (page.trace.running, page.trace.events) == (False, count)


async def test_a_topic_over_all_clients(scene: Scene) -> None:
    async with scene.client("a") as first:
        await first.subscribe("plant/+", qos=1)
        trace = await scene.start("topic", "plant/7")
        async with scene.client("b") as second:
            await second.publish("plant/8", "no", qos=1)
            await second.publish("plant/7", "yes", qos=1)
        events = await scene.until(trace, "acked")
        assert {each.topic for each in events} == {"plant/7"}
        told = {(each.client_id, each.event) for each in events}
        assert {("b", "publish"), ("b", "answered"), ("a", "sent"), ("a", "acked")} <= told


async def test_traces_are_few_and_end(scene: Scene) -> None:
    ids = [await scene.start("client", str(number)) for number in range(4)]
    with pytest.raises(Refused, match="4 traces run already") as caught:
        await scene.start("client", "5")
    # To ask again helps no more than it did: one must be stopped.
    assert CODES[caught.value.problem.code].status == 409
    for each in ids:
        await scene.admin.call(StopTrace(trace_id=each), ADMIN)
    short = await scene.start("client", "x", seconds=1)
    async with asyncio.timeout(HANG_S):
        while (await scene.admin.call(ReadTrace(trace_id=short), ADMIN)).trace.running:
            await asyncio.sleep(0.05)
    assert len((await scene.admin.call(ListTraces(), ADMIN)).items) == 5
    with pytest.raises(Refused, match="no trace"):
        await scene.admin.call(ReadTrace(trace_id="none"), ADMIN)
    with pytest.raises(Refused, match="viewer"):
        await scene.admin.call(
            StartTrace(kind="client", value="x"), Principal(name="v", role="viewer")
        )


async def test_a_trace_is_shown_and_stopped_by_a_command(scene: Scene) -> None:
    trace = await scene.start("client", "pump")
    async with scene.client("pump") as pump:
        await pump.publish("a", "b", qos=1)
    await scene.until(trace, "disconnect")

    async def told(*words: str) -> str:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "perdure", "trace", *words, "--data", str(scene.data)),
            stdout=subprocess.PIPE,
        )
        out, _ = await process.communicate()
        assert process.returncode == 0
        return out.decode()

    rows = [
        json.loads(row) for row in (await told("show", trace, "--output", "jsonl")).splitlines()
    ]
    assert [row["event"] for row in rows][:4] == ["connect", "connack", "publish", "answered"]
    assert [row["number"] for row in rows] == list(range(1, len(rows) + 1))
    assert (await told("show", trace)).splitlines()[2].split("\t")[2:5] == ["pump", "publish", "a"]
    await told("stop", trace)
    (only,) = (await scene.admin.call(ListTraces(), ADMIN)).items
    assert not only.running


async def test_the_command_writes_a_file(scene: Scene, tmp_path: Path) -> None:
    file = tmp_path / "trace.jsonl"
    command = ["-m", "perdure", "trace", "client", "pump", "--seconds", "1", "--to", str(file)]
    tracing = await asyncio.create_subprocess_exec(
        sys.executable, *command, "--data", str(scene.data), stdout=subprocess.PIPE
    )
    async with asyncio.timeout(HANG_S):
        while not (await scene.admin.call(ListTraces(), ADMIN)).items:
            await asyncio.sleep(0.01)
        async with scene.client("pump") as pump:
            await pump.publish("a", "b", qos=1)
        out, _ = await tracing.communicate()
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert [row["event"] for row in rows][:2] == ["connect", "connack"]
    assert len(out.splitlines()) == len(rows)
