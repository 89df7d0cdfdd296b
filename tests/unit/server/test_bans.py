"""The bans of a running broker and their file, in step."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from perdure.broker.auth.bans import BanFile, BanList, TemporaryBan, make_ban
from perdure.clock import SystemClock
from perdure.config.schema import AuthConfig, Config, StorageConfig
from perdure.errors import ConfigError
from perdure.server.bans import BanKeeper, ban_file, ban_row


class Enforced:
    """Stands for ``BanEnforcer``: has the list and counts its changes."""

    def __init__(self) -> None:
        self.bans = BanList()
        self.lists: list[list[str]] = []
        self.made: list[TemporaryBan] = []

    def use(self, bans: BanList) -> int:
        self.bans = bans
        self.lists.append([ban.value for ban in bans])
        return 2

    def temporary(self) -> list[TemporaryBan]:
        return self.made

    def lift(self, kind: str, value: str) -> bool:
        before = len(self.made)
        self.made = [ban for ban in self.made if (ban.kind, ban.value) != (kind, value)]
        return len(self.made) < before


@pytest.fixture
def enforced() -> Enforced:
    return Enforced()


def keeper(enforced: Enforced, file: BanFile | None) -> BanKeeper:
    return BanKeeper(enforced, file, SystemClock())  # type: ignore[arg-type]


def test_which_file() -> None:
    memory = StorageConfig(backend="memory")
    assert ban_file(Config(storage=memory)) is None
    named = Config(storage=memory, auth=AuthConfig(ban_file="/etc/bans"))
    file = ban_file(named)
    assert file is not None
    assert file.path == Path("/etc/bans")
    for backend in ("rocksdb", "redis"):
        storage = StorageConfig(backend=backend, path="data")  # type: ignore[arg-type]
        file = ban_file(Config(storage=storage))
        assert file is not None
        assert file.path == Path("data/bans")


async def test_what_is_told_is_in_the_file_and_in_force(enforced: Enforced, tmp_path: Path) -> None:
    file = BanFile(tmp_path / "bans")
    bans = keeper(enforced, file)
    row = await bans.add("address", "203.0.113.7/24", reason="scan", until_us=0)
    assert (row.value, row.until, row.reason) == ("203.0.113.0/24", None, "scan")
    assert row.closed == 2
    assert [ban.value for ban in file.load()] == ["203.0.113.0/24"] == enforced.lists[-1]
    assert [found.kind for found in bans.ordered()] == ["address"]
    assert await bans.remove("client_id", "nobody") is None
    assert await bans.remove("address", "203.0.113.0/24") is not None
    assert enforced.lists[-1] == []
    assert len(file.load()) == 0


async def test_changes_at_once_are_all_kept(enforced: Enforced, tmp_path: Path) -> None:
    file = BanFile(tmp_path / "bans")
    bans = keeper(enforced, file)
    names = [f"c{number}" for number in range(8)]
    await asyncio.gather(*(bans.add("client_id", name, reason="", until_us=0) for name in names))
    assert sorted(ban.value for ban in file.load()) == names
    assert sorted(enforced.lists[-1]) == names


async def test_what_cannot_be_written_is_not_enforced(enforced: Enforced, tmp_path: Path) -> None:
    bans = keeper(enforced, BanFile(tmp_path / "no" / "bans"))
    with pytest.raises(ConfigError):
        await bans.add("client_id", "c", reason="", until_us=0)
    with pytest.raises(ConfigError):
        await bans.add("address", "nowhere", reason="", until_us=0)
    assert enforced.lists == []


async def test_reload_takes_what_was_edited(enforced: Enforced, tmp_path: Path) -> None:
    file = BanFile(tmp_path / "bans")
    bans = keeper(enforced, file)
    file.add(make_ban("client_id", "by hand"), now_us=1)
    bans.reload(file, bans.read(file))
    assert enforced.lists == [["by hand"]]
    file.path.write_text("nonsense\n")
    with pytest.raises(ConfigError):
        bans.read(file)
    assert [ban.value for ban in enforced.bans] == ["by hand"]


async def test_without_a_file_bans_are_in_memory(enforced: Enforced) -> None:
    bans = keeper(enforced, None)
    await bans.add("client_id", "c", reason="", until_us=0)
    bans.reload(None, bans.read(None))
    assert enforced.lists[-1] == ["c"]
    assert await bans.remove("client_id", "d") is None
    assert await bans.remove("client_id", "c") is not None
    assert enforced.lists[-1] == []


async def test_temporary_bans_are_listed_and_taken_back(enforced: Enforced, tmp_path: Path) -> None:
    """They stand in no file, so there is nothing to change there."""
    file = BanFile(tmp_path / "bans")
    bans = keeper(enforced, file)
    enforced.made = [
        TemporaryBan("login", "ada@203.0.113.7", "30 failed logins", 1_000_000, 61_000_000),
        TemporaryBan("client_id", "pump", "flapping", 1_000_000, 61_000_000),
    ]
    assert [(row.kind, row.value) for row in bans.ordered()] == [
        ("client_id", "pump"),
        ("login", "ada@203.0.113.7"),
    ]
    assert str(ban_row(bans.ordered()[0]).until).startswith("1970-01-01T00:01:01")
    assert await bans.remove("login", "bob@203.0.113.7") is None
    assert await bans.remove("login", "ada@203.0.113.7") is not None
    assert await bans.remove("client_id", "pump") is not None
    assert await bans.remove("client_id", "pump") is None
    assert list(bans.ordered()) == []
    assert not file.path.exists()
