"""Failures of a connection, and signals, as a command sees them."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal

import pytest

from perdure.cli.exit_codes import ExitCode
from perdure.cli.mqtt_session import Interrupted, ends_on_signals, unavailable
from perdure.cli.output import Output
from perdure.errors import MqttError
from perdure.mqtt.client_protocol import ClientProtocol
from perdure.net.client import Client
from perdure.net.client_link import Endpoint
from tests.support.bounds import HANG_S


@pytest.mark.parametrize(
    ("version", "error", "words", "code"),
    [
        (5, MqttError(0x87, ""), "Not authorized (reason code 0x87)", 0x87),
        (4, MqttError(5, ""), "Not authorized (reason code 0x05)", 5),
        (5, MqttError(0x97, "too many"), "too many (reason code 0x97)", 0x97),
        (5, ConnectionRefusedError(111, "Connection refused"), "Connection refused", None),
        (5, TimeoutError(), "no answer in time", None),
    ],
)
def test_unavailable(
    version: int, error: MqttError | OSError, words: str, code: int | None
) -> None:
    client = Client(ClientProtocol(version, "me"), Endpoint(host="h", port=1))
    stream = io.StringIO()
    failure = unavailable(client, Output("json", stream), error)
    assert failure.exit_code == ExitCode.UNAVAILABLE
    assert "h:1" in failure.message
    assert words in failure.message
    record = json.loads(stream.getvalue())
    assert (record["broker"], record["client_id"]) == ("h:1", "me")
    assert record["reason_code"] == code
    assert record["error"]
    silent = io.StringIO()
    unavailable(client, Output("tsv", silent), error)
    assert silent.getvalue() == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_ends_what_is_inside(number: signal.Signals) -> None:
    async def inside() -> None:
        async with ends_on_signals():
            os.kill(os.getpid(), number)
            await asyncio.wait_for(asyncio.Event().wait(), HANG_S)

    with pytest.raises(Interrupted) as interrupted:
        await inside()
    assert interrupted.value.number == number
    # The task itself is not cancelled any more.
    await asyncio.sleep(0)


async def test_other_cancellations_pass() -> None:
    async def inside() -> None:
        async with ends_on_signals():
            await asyncio.Event().wait()

    task = asyncio.create_task(inside())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
