"""An identity on a clock that stands still unless it is told to go on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from perdure.clock import Clock
from perdure.identity import passwords
from perdure.identity.logins import LoginLimits
from perdure.identity.service import Identity

START_US = 1_800_000_000_000_000


class Hands(Clock):
    """Moved by hand."""

    def __init__(self) -> None:
        self.us = START_US

    def now_us(self) -> int:
        return self.us

    def monotonic_us(self) -> int:
        return self.us


@pytest.fixture
def clock() -> Hands:
    return Hands()


@pytest_asyncio.fixture
async def identity(
    tmp_path: Path, clock: Hands, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Identity]:
    pytest.importorskip("argon2")
    # Cheap: what it costs is a constant, not what these tests are about.
    monkeypatch.setattr(passwords, "TIME_COST", 1)
    monkeypatch.setattr(passwords, "MEMORY_KIB", 8)
    opened = await Identity.open(
        tmp_path, limits=LoginLimits(idle_s=600, total_s=3_600), clock=clock
    )
    yield opened
    await opened.close()
