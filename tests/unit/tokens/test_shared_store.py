"""A store that is opened by the first who asks, once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from perdure.errors import StorageUnavailable
from perdure.tokens.shared_store import SharedStore


async def test_it_is_opened_once_for_all_and_anew_after_its_end(tmp_path: Path) -> None:
    shared = SharedStore(str(tmp_path / "tokens"), layout="planned", prefix="")
    assert not (tmp_path / "tokens").exists()
    first, second = await asyncio.gather(shared.get(1), shared.get(1))
    assert first is second
    await shared.close()
    await shared.close()
    third = await shared.get(1)
    assert third is not first
    assert await third.find(bytes(32), 1) is None
    await shared.close()


async def test_a_failure_is_not_kept(tmp_path: Path) -> None:
    place = tmp_path / "folder" / "tokens"
    place.parent.write_text("a file is in the way")
    shared = SharedStore(str(place), layout="planned", prefix="")
    with pytest.raises(StorageUnavailable):
        await shared.get(1)
    place.parent.unlink()
    place.parent.mkdir()
    await shared.get(1)
    await shared.close()
