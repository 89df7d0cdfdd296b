"""perdure registry, on a real Redis."""

from __future__ import annotations

import json
import secrets
from typing import Any

import pytest

from perdure.cli.main import run
from tests import servers

Capture = pytest.CaptureFixture[str]


def test_patterns(capsys: Capture) -> None:
    assert run(["registry", "patterns", "app:a:user:u:model:m:id:1"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "app:a:model:m",
        "app:a:model:m:id:1",
        "app:a:user:u:model:m",
        "app:a:user:u:model:m:id:1",
    ]
    assert run(["registry", "patterns", "a"]) == 78


@pytest.mark.redis
def test_a_life(capsys: Capture) -> None:
    place = ["--url", servers.redis().url, "--prefix", f"t{secrets.token_hex(4)}:"]

    def ask(*args: str, code: int = 0) -> Any:
        assert run(["registry", args[0], *args[1:], *place, "--json"]) == code
        out = capsys.readouterr().out
        return json.loads(out) if out else None

    channel = "app:plant:model:task"
    where = '{"priority": "high"}'
    (made,) = ask("subscribe", "pump|mqtt", channel, "--where", where, "--expires", "1h")
    ask("subscribe", "phone|ws", channel)
    assert ask("wanting", f"{channel}:id:1") == [{"device": "phone", "transport": "ws"}]
    found = ask("wanting", f"{channel}:id:1", "--document", where)
    assert [row["device"] for row in found] == ["phone", "pump"]
    (row,) = ask("device", "pump")
    assert row["value"] == f"{channel} filter {made['filter_id']}"
    ask("device", "nobody", code=67)
    ask("unsubscribe", "nobody|ws", channel, code=67)
    assert ask("sweep", "--worker", "w") == [{"expired": 0, "disconnected": 0, "orphans": 0}]
    assert ask("repartition", "1") == [{"moved": 2}]
    place += ["--partitions", "1"]
    assert ask("stats")[1] == {"what": "subscriptions", "count": 2}
    assert ask("forget", "pump") == [{"device": "pump", "subscriptions": 1}]
    ask("unsubscribe", "phone|ws", channel)
    assert ask("wanting", channel) == []
    assert ask("sweep", "--orphans")[0]["orphans"] == 0
