"""Named brokers: their file, which one is meant, and what goes to it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from perdure.cli.contexts import VARIABLE
from perdure.cli.main import run

KEY = "pk_0123456789"


class Broker(BaseHTTPRequestHandler):
    """Notes what it is asked, and answers what it was told to."""

    asked: list[tuple[str, str, dict[str, str], bytes]]
    answers: list[tuple[int, bytes]]

    def do(self) -> None:
        size = int(self.headers.get("content-length", 0))
        self.asked.append((self.command, self.path, dict(self.headers), self.rfile.read(size)))
        status, body = self.answers.pop(0)
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PATCH = do_DELETE = do_PUT = do

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "key").write_text(f"{KEY}\n")
    return tmp_path


@pytest.fixture
def broker(home: Path) -> Iterator[Any]:
    kind = type("Kind", (Broker,), {"asked": [], "answers": []})
    server = HTTPServer(("127.0.0.1", 0), kind)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}"
    assert run(["context", "add", "plant", "--url", f"{url}/", "--key-file", "key"]) == 0
    yield kind
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_file_is_for_its_owner(home: Path, broker: Any, capsys: Any) -> None:
    path = home / "config/perdure/contexts.json"
    assert path.stat().st_mode & 0o777 == 0o600
    capsys.readouterr()
    assert run(["context", "list", "--json"]) == 0
    shown = capsys.readouterr().out
    assert [(each["name"], each["in_use"]) for each in json.loads(shown)] == [("plant", True)]
    assert KEY not in shown
    path.chmod(0o644)
    assert run(["context", "list"]) == 77
    assert "chmod 600" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["add", "local", "--url", "http://x", "--key-file", "key"],
        ["add", "a/b", "--url", "http://x", "--key-file", "key"],
        ["add", "a", "--url", "ftp://x", "--key-file", "key"],
        ["add", "a", "--url", "http://u:p@x", "--key-file", "key"],
        ["use", "nobody"],
        ["remove", "nobody"],
    ],
)
def test_what_is_no_context(home: Path, arguments: list[str]) -> None:
    assert run(["context", *arguments]) in (64, 67)
    assert not (home / "config").exists()


def test_commands_go_there(broker: Any, capsys: Any) -> None:
    broker.answers += [
        (200, b'{"items":[],"next_cursor":"x"}'),
        (200, b'{"items":[],"next_cursor":null}'),
        (200, b'{"client_id":"a/b","action":"kicked"}'),
    ]
    assert run(["sessions", "list", "--contains", "p&q", "--json"]) == 0
    assert run(["sessions", "kick", "a/b", "--json"]) == 0
    paths = [(method, path) for method, path, *_ in broker.asked]
    assert paths[0][0] == "GET"
    assert "?limit=1000&" in paths[0][1]
    assert "client_id~=p%26q" in paths[0][1]
    assert "cursor=x" in paths[1][1]
    assert paths[2] == ("DELETE", "/api/v1/sessions/a%2Fb/connection")
    assert {headers["Authorization"] for _, _, headers, _ in broker.asked} == {f"Bearer {KEY}"}
    assert '"action":"kicked"' in capsys.readouterr().out.replace(" ", "")


def test_any_operation_goes_there(broker: Any, capsys: Any) -> None:
    broker.answers += [(200, b'{"changed":["log.level"]}')]
    capsys.readouterr()
    asked = ["api", "config.patch", 'settings={"log.level":"debug"}', "if_match=abc"]
    assert run(asked) == 0
    method, path, headers, body = broker.asked[0]
    assert (method, path, headers["If-Match"]) == ("PATCH", "/api/v1/config", "abc")
    assert json.loads(body) == {"settings": {"log.level": "debug"}}
    assert json.loads(capsys.readouterr().out) == {"changed": ["log.level"]}


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (403, b'{"code":"forbidden","message":"no","details":{"hint":"h"}}', 77),
        (401, b'{"code":"unauthorized","message":"no"}', 77),
        (404, b'{"code":"not_found","message":"no"}', 67),
        (502, b"<html>", 69),
    ],
)
def test_refusals(broker: Any, status: int, body: bytes, code: int) -> None:
    broker.answers += [(status, body)]
    assert run(["sessions", "show", "a"]) == code


def test_what_stays_here(
    broker: Any, home: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(["sessions", "list", "--data", str(home / "nowhere")]) == 67
    assert run(["users", "list"]) == 64
    assert "the context plant is in use" in capsys.readouterr().err
    monkeypatch.setenv(VARIABLE, "local")
    assert run(["listeners", "list"]) == 69
    monkeypatch.setenv(VARIABLE, "nobody")
    assert run(["listeners", "list"]) == 78
    assert broker.asked == []


def test_the_operations_are_listed(home: Path, capsys: Any) -> None:
    assert run(["api", "--json"]) == 0
    listed = {each["operation"]: each for each in json.loads(capsys.readouterr().out)}
    assert listed["sessions.kick"]["http"] == "DELETE /sessions/{client_id}/connection"
    assert run(["api", "sessions.subscribe", "--describe", "--json"]) == 0
    fields = {each["field"]: each for each in json.loads(capsys.readouterr().out)}
    kind = "string, 1 to 65535 characters"
    assert fields["client_id"] == {"field": "client_id", "type": kind, "required": True}
    assert fields["qos"]["required"] is False
    for wrong in (["nothing"], ["sessions.kick", "x"], ["sessions.kick", "client_id={"]):
        assert run(["api", *wrong]) == 64
    assert run(["api", "sessions.kick", "who=x"]) == 65
