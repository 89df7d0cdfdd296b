"""perdure queues, on a data directory, a running broker and servers."""

from __future__ import annotations

import asyncio
import gc
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure.admin.records.sessions import DiscardSession
from perdure.cli.main import run
from perdure.model import Message
from perdure.storage.device_queue import DeviceQueue, NewEntry
from perdure.storage.postgres import PostgresDeviceQueue
from perdure.storage.redis import open_device_queue
from tests.support.database_servers import PostgresServer, RedisServer

Capture = pytest.CaptureFixture[str]

NOW = 1_700_000_000_000_000


class Terminal(io.StringIO):
    """Somebody who types."""

    def isatty(self) -> bool:
        return True


def on(directory: Path, *args: str) -> list[str]:
    return ["queues", args[0], "--data", str(directory), *args[1:]]


def test_list(directory: Path, capsys: Capture) -> None:
    assert run(on(directory, "list", "--json")) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["client_id"], row["publish_count"], row["last_packet_id"]) for row in rows] == [
        ("cut", 0, 0),
        ("grouped", 0, 0),
        ("plain", 4, 4),
        ("willed", 0, 0),
    ]
    assert run(on(directory, "list")) == 0
    assert "plain\t4\t0\t12\t4\t3\n" in capsys.readouterr().out


def test_show(directory: Path, capsys: Capture) -> None:
    assert run(on(directory, "show", "plain", "--limit", "2", "--json")) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["publish_count"], found["epoch"]) == (4, 3)
    assert [entry["topic"] for entry in found["entries"]] == ["devices/0/t", "devices/1/t"]
    assert run(on(directory, "show", "plain")) == 0
    assert "4\tPUBLISH\t1\tdevices/3/t\t3\t\n" in capsys.readouterr().out
    assert run(on(directory, "show", "willed")) == 0
    assert "PUBLISH\t" not in capsys.readouterr().out
    assert run(on(directory, "show", "nobody")) == 67
    assert capsys.readouterr().err == "perdure: there is no queue of 'nobody'\n"


def test_export(directory: Path, tmp_path: Path, capsys: Capture) -> None:
    assert run(on(directory, "export")) == 0
    printed = capsys.readouterr()
    lines = [json.loads(line) for line in printed.out.splitlines()]
    assert printed.err == ""
    assert [line["client_id"] for line in lines] == ["cut", "grouped", *["plain"] * 5, "willed"]
    assert lines[2]["payload_base64"] == "MC41"
    assert lines[6] == {"client_id": "plain", "last_packet_id": 4}
    target = tmp_path / "queues.jsonl"
    assert run(on(directory, "export", "--to", str(target))) == 0
    assert target.read_text(encoding="utf-8") == printed.out
    assert run(on(directory, "export", "--to", str(tmp_path / "no" / "such"))) == 75
    assert list(tmp_path.glob("*.part")) == []


def test_export_tells_how_far_it_is(
    directory: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.cli.commands.queues.TOLD_EVERY", 1)
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    assert run(on(directory, "export")) == 0
    assert "entries" in terminal.getvalue()
    assert len(capsys.readouterr().out.splitlines()) == 8
    silent = Terminal()
    monkeypatch.setattr("sys.stderr", silent)
    assert run(on(directory, "export", "--no-progress")) == 0
    assert silent.getvalue() == ""


def test_discard_of_a_stopped_broker(directory: Path, capsys: Capture) -> None:
    assert run(on(directory, "discard", "plain", "nobody", "--yes")) == 67
    printed = capsys.readouterr()
    assert printed.out == "plain\tdiscarded\n"
    assert "there is no session 'nobody'" in printed.err
    assert run(on(directory, "show", "plain")) == 67


def test_discard_asks_the_running_broker(running: Any, tmp_path: Path, capsys: Capture) -> None:
    assert run(on(tmp_path, "discard", "live", "--yes")) == 0
    assert running.asked == [DiscardSession(client_id="live")]
    assert capsys.readouterr().out.startswith("live\t")


def test_discard_wants_the_client_id_typed_back(
    directory: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(on(directory, "discard", "plain")) == 64
    assert "--yes" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin", Terminal("plane\n"))
    assert run(on(directory, "discard", "plain")) == 64
    assert "nothing was deleted" in capsys.readouterr().err
    assert run(on(directory, "show", "plain")) == 0
    monkeypatch.setattr("sys.stdin", Terminal("plain\n"))
    assert run(on(directory, "discard", "plain")) == 0
    assert run(on(directory, "show", "plain")) == 67


def test_a_store_that_is_not_there(tmp_path: Path, capsys: Capture) -> None:
    assert run(on(tmp_path, "list")) == 67
    assert run(["queues", "list", "--url", "ftp://x"]) == 78
    assert "no store of queues is called ftp://" in capsys.readouterr().err


async def fill(queue: DeviceQueue) -> None:
    for client_id in ("a", "b"):
        await queue.take(client_id, epoch=2)
        message = Message("t", client_id.encode(), 1, published_at_us=NOW)
        await queue.append([NewEntry(client_id, message, 1)] * 2, now_us=NOW, limit=10)
    await queue.close()


@pytest.fixture(
    params=[
        pytest.param("postgres", marks=pytest.mark.postgres),
        pytest.param("redis", marks=pytest.mark.redis),
    ]
)
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A server with two queues."""
    if request.param == "postgres":
        with PostgresServer(durable=False) as server:

            async def fill_postgres() -> None:
                await fill(await PostgresDeviceQueue.open(server.url, durable="ignore"))

            asyncio.run(fill_postgres())
            yield server.url
    else:
        with RedisServer() as redis:

            async def fill_redis() -> None:
                await fill(await open_device_queue(redis.url))

            asyncio.run(fill_redis())
            yield redis.url


@pytest.mark.slow
def test_queues_in_a_server(url: str, capsys: Capture) -> None:
    assert run(["queues", "list", "--url", url]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert sorted(line.split("\t")[0] for line in listed) == ["a", "b"]
    assert run(["queues", "show", "a", "--url", url, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [entry["packet_id"] for entry in shown["entries"]] == [1, 2]
    assert run(["queues", "export", "--url", url]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 6
    assert run(["queues", "discard", "a", "nobody", "--yes", "--url", url]) == 67
    assert capsys.readouterr().out == "a\tdiscarded\n"
    assert run(["queues", "list", "--url", url]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1


@pytest.mark.slow
def test_a_broker_in_a_server_is_found_by_its_configuration(
    url: str, running: Any, tmp_path: Path, capsys: Capture
) -> None:
    backend = url.partition("://")[0].replace("postgresql", "postgres")
    config = tmp_path / "perdure.yaml"
    storage = {"backend": backend, "path": str(tmp_path), backend: {"url": url}}
    config.write_text(json.dumps({"storage": storage}), encoding="utf-8")
    assert run(["queues", "list", "--config", str(config)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert run(["queues", "discard", "live", "--yes", "--config", str(config)]) == 0
    assert running.asked == [DiscardSession(client_id="live")]


@pytest.mark.slow
@pytest.mark.parametrize("command", ["list", "export"])
def test_who_does_not_read_to_the_end_leaves_nothing_open(
    url: str, command: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ``| head`` does: the pipe breaks at the second line."""
    monkeypatch.setattr("perdure.cli.data.PAGE", 1)
    written: list[str] = []

    def write(text: str) -> int:
        if len(written) == 1:
            raise BrokenPipeError
        written.append(text)
        return len(text)

    monkeypatch.setattr("sys.stdout.write", write, raising=False)
    monkeypatch.setattr("os.dup2", lambda *_: None)
    assert run(["queues", command, "--url", url]) == 0
    monkeypatch.undo()
    gc.collect()
    assert len(written) == 1
    # asyncio would tell of generators that did not end.
    assert caplog.records == []
