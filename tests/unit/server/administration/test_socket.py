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

from perdure.admin.wire import REQUEST_BYTES_MAX
from perdure.errors import ConfigError, StorageFull
from perdure.observe.admin_socket import SOCKET_NAME, SOCKET_PATH_BYTES_MAX, socket_address
from perdure.server.administration import socket
from perdure.server.administration.socket import AdminServer
from tests.unit.server.administration.fake_service import FakeBroker

VIEWER = {"name": "v", "role": "viewer"}


@pytest.fixture
def broker() -> FakeBroker:
    return FakeBroker("a/é")


@pytest.fixture
async def server(broker: FakeBroker, tmp_path: Path) -> AsyncIterator[AdminServer]:
    server = AdminServer(broker.service, tmp_path)
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


def request(operation: str, principal: dict[str, Any] | None = None, **fields: Any) -> bytes:
    line: dict[str, Any] = {"operation": operation, "request": fields}
    if principal is not None:
        line["principal"] = principal
    return json.dumps(line).encode()


STATS = request("stats.show")


@pytest.mark.usefixtures("server")
class TestServer:
    async def test_only_the_owner_may_connect(self, tmp_path: Path) -> None:
        assert stat.S_IMODE((tmp_path / SOCKET_NAME).stat().st_mode) == 0o600

    async def test_an_answer_for_each_line_in_order(
        self, tmp_path: Path, broker: FakeBroker
    ) -> None:
        client = "a/é"
        answers = await ask(
            tmp_path,
            request("sessions.list", limit=7),
            request("sessions.explain", client_id=client, topic="t"),
            request("sessions.discard", client_id=client),
            request("bans.remove", kind="client_id", value="there"),
            STATS,
        )
        listed, explained, *others, stats = [answer["result"] for answer in answers]
        assert (listed["items"][0]["client_id"], listed["next_cursor"]) == (client, None)
        assert explained["findings"][0]["code"] == "window_full"
        assert others == [
            {"client_id": client, "action": "discarded"},
            {"kind": "client_id", "value": "there", "action": "removed"},
        ]
        assert stats["storage"] == "ok"

    async def test_a_long_page_is_written_in_steps(
        self, tmp_path: Path, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        steps: list[int] = []

        class Counted:
            async def step(self) -> None:
                steps.append(1)

        monkeypatch.setattr(socket, "Turns", Counted)
        broker.rows = broker.page = 150
        asked = request("sessions.list", limit=200)
        (in_steps,) = await ask(tmp_path, asked)
        monkeypatch.setattr(socket, "ROWS_AT_ONCE_MAX", 1_000)
        assert await ask(tmp_path, asked) == [in_steps]
        assert len(in_steps["result"]["items"]) == len(steps) > 100

    @pytest.mark.parametrize(
        ("line", "code"),
        [
            (b"", "bad_request"),
            (b"not json", "bad_request"),
            (b"[]", "bad_request"),
            (b'{"operation": "stats.show", "request": ' + b"[" * 9_999, "bad_request"),
            (b'{"operation": 5}', "bad_request"),
            (b'{"operation": "stats.show", "x": 1}', "bad_request"),
            (request("stats.show", x=1), "bad_request"),
            (request("sessions.show"), "bad_request"),
            (request("sessions.show", client_id=5), "bad_request"),
            (request("sessions.show", client_id="nobody"), "not_found"),
            (request("sessions.explode"), "unknown_operation"),
            (request("stats.rates"), "not_available"),
            (request("stats.show", {"name": "x", "role": "nobody"}), "bad_request"),
            (request("sessions.kick", VIEWER, client_id="a/é"), "forbidden"),
            (request("storage.rotate"), "storage_full"),
            (request("storage.rotate", structure={}), "bad_request"),
        ],
    )
    async def test_errors_leave_the_connection_usable(
        self, tmp_path: Path, broker: FakeBroker, line: bytes, code: str
    ) -> None:
        broker.refusal = StorageFull("no space")
        refusal, result = await ask(tmp_path, line, STATS)
        assert refusal["error"]["code"] == code
        assert result["result"]["storage"] == "ok"

    async def test_a_defect_costs_one_answer(self, tmp_path: Path, broker: FakeBroker) -> None:
        broker.page = 0.5  # type: ignore[assignment]
        refusal, result = await ask(tmp_path, request("sessions.list", cursor="1"), STATS)
        assert refusal["error"]["code"] == "internal"
        assert "result" in result

    async def test_a_request_is_bounded(self, tmp_path: Path) -> None:
        long = request("sessions.show", client_id="x" * REQUEST_BYTES_MAX)
        (answer,) = await ask(tmp_path, long)
        assert answer["error"]["code"] == "too_large"

    async def test_clients_are_bounded(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(socket, "CLIENTS_MAX", 1)
        reader, writer = await connect(tmp_path)
        writer.write(STATS + b"\n")
        assert await reader.readline()
        refused, refused_writer = await connect(tmp_path)
        assert json.loads(await refused.readline())["error"]["code"] == "busy"
        for each in (refused_writer, writer):
            each.close()
            await each.wait_closed()


async def test_stop_cuts_clients_off(broker: FakeBroker, tmp_path: Path) -> None:
    server = AdminServer(broker.service, tmp_path)
    await server.start()
    reader, writer = await connect(tmp_path)
    writer.write(STATS + b"\n")
    assert await reader.readline()
    await server.stop()
    assert await reader.read() == b""
    writer.close()
    await writer.wait_closed()
    await server.stop()


async def test_the_socket_of_a_dead_broker_is_replaced(broker: FakeBroker, tmp_path: Path) -> None:
    (tmp_path / SOCKET_NAME).write_text("left over")
    server = AdminServer(broker.service, tmp_path)
    await server.start()
    assert "result" in (await ask(tmp_path, STATS))[0]
    await server.stop()


async def test_a_long_path_is_no_obstacle(broker: FakeBroker, tmp_path: Path) -> None:
    directory = tmp_path / ("d" * 120)
    directory.mkdir()
    assert len(os.fsencode(directory / SOCKET_NAME)) > SOCKET_PATH_BYTES_MAX
    server = AdminServer(broker.service, directory)
    await server.start()
    assert (directory / SOCKET_NAME).is_socket()
    assert "result" in (await ask(directory, STATS))[0]
    await server.stop()
    assert not (directory / SOCKET_NAME).exists()


async def test_a_missing_directory_is_a_config_error(broker: FakeBroker, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot make") as caught:
        await AdminServer(broker.service, tmp_path / "nowhere").start()
    assert caught.value.path == "storage.path"
