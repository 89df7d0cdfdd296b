"""Files beside the database: what is damaged, gone or another's is found, with the way out."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from perdure.broker.auth.bans import BanFile, make_ban
from perdure.broker.auth.key_file import KEY_FILE, load_or_create_key
from perdure.cli.main import run
from perdure.errors import ConfigError, StorageCorrupt
from perdure.forwarders.origin import ORIGIN_FILE
from perdure.identity.file import FILE_NAME, UNSEALED, IdentityFile
from perdure.server.bans import BAN_FILE
from perdure.server.clock_file import CLOCK_FILE
from perdure.server.cluster_log_note import TOPIC_FILE
from perdure.server.http_part import TOKEN_FILE
from perdure.server.own_files import (
    check_bans,
    check_own_files,
    damaged_files,
    note_own_files,
    wrong_files,
)
from perdure.storage.directory_record import RECORD_FILE
from perdure.storage.remote.driver import IDENTITY_FILE as ID_FILE
from perdure.storage.rocksdb import RocksDatabase
from tests.unit.fixtures import logging_as_before

__all__ = ["logging_as_before"]

HARMS: list[Callable[[bytes], bytes]] = [
    lambda data: data[: len(data) // 2],
    lambda data: b"\xff" + data,
    lambda data: b"hello world\n",
]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    RocksDatabase.open(tmp_path, now_us=1).close()
    for name in (KEY_FILE, ORIGIN_FILE):
        load_or_create_key(tmp_path / name, b"k" * 32)
    IdentityFile(tmp_path).close()
    return tmp_path


def test_nothing_is_wrong(directory: Path) -> None:
    assert list(damaged_files(directory)) == []
    with IdentityFile(directory):
        assert list(damaged_files(directory)) == []
    for name in (KEY_FILE, ORIGIN_FILE, FILE_NAME):
        (directory / name).unlink()
    assert list(damaged_files(directory)) == []


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("name", [KEY_FILE, ORIGIN_FILE, FILE_NAME])
def test_what_is_damaged_is_put_aside(
    directory: Path, name: str, harm: Callable[[bytes], bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    path = directory / name
    damaged = harm(path.read_bytes())
    path.write_bytes(damaged)
    with pytest.raises(StorageCorrupt, match=f"{name} is damaged") as refused:
        IdentityFile(directory).close() if name == FILE_NAME else load_or_create_key(path, b"")
    assert "storage repair" in refused.value.hint
    command = ("--data", str(directory))
    assert run(["storage", "check", *command]) == 65
    assert name in capsys.readouterr().out
    assert run(["storage", "repair", *command, "--yes"]) == 0
    assert not path.exists()
    [aside] = directory.glob("damaged-*")
    assert (aside / name).read_bytes() == damaged
    assert run(["storage", "check", *command]) == 0
    RocksDatabase.open(directory).close()


def test_bans_that_are_not_as_they_were_written(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = directory / BAN_FILE
    file = BanFile(path)
    for name in ("pump-7", "pump-8", "pump-9"):
        file.add(make_ban("client_id", name), now_us=1)
    whole = path.read_bytes()
    cuts = [whole[:at] for at in range(3, len(whole))]
    flips = [whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in range(2, len(whole))]
    command = ("--data", str(directory))
    # A flip that makes another comment of the seal leaves the bans whole.
    harms = [*cuts, *(each for each in flips if each.startswith(b"# perdure:"))]
    for harmed in harms:
        path.write_bytes(harmed)
        with pytest.raises(StorageCorrupt, match="bans is damaged") as refused:
            check_bans(directory)
        assert "backup" in refused.value.hint
        with pytest.raises(ConfigError, match="bans is damaged"):
            file.load()
    for harmed in harms[:: len(harms) // 2]:
        path.write_bytes(harmed)
        assert run(["storage", "check", *command]) == 65
        assert "bans" in capsys.readouterr().out
        assert run(["storage", "repair", *command, "--yes"]) == 0
        assert path.read_bytes() == harmed, "what is left of it stays"
    for fine in (whole, whole + b'{"client_id":"x"}\n', whole.split(b"\n", 1)[1], b"# by hand\n"):
        path.write_bytes(fine)
        check_bans(directory)
        assert run(["storage", "check", *command]) == 0
    assert len(file.load()) == 0


def test_a_first_start_is_silent(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check_own_files(directory)
    note_own_files(directory)
    check_own_files(directory)
    assert list(wrong_files(directory)) == []
    captured = capsys.readouterr()
    assert captured.out + captured.err == ""


GONE = [ORIGIN_FILE, FILE_NAME, ID_FILE, TOPIC_FILE]
TOLD = [KEY_FILE, BAN_FILE, CLOCK_FILE, TOKEN_FILE]


def fill(directory: Path) -> None:
    """Let a directory have every file of a broker, and note them."""
    for name in (*GONE, *TOLD):
        if not (directory / name).exists():
            (directory / name).write_text(f"{name}\n")
    note_own_files(directory)


@pytest.mark.parametrize("harm", ["gone", "empty"])
@pytest.mark.parametrize("name", GONE)
def test_what_is_gone_is_not_made_anew(
    directory: Path, name: str, harm: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(directory)
    path = directory / name
    if harm == "gone":
        path.unlink()
    else:
        path.write_bytes(b"")
    with pytest.raises(StorageCorrupt, match=f"{name} is {harm}") as refused:
        check_own_files(directory)
    assert "storage repair" in refused.value.hint
    command = ("--data", str(directory))
    assert run(["storage", "check", *command]) == 65
    assert f"{name}\t\tis {harm}" in capsys.readouterr().out
    if name == FILE_NAME:
        assert run(["users", "setup-link", *command]) == 65
        assert f"is {harm}" in capsys.readouterr().err
        assert path.exists() == (harm == "empty")
    assert run(["storage", "repair", *command, "--yes"]) == 0
    check_own_files(directory)
    IdentityFile(directory).close()
    assert run(["storage", "check", *command]) in (0, 65)
    assert f"{name}\t\tis" not in capsys.readouterr().out.replace("it has 0 bytes", "")


@pytest.mark.parametrize("harm", ["gone", "empty"])
@pytest.mark.parametrize("name", TOLD)
def test_what_costs_little_is_told(
    directory: Path, name: str, harm: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(directory)
    (directory / name).write_bytes(b"")
    if harm == "gone":
        (directory / name).unlink()
    told = check_own_files(directory)
    assert told == [name]
    assert f"{name} problem='is {harm}'" in capsys.readouterr().out
    note_own_files(directory)  # what is not told of stays noted: another start may come between
    assert check_own_files(directory) == [name]
    capsys.readouterr()
    note_own_files(directory, told)
    check_own_files(directory)
    assert capsys.readouterr().out == ""


def test_another_brokers_file(
    directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(directory)
    other = tmp_path / "other"
    other.mkdir()
    load_or_create_key(other / KEY_FILE, b"o" * 32)
    IdentityFile(other).close()
    for name in (KEY_FILE, FILE_NAME):
        (directory / name).write_bytes((other / name).read_bytes())
        told = check_own_files(directory)
        assert f"{name}" in capsys.readouterr().out
        note_own_files(directory, told)
    check_own_files(directory)
    assert capsys.readouterr().out == ""
    (directory / ORIGIN_FILE).write_bytes(b"o" * 32)  # a flipped bit is another, too
    with pytest.raises(StorageCorrupt, match=r"origin\.key is not the one that was here"):
        check_own_files(directory)
    assert run(["storage", "repair", "--data", str(directory), "--yes"]) == 0
    assert (directory / ORIGIN_FILE).read_bytes() == b"o" * 32
    check_own_files(directory)


@pytest.mark.parametrize("content", [b"", b"{}", b'{"files":{"a":""},"checksum":1}'])
def test_without_the_record_nothing_is_missed(
    directory: Path, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in a directory of an earlier release: it is told, and noted from then on."""
    fill(directory)
    (directory / RECORD_FILE).write_bytes(content)
    (directory / FILE_NAME).unlink()
    check_own_files(directory)
    assert "data.files_unknown" in capsys.readouterr().out
    note_own_files(directory)
    check_own_files(directory)
    assert capsys.readouterr().out == ""


def test_a_user_file_that_lacks_its_last_byte(directory: Path) -> None:
    """SQLite does not miss it."""
    path = directory / FILE_NAME
    path.write_bytes(path.read_bytes()[:-1])
    [found] = damaged_files(directory)
    assert "into a page" in found.problem
    with pytest.raises(StorageCorrupt, match="into a page"):
        check_own_files(directory)


_CHANGES = (
    "INSERT INTO users VALUES ('ada', 'viewer', 'x', 1, 2, 3, 4)",
    "INSERT INTO api_keys VALUES ('k1', x'01', 'k', 'viewer', '[]', '[]', 1, 'ada', 0, 0)",
    "INSERT INTO setup VALUES (x'02', 9)",
    "INSERT INTO ended VALUES ('digest', 9)",
)
_FLIPS = (
    (b"viewer", b"viewes"),
    (b"viewer", b"view\xffr"),
    (b"ada", b"adb"),
    (b"digest", b"digesu"),
)


@pytest.mark.parametrize(("was", "is_now"), _FLIPS)
def test_a_letter_of_the_users_that_became_another(
    directory: Path, was: bytes, is_now: bytes
) -> None:
    """SQLite does not notice."""
    path = directory / FILE_NAME
    with IdentityFile(directory) as file:
        for statement in _CHANGES:
            with file.change() as rows:
                rows.execute(statement)
    check_own_files(directory)
    data = path.read_bytes()
    assert was in data
    path.write_bytes(data.replace(was, is_now))
    [found] = damaged_files(directory)
    assert found.table == FILE_NAME
    with pytest.raises(StorageCorrupt, match=r"identity.db is damaged"):
        check_own_files(directory)
    with pytest.raises(StorageCorrupt, match=r"identity.db is damaged"):
        IdentityFile(directory)


def test_what_was_damaged_under_a_running_broker_is_not_sealed(directory: Path) -> None:
    with IdentityFile(directory) as file:
        with file.change() as rows:
            rows.execute(_CHANGES[0])
        with contextlib.closing(sqlite3.connect(file.path)) as other, other:
            other.execute("UPDATE users SET role = 'admin'")
        with pytest.raises(StorageCorrupt, match="not those"), file.change() as rows:
            rows.execute(_CHANGES[1])
        with file.look() as rows:
            assert rows.execute("SELECT count(*) FROM api_keys").fetchone() == (0,)


def test_a_file_without_a_seal_is_given_one(directory: Path) -> None:
    with contextlib.closing(sqlite3.connect(directory / FILE_NAME)) as rows, rows:
        rows.execute(_CHANGES[0])
        rows.execute("DROP TABLE seal")
        rows.execute(f"PRAGMA user_version = {UNSEALED}")
    assert list(damaged_files(directory)) == []
    with IdentityFile(directory) as file, file.look() as rows:
        assert rows.execute("SELECT name FROM users").fetchall() == [("ada",)]
    assert list(damaged_files(directory)) == []


def test_the_users_whose_newest_pages_are_gone(tmp_path: Path) -> None:
    """SQLite begins anew where the file is there and its log is not."""
    directory = tmp_path
    with IdentityFile(directory):
        note_own_files(directory)
        beside = (directory / FILE_NAME).read_bytes()
    whole = (directory / FILE_NAME).read_bytes()
    (directory / FILE_NAME).write_bytes(beside)
    assert len(beside) < len(whole)
    with pytest.raises(StorageCorrupt, match=r"identity\.db is"):
        IdentityFile(directory)
