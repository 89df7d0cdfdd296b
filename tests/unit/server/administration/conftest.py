"""A broker to administer."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.unit.server.administration.scene import Scene


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    found = Scene()
    await found.broker.start()
    yield found
    found.broker.stop_taking(0x8B)
    await found.broker.finish()
    await found.scheduler.close()
    assert found.errors == []
