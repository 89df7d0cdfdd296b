"""perdure sessions, on a directory and on a running broker."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from perdure.admin.records.explain import ExplainSession
from perdure.admin.records.sessions import (
    DiscardSession,
    GetSession,
    KickSession,
    ListSessions,
)
from perdure.cli.main import run
from perdure.errors import PerdureError
from perdure.model import InboxEntry, Message, StoredSession
from perdure.storage.rocksdb import RocksDatabase
from tests.support.staged import Staged, take_offset

Capture = pytest.CaptureFixture[str]


def stored(directory: Path, client_id: str) -> StoredSession | None:
    database = RocksDatabase.open(directory, read_only=True)
    try:
        return asyncio.run(database.open_session(client_id))
    finally:
        database.close()


def on(directory: Path, *args: str) -> list[str]:
    return ["sessions", args[0], "--data", str(directory), *args[1:]]


def test_list(directory: Path, capsys: Capture) -> None:
    assert run(on(directory, "list", "--json")) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["client_id"], row["state"]) for row in rows] == [
        ("cut", "offline"),
        ("grouped", "offline"),
        ("plain", "offline"),
        ("willed", "offline"),
    ]
    assert run(on(directory, "list", "--prefix", "p")) == 0
    assert capsys.readouterr().out == "plain\toffline\t\t3.1.1\t2023-11-14T22:13:20.000000Z\t\t0\n"
    assert run(on(directory, "list", "--state", "connected", "--json")) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_show(directory: Path, capsys: Capture) -> None:
    assert run(on(directory, "show", "plain", "--json")) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["client_id"], found["owed_messages"]) == ("plain", 4)
    assert run(on(directory, "show", "plain")) == 0
    assert "subscriptions\tdevices/+/t (QoS 1)\n" in capsys.readouterr().out
    assert run(on(directory, "show", "nobody")) == 67
    assert capsys.readouterr().err == "perdure: there is no session 'nobody'\n"


def test_explain(directory: Path, capsys: Capture) -> None:
    assert run(on(directory, "explain", "plain", "devices/7/t", "--json")) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["verdict"] == "offline"
    assert "nothing_recorded" in [finding["code"] for finding in found["findings"]]
    assert run(on(directory, "explain", "plain", "devices/2/t")) == 0
    captured = capsys.readouterr()
    assert "session\tno\tthe client is offline since" in captured.out
    assert captured.err.startswith("offline: ")
    assert run(on(directory, "explain", "nobody", "t")) == 67
    assert run(on(directory, "explain", "plain", "t/#")) == 65


def test_discard_deletes(directory: Path, capsys: Capture) -> None:
    assert run(on(directory, "discard", "plain", "cut", "--yes")) == 0
    assert capsys.readouterr().out == "plain\tdiscarded\ncut\tdiscarded\n"
    assert stored(directory, "plain") is None
    assert stored(directory, "willed") is not None


@pytest.mark.parametrize("client_id", ["willed", "grouped"])
def test_discard_leaves_wills_and_shares_to_the_broker(
    directory: Path, client_id: str, capsys: Capture
) -> None:
    assert run(on(directory, "discard", client_id, "--yes")) == 0
    assert capsys.readouterr().out == f"{client_id}\tends_at_start\n"
    left = stored(directory, client_id)
    assert left is not None
    assert (left.record.expires_at_us, left.record.connected, left.record.epoch) == (1, False, 4)
    assert run(on(directory, "list", "--state", "expired")) == 0
    assert capsys.readouterr().out.startswith(client_id)


def test_discard_sees_shares_that_wait(directory: Path, capsys: Capture) -> None:
    database = RocksDatabase.open(directory)
    batch = Staged(database)
    for _ in range(300):
        at = take_offset(database, 0)
        batch.put_inbox("plain", InboxEntry(at, Message("t", b"", 1), qos=1), epoch=3)
    batch.write()
    database.close()
    assert run(on(directory, "discard", "plain", "--yes")) == 0
    assert capsys.readouterr().out == "plain\tdiscarded\n"


def test_discard_sees_shares_behind_the_first_page(directory: Path, capsys: Capture) -> None:
    database = RocksDatabase.open(directory)
    batch = Staged(database)
    for number in range(300):
        at = take_offset(database, 0)
        group = "g/f" if number == 299 else ""
        entry = InboxEntry(at, Message("t", b"", 1), qos=1, group_key=group)
        batch.put_inbox("plain", entry, epoch=3)
    batch.write()
    database.close()
    assert run(on(directory, "discard", "plain", "--yes")) == 0
    assert capsys.readouterr().out == "plain\tends_at_start\n"


def test_set_owner_of_a_stopped_broker(directory: Path, capsys: Capture) -> None:
    assert run(on(directory, "set-owner", "plain", "nobody", "--user", "ada")) == 67
    assert capsys.readouterr().out == "plain\tgiven\n"
    found = stored(directory, "plain")
    assert found is not None
    assert (found.record.username, found.record.method) == ("ada", "password")
    assert run(on(directory, "set-owner", "plain", "--anonymous")) == 0
    found = stored(directory, "plain")
    assert found is not None
    assert (found.record.username, found.record.method) == ("", "anonymous")


@pytest.mark.parametrize("options", [[], ["--user", ""], ["--user", "ada", "--anonymous"]])
def test_set_owner_wants_one_owner(directory: Path, options: list[str], capsys: Capture) -> None:
    assert run(on(directory, "set-owner", "plain", *options)) == 64
    assert "--anonymous" in capsys.readouterr().err


def test_discard_goes_on_past_the_missing(directory: Path, capsys: Capture) -> None:
    assert run(on(directory, "discard", "nobody", "plain", "--yes")) == 67
    captured = capsys.readouterr()
    assert captured.out == "plain\tdiscarded\n"
    assert "no session 'nobody'" in captured.err


def test_discard_asks_or_refuses(
    directory: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    assert run(on(directory, "discard", "plain")) == 64
    assert "take --yes" in capsys.readouterr().err
    assert stored(directory, "plain") is not None


def test_discard_is_refused_beside_a_broker_without_socket(
    directory: Path, capsys: Capture
) -> None:
    database = RocksDatabase.open(directory)
    try:
        assert run(on(directory, "discard", "plain", "--yes")) == 75
        assert "in use" in capsys.readouterr().err
    finally:
        database.close()


def test_running_broker_is_asked(running: Any, tmp_path: Path, capsys: Capture) -> None:
    assert run(on(tmp_path, "list", "--state", "connected")) == 0
    assert capsys.readouterr().out.startswith("live\tconnected")
    assert run(on(tmp_path, "show", "live")) == 0
    assert "subscriptions\tt/# (QoS 1)" in capsys.readouterr().out
    assert run(on(tmp_path, "show", "nobody")) == 67
    assert run(on(tmp_path, "explain", "live", "t")) == 0
    assert capsys.readouterr().err.endswith("window_full: full\n")
    assert run(on(tmp_path, "discard", "live", "nobody", "--yes", "--json")) == 67
    assert json.loads(capsys.readouterr().out) == [{"client_id": "live", "action": "discarded"}]
    assert run(on(tmp_path, "kick", "live")) == 0
    assert running.asked == [
        ListSessions(limit=1_000, state="connected"),
        GetSession(client_id="live"),
        GetSession(client_id="nobody"),
        ExplainSession(client_id="live", topic="t"),
        DiscardSession(client_id="live"),
        DiscardSession(client_id="nobody"),
        KickSession(client_id="live"),
    ]


def test_a_failing_store_ends_the_command(
    running: Any, tmp_path: Path, full_disk: PerdureError, capsys: Capture
) -> None:
    running.refusal = full_disk
    assert run(on(tmp_path, "discard", "live", "other", "--yes")) == 75
    assert capsys.readouterr().err == "perdure: no space left\n"


def test_kick_needs_a_broker(directory: Path, capsys: Capture) -> None:
    assert run(on(directory, "kick", "plain")) == 69
    assert "no broker runs on" in capsys.readouterr().err
