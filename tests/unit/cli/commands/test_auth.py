"""``perdure auth test``: what it says of a login, and with which exit code."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import jwt
import pytest
from click.testing import CliRunner

from perdure.cli.main import cli

SECRET = b"s" * 48


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_bytes(SECRET)
    file = tmp_path / "perdure.yaml"
    file.write_text(
        f"""\
listeners:
  ws: {{ bind: "127.0.0.1:8083", auth_chain: [anonymous] }}
auth:
  chain: [jwt]
  jwt: {{ secret_file: "{tmp_path}/secret", algorithms: [HS256], acl_claim: acl }}
"""
    )
    return file


def ask(config: Path, *options: str, password: bytes = b"") -> tuple[int, dict[str, Any]]:
    command = ["auth", "test", "--config", str(config), "--json", *options]
    done = CliRunner().invoke(cli, command, input=password, standalone_mode=False)
    assert done.exception is None, done.output
    return done.return_value, json.loads(done.stdout)


def test_who_is_let_in_and_how(config: Path) -> None:
    claims = {"sub": "ada", "exp": int(time.time()) + 1000, "acl": ["read a/#", "deny a/b"]}
    token = jwt.encode(claims, SECRET, algorithm="HS256").encode()
    code, said = ask(config, "--username", "x", "--stdin", password=token + b"\n")
    assert code == 0
    assert 900 < said.pop("expires_in_s") <= 1000
    assert said == {
        "result": "allow",
        "method": "jwt",
        "reason": "0x00 Success",
        "username": "ada",
        "superuser": False,
        "rules": "read a/#; deny a/b",
    }


def test_who_is_not(config: Path, tmp_path: Path) -> None:
    token = jwt.encode({"sub": "ada"}, b"t" * 48, algorithm="HS256")
    (tmp_path / "token").write_text(token)
    code, said = ask(config, "--password-file", str(tmp_path / "token"))
    assert (code, said["result"], said["method"]) == (77, "deny", "jwt")
    code, said = ask(config)
    assert (code, said["method"], said["reason"]) == (77, "none", "0x87 Not authorized")


def test_a_listener_of_its_own(config: Path) -> None:
    code, said = ask(config, "--listener", "ws:127.0.0.1:8083")
    assert (code, said["method"]) == (0, "anonymous")
    done = CliRunner().invoke(
        cli, ["auth", "test", "--config", str(config), "--listener", "tcp:1883"]
    )
    assert done.exit_code != 0
    assert "ws:127.0.0.1:8083" in done.output
