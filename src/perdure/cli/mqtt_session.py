"""Connecting for a command: what goes wrong becomes one line, JSON and exit code 69."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from perdure.cli.exit_codes import CommandFailed, ExitCode
from perdure.cli.output import Output
from perdure.errors import MqttError
from perdure.mqtt import reason_codes
from perdure.mqtt.client_events import Connected
from perdure.mqtt.packets import V5
from perdure.net.client import Client


async def connect(client: Client, out: Output, *, timeout_s: float) -> Connected:
    """Connect, or end the command.

    Raises:
        CommandFailed: exit code 69; a refusal is also a JSON record, if JSON was asked for.
    """
    try:
        return await client.connect(timeout_s=timeout_s)
    except (MqttError, OSError) as error:
        raise unavailable(client, out, error) from error


def unavailable(client: Client, out: Output, error: MqttError | OSError) -> CommandFailed:
    """The failure of a command whose broker refused it, hung up or is not there."""
    where = f"{client.endpoint.host}:{client.endpoint.port}"
    record: dict[str, Any] = {"broker": where, "client_id": client.protocol.client_id}
    if isinstance(error, MqttError):
        text = error.message or reason_name(client, error.reason_code)
        record |= {"error": text, "reason_code": error.reason_code}
        message = f"{where}: {text} (reason code {error.reason_code:#04x})"
    else:
        text = error.strerror or str(error) or "no answer in time"
        record |= {"error": text, "reason_code": None}
        message = f"cannot reach {where}: {text}"
    if out.is_json:
        out.record(record)
    return CommandFailed(message, ExitCode.UNAVAILABLE)


def reason_name(client: Client, code: int) -> str:
    """What a code of CONNACK means in the client's version."""
    if client.protocol.version != V5 and code < len(reason_codes.RETURN_CODES_311):
        return reason_codes.RETURN_CODES_311[code]
    return reason_codes.name(code)


class Interrupted(Exception):
    """A signal asked the command to end; ``number`` is the signal's."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@asynccontextmanager
async def ends_on_signals() -> AsyncIterator[None]:
    """Turn SIGINT and SIGTERM into ``Interrupted`` inside, so that a DISCONNECT still goes out."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    caught: list[int] = []

    def catch(number: int) -> None:
        caught.append(number)
        task.cancel()

    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        loop.add_signal_handler(number, catch, number)
    try:
        yield
    except asyncio.CancelledError:
        if caught and task.uncancel() == 0:
            raise Interrupted(caught[0]) from None
        raise
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
