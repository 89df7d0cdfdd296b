"""perdure users and api-keys, on the file of a broker that does not run."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from perdure.cli.main import run
from perdure.identity import passwords
from perdure.identity.file import IdentityFile

Capture = pytest.CaptureFixture[str]
PASSWORD = "correct horse battery"


@pytest.fixture(autouse=True)
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("argon2")
    monkeypatch.setattr(passwords, "TIME_COST", 1)
    monkeypatch.setattr(passwords, "MEMORY_KIB", 8)


def said(capsys: Capture, *args: str, code: int = 0) -> Any:
    capsys.readouterr()
    assert run([*args, "--json"]) == code
    return json.loads(capsys.readouterr().out or "null")


def test_users_of_a_stopped_broker(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = ("--data", str(tmp_path / "new"))
    secret = tmp_path / "secret"
    secret.write_text(PASSWORD + "\n")
    given = ("--password-file", str(secret))
    assert said(capsys, "users", "setup-link", *data)["path"].startswith("/ui/setup?token=")
    assert said(capsys, "users", "add", "ada", "--role", "admin", *given, *data)["role"] == "admin"
    assert run(["users", "setup-link", *data]) == 64
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(PASSWORD.encode())))
    said(capsys, "users", "add", "bob", "--role", "viewer", "--stdin", *data)
    said(capsys, "users", "add", "bob", "--role", "viewer", *given, *data, code=65)
    said(capsys, "users", "set-role", "bob", "--role", "operator", *data)
    said(capsys, "users", "logout", "bob", *data)
    said(capsys, "users", "set-password", "bob", *given, *data)
    assert [(each["name"], each["role"]) for each in said(capsys, "users", "list", *data)] == [
        ("ada", "admin"),
        ("bob", "operator"),
    ]
    said(capsys, "users", "remove", "ada", "--yes", *data, code=65)
    assert run(["users", "remove", "bob", *data]) == 64  # nobody is there to ask
    said(capsys, "users", "remove", "bob", "--yes", *data)
    said(capsys, "users", "logout", "bob", *data, code=67)
    secret.write_text("short")
    said(capsys, "users", "add", "eve", "--role", "viewer", *given, *data, code=65)
    with IdentityFile(tmp_path / "new") as file:
        assert [each.operation for _, each in file.outgoing(9)] == [
            "users.add",
            "users.add",
            "users.set_role",
            "users.logout",
            "users.set_password",
            "users.remove",
        ]


def test_keys_of_a_stopped_broker(tmp_path: Path, capsys: Capture) -> None:
    data = ("--data", str(tmp_path))
    line = ["api-keys", "add", "line 7", "--role", "operator", *data]
    made = said(capsys, *line, "--scope", "sessions", "--topic", "plant/#", "--expires", "90d")
    assert made["secret"].startswith(f"pk_{made['id']}_")
    (listed,) = said(capsys, "api-keys", "list", *data)
    assert listed == {key: made[key] for key in made if key != "secret"}
    assert (listed["scopes"], listed["topic_filters"]) == (["sessions"], ["plant/#"])
    said(capsys, *line, "--expires", "2001-01-01T00:00:00Z", code=65)
    said(capsys, *line, "--expires", "soon", code=65)
    said(capsys, "api-keys", "revoke", made["id"], *data)
    said(capsys, "api-keys", "revoke", made["id"], *data, code=67)
    assert said(capsys, "api-keys", "list", *data) == []
    assert run(["users", "list", "--set", "storage.backend=memory"]) == 67
