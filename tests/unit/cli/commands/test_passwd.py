"""perdure passwd: secrets never come from an argument."""

from __future__ import annotations

import io
import json
import stat
from pathlib import Path

import pytest

from perdure.broker.auth.credentials import CredentialsFile
from perdure.cli.main import run

Capture = pytest.CaptureFixture[str]

pytestmark = pytest.mark.usefixtures("cheap_hashes")


@pytest.fixture
def users(tmp_path: Path) -> Path:
    return tmp_path / "users"


def verified(path: Path, user: str, password: str) -> bool:
    return any(entry.verify(password.encode()) for entry in CredentialsFile.load(path).hashes(user))


def set_password(users: Path, password: bytes, *flags: str) -> int:
    secret = users.parent / "secret"
    secret.write_bytes(password)
    return run(["passwd", str(users), "ada", "--password-file", str(secret), *flags])


def test_adds_and_changes(users: Path, capsys: Capture) -> None:
    assert set_password(users, b"first\n") == 0
    assert capsys.readouterr().err == f"{users}: ada added\n"
    assert verified(users, "ada", "first")
    assert stat.S_IMODE(users.stat().st_mode) == 0o600
    assert set_password(users, b"second\r\n", "--json") == 0
    assert json.loads(capsys.readouterr().out)["action"] == "changed"
    assert verified(users, "ada", "second")
    assert not verified(users, "ada", "first")


def test_standard_input(users: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("pässword\n".encode())))
    assert run(["passwd", str(users), "ada", "--stdin"]) == 0
    assert verified(users, "ada", "pässword")


def test_prompt(users: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("click.termui.hidden_prompt_func", lambda _prompt: "typed")
    assert run(["passwd", str(users), "ada"]) == 0
    assert verified(users, "ada", "typed")


def test_no_prompt_without_a_terminal(
    users: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("x"))
    assert run(["passwd", str(users), "ada"]) == 64
    assert "no terminal to ask on" in capsys.readouterr().err
    assert not users.exists()


def test_scram_entry_is_added(users: Path) -> None:
    assert set_password(users, b"pencil", "--scram") == 0
    assert CredentialsFile.load(users).scram_keys("ada") is not None
    assert verified(users, "ada", "pencil")


def test_token_is_printed_once(users: Path, capsys: Capture) -> None:
    assert run(["passwd", str(users), "pump", "--token"]) == 0
    token = capsys.readouterr().out.strip()
    assert len(token) >= 43
    assert token not in users.read_text()
    (entry,) = CredentialsFile.load(users).tokens("pump")
    assert entry.verify(token.encode())


def test_list(users: Path, capsys: Capture) -> None:
    set_password(users, b"x", "--scram")
    run(["passwd", str(users), "ada", "--token"])
    capsys.readouterr()
    assert run(["passwd", str(users), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [
        {"user": "ada", "passwords": ["scrypt", "scram-sha-256"], "tokens": 1}
    ]


def test_delete(users: Path, capsys: Capture) -> None:
    set_password(users, b"x")
    assert run(["passwd", str(users), "ada", "--delete-tokens"]) == 67
    assert run(["passwd", str(users), "ada", "--delete"]) == 0
    assert len(CredentialsFile.load(users)) == 0
    assert run(["passwd", str(users), "ada", "--delete"]) == 67
    assert "no user 'ada'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["ada", "--delete", "--token"], 64),
        (["ada", "--scram", "--token"], 64),
        (["--token"], 64),
        (["ada", "--password-file", "/does/not/exist"], 65),
        (["ada", "--delete"], 78),
        ([], 78),
    ],
)
def test_misuse(users: Path, args: list[str], code: int) -> None:
    assert run(["passwd", str(users), *args]) == code
    assert not users.exists()


@pytest.mark.parametrize("secret", [b"\xff\xfe", b"x" * 65_536])
def test_bad_secrets(users: Path, secret: bytes) -> None:
    assert set_password(users, secret) == 65


def test_an_empty_password_is_refused(users: Path) -> None:
    assert set_password(users, b"\n") == 78
    assert not users.exists()
