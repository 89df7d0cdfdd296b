"""The admin socket, over a real one."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from perdure.errors import ConfigError, StorageFull
from perdure.observe.admin_socket import SOCKET_NAME, SOCKET_PATH_BYTES_MAX, socket_address
from perdure.server import admin
from perdure.server.admin import AdminServer, Row
from perdure.server.explain import What
from perdure.topic.proposal import Structure
from tests.unit.server.fake_admin import FakeAdmin


class Broker(FakeAdmin):
    """Stands for the broker: remembers what it was asked."""

    def __init__(self) -> None:
        super().__init__("a/é")
        self.rows = 3

    async def sessions(self, *, prefix: str, state: str) -> AsyncIterator[Row]:
        self.asked.append(("sessions", prefix, state))
        for number in range(self.rows):
            yield {"client_id": f"c{number}"}

    async def session(self, client_id: str) -> Row | None:
        return {"client_id": client_id} if client_id == "a/é" else None

    async def explain(self, client_id: str, topic: str, what: What) -> Row | None:
        return {"client_id": client_id, "topic": topic} if client_id == "a/é" else None

    async def rotate(self, structure: Structure | None) -> Row:
        if structure is None:
            raise StorageFull("no space")
        return {"patterns": list(structure.patterns)}

    def stats(self) -> Row:
        return {"sessions": 7}


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
async def server(broker: Broker, tmp_path: Path) -> AsyncIterator[AdminServer]:
    server = AdminServer(broker, tmp_path)
    await server.start()
    yield server
    await server.stop()
    assert not (tmp_path / SOCKET_NAME).exists()


async def connect(directory: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    with socket_address(directory) as address:
        return await asyncio.open_unix_connection(address)


async def ask(directory: Path, *requests: bytes) -> list[Any]:
    """Send lines, return every answer until the broker closes or all are answered."""
    reader, writer = await connect(directory)
    try:
        writer.write(b"".join(request + b"\n" for request in requests))
        writer.write_eof()
        return [json.loads(line) for line in (await reader.read()).splitlines()]
    finally:
        writer.close()
        await writer.wait_closed()


def request(command: str, **arguments: str) -> bytes:
    return json.dumps({"command": command, "arguments": arguments}).encode()


@pytest.mark.usefixtures("server")
class TestServer:
    async def test_only_the_owner_may_connect(self, tmp_path: Path) -> None:
        assert stat.S_IMODE((tmp_path / SOCKET_NAME).stat().st_mode) == 0o600

    async def test_rows_then_the_result(self, tmp_path: Path, broker: Broker) -> None:
        assert await ask(tmp_path, request("sessions.list", prefix="c", state="offline")) == [
            {"row": {"client_id": "c0"}},
            {"row": {"client_id": "c1"}},
            {"row": {"client_id": "c2"}},
            {"result": {"count": 3}},
        ]
        assert broker.asked == [("sessions", "c", "offline")]

    async def test_bans(self, tmp_path: Path, broker: Broker) -> None:
        assert await ask(
            tmp_path,
            request("bans.list"),
            request("bans.add", kind="client_id", value="c", reason="r", until_us="7"),
            request("bans.add", kind="client_id", value="c", reason="", until_us="soon"),
            request("bans.add", kind="client_id"),
            request("bans.remove", kind="client_id", value="there"),
            request("bans.remove", kind="client_id", value="not there"),
        ) == [
            {"row": {"kind": "client_id", "value": "c0"}},
            {"row": {"kind": "client_id", "value": "c1"}},
            {"result": {"count": 2}},
            {"result": {"kind": "client_id", "value": "c", "closed": 1}},
            {"error": {"code": "bad_request", "message": "the argument until_us is no moment"}},
            {"error": {"code": "bad_request", "message": "the argument value is missing"}},
            {"result": {"kind": "client_id", "value": "there", "action": "removed"}},
            {"error": {"code": "not_found", "message": "there is no ban of client_id 'not there'"}},
        ]
        assert broker.asked[0] == ("ban", "client_id", "c", "r", "7")

    async def test_many_rows(self, tmp_path: Path, broker: Broker) -> None:
        broker.rows = 5000
        answers = await ask(tmp_path, request("sessions.list"))
        assert len(answers) == 5001
        assert answers[-1] == {"result": {"count": 5000}}

    async def test_results(self, tmp_path: Path) -> None:
        client = "a/é"
        assert await ask(
            tmp_path,
            request("sessions.show", client_id=client),
            request("sessions.explain", client_id=client, topic="t"),
            request("sessions.discard", client_id=client),
            request("sessions.kick", client_id=client),
            request("sessions.set_owner", client_id=client, username="ada"),
            request("stats"),
        ) == [
            {"result": {"client_id": client}},
            {"result": {"client_id": client, "topic": "t"}},
            {"result": {"client_id": client, "action": "discarded"}},
            {"result": {"client_id": client, "action": "kicked"}},
            {"result": {"client_id": client, "action": "given"}},
            {"result": {"sessions": 7}},
        ]

    @pytest.mark.parametrize(
        "command",
        [
            "sessions.show",
            "sessions.explain",
            "sessions.discard",
            "sessions.kick",
            "sessions.set_owner",
        ],
    )
    async def test_not_found(self, tmp_path: Path, command: str) -> None:
        asked = request(command, client_id="nobody", topic="t", username="ada")
        (answer,) = await ask(tmp_path, asked)
        assert answer["error"]["code"] == "not_found"
        assert "nobody" in answer["error"]["message"]

    @pytest.mark.parametrize(
        ("line", "code"),
        [
            (b"", "bad_request"),
            (b"not json", "bad_request"),
            (b"[]", "bad_request"),
            (b'{"command": 5}', "bad_request"),
            (b'{"command": "stats", "x": 1}', "bad_request"),
            (request("sessions.show"), "bad_request"),
            (request("sessions.explode"), "unknown_command"),
            (request("storage.rotate"), "storage_full"),
            (request("storage.rotate", structure="{}"), "bad_request"),
            (
                request("storage.rotate", structure='{"thresholds": [], "patterns": []}'),
                "bad_request",
            ),
        ],
    )
    async def test_errors_leave_the_connection_usable(
        self, tmp_path: Path, line: bytes, code: str
    ) -> None:
        refusal, result = await ask(tmp_path, line, request("stats"))
        assert refusal["error"]["code"] == code
        assert result == {"result": {"sessions": 7}}

    async def test_rotate_passes_a_structure_on(self, tmp_path: Path) -> None:
        structure = '{"thresholds": [10], "patterns": ["a/+"]}'
        (answer,) = await ask(tmp_path, request("storage.rotate", structure=structure))
        assert answer == {"result": {"patterns": ["a/+"]}}

    async def test_a_request_is_bounded(self, tmp_path: Path) -> None:
        long = request("sessions.show", client_id="x" * admin.REQUEST_BYTES_MAX)
        (answer,) = await ask(tmp_path, long)
        assert answer["error"]["code"] == "bad_request"

    async def test_clients_are_bounded(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(admin, "CLIENTS_MAX", 1)
        reader, writer = await connect(tmp_path)
        writer.write(request("stats") + b"\n")
        assert await reader.readline()
        refused, refused_writer = await connect(tmp_path)
        assert json.loads(await refused.readline())["error"]["code"] == "busy"
        for each in (refused_writer, writer):
            each.close()
            await each.wait_closed()


async def test_stop_cuts_clients_off(broker: Broker, tmp_path: Path) -> None:
    server = AdminServer(broker, tmp_path)
    await server.start()
    reader, writer = await connect(tmp_path)
    writer.write(request("stats") + b"\n")
    assert await reader.readline()
    await server.stop()
    assert await reader.read() == b""
    writer.close()
    await writer.wait_closed()
    await server.stop()


async def test_the_socket_of_a_dead_broker_is_replaced(broker: Broker, tmp_path: Path) -> None:
    (tmp_path / SOCKET_NAME).write_text("left over")
    server = AdminServer(broker, tmp_path)
    await server.start()
    assert await ask(tmp_path, request("stats")) == [{"result": {"sessions": 7}}]
    await server.stop()


async def test_a_long_path_is_no_obstacle(broker: Broker, tmp_path: Path) -> None:
    directory = tmp_path / ("d" * 120)
    directory.mkdir()
    assert len(os.fsencode(directory / SOCKET_NAME)) > SOCKET_PATH_BYTES_MAX
    server = AdminServer(broker, directory)
    await server.start()
    assert (directory / SOCKET_NAME).is_socket()
    assert await ask(directory, request("stats")) == [{"result": {"sessions": 7}}]
    await server.stop()
    assert not (directory / SOCKET_NAME).exists()


async def test_a_missing_directory_is_a_config_error(broker: Broker, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot make") as caught:
        await AdminServer(broker, tmp_path / "nowhere").start()
    assert caught.value.path == "storage.path"
