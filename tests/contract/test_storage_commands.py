"""``perdure storage`` on the state of a broker in a server, while the broker has it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure.cli.main import run
from perdure.model import Message, SessionRecord, Subscription
from perdure.storage.batch import Batch
from perdure.storage.postgres import Pool, Statement
from perdure.storage.postgres.driver import PostgresDriver
from perdure.storage.redis.driver import RedisDriver
from perdure.storage.remote.driver import Driver
from perdure.storage.remote.store import RemoteDatabase
from tests.contract.values import write
from tests.support.database_servers import PostgresServer, RedisServer

NOW_US = 1_700_000_000_000_000

Place = tuple[list[str], Callable[[], Driver]]


def _in_redis(request: pytest.FixtureRequest) -> Place:
    server: RedisServer = request.getfixturevalue("redis_server")
    server.command("FLUSHALL")
    sets = ["--set", "storage.backend=redis", "--set", f"storage.redis.url={server.url}"]
    return (
        [*sets, "--set", "storage.redis.prefix=looked"],
        lambda: RedisDriver(server.url, prefix="looked", policy="ignore"),
    )


async def _fresh_schema(url: str) -> None:
    pool = Pool(url, size=1)
    await pool.run(Statement("DROP SCHEMA IF EXISTS looked CASCADE"))
    await pool.run(Statement("CREATE SCHEMA looked"))
    await pool.close()


def _in_postgres(request: pytest.FixtureRequest) -> Place:
    server: PostgresServer = request.getfixturevalue("postgres_server")
    asyncio.run(_fresh_schema(server.url))
    url = f"{server.url}?search_path=looked"
    sets = ["--set", "storage.backend=postgres", "--set", f"storage.postgres.url={url}"]
    return sets, lambda: PostgresDriver(url, policy="ignore")


@pytest.fixture(
    params=[
        pytest.param(_in_redis, marks=pytest.mark.redis),
        pytest.param(_in_postgres, marks=pytest.mark.postgres),
    ]
)
def place(request: pytest.FixtureRequest) -> Place:
    """How the command line names a server, and how a broker reaches it."""
    found: Place = request.param(request)
    return found


def _filled(make: Callable[[], Driver]) -> RemoteDatabase:
    database = RemoteDatabase.open_blocking(make, now_us=NOW_US)
    batch = Batch()
    batch.put_session(
        SessionRecord(
            "c",
            epoch=1,
            created_at_us=1,
            expiry_s=60,
            connected=False,
            changed_at_us=1,
            expires_at_us=61_000_000,
        )
    )
    batch.put_subscription("c", Subscription("a/+", qos=1), epoch=1)
    for number in range(5):
        batch.append(Message(f"a/{number}", b"%d" % number, 1, publisher="p"))
    batch.put_retained(Message("r", b"", 1, retain=True, offset=NOW_US))
    write(database, batch)
    database.rotate(NOW_US + 10)
    database.sync()
    return database


def _asked(capsys: pytest.CaptureFixture[str], *args: str) -> Any:
    capsys.readouterr()
    assert run(["storage", *args, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_what_can_be_done_is_done(
    place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sets, make = place
    sets = [*sets, "--data", str(tmp_path)]
    database = _filled(make)
    try:
        found = _asked(capsys, "info", *sets)
        assert (found["messages"], found["generations"], found["sessions"]) == (5, 2, 1)
        assert (found["retained_messages"], found["last_offset"]) == (1, database.last_offset)
        assert "127.0.0.1" in found["server"] or "localhost" in found["server"]
        listed = _asked(capsys, "generations", *sets)
        assert [(one["state"], one["message_count"]) for one in listed] == [
            ("closed", 5),
            ("current", 0),
        ]
        messages = _asked(capsys, "read", *sets, "-t", "a/+", "-n", "3")
        assert [one["topic"] for one in messages] == ["a/0", "a/1", "a/2"]
        assert (messages[1]["payload_text"], messages[1]["publisher"]) == ("1", "p")
        assert _asked(capsys, "check", *sets) == []
        assert run(["sessions", "list", *sets, "--json"]) == 0
        (session,) = json.loads(capsys.readouterr().out)
        assert (session["client_id"], session["state"]) == ("c", "expired")
        assert run(["sessions", "show", "c", *sets, "--json"]) == 0
        shown = json.loads(capsys.readouterr().out)
        assert [sub["filter"] for sub in shown["subscriptions"]] == ["a/+"]
        assert shown["owed_messages"] == 5
        assert run(["sessions", "explain", "c", "a/3", *sets, "--json"]) == 0
        explained = json.loads(capsys.readouterr().out)
        assert [one["code"] for one in explained["findings"]][-2:] == ["owed", "idle"]
        assert run(["sessions", "show", "nobody", *sets]) == 67
    finally:
        database.close()


def test_a_server_without_a_broker(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    sets, _ = place
    for command in ("info", "generations", "read", "check"):
        capsys.readouterr()
        assert run(["storage", command, *sets]) == 67
        assert "no broker keeps its state in" in capsys.readouterr().err
