"""A broker to administer."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.unit.server.administration.scene import Scene


@pytest.fixture
async def scene(request: pytest.FixtureRequest) -> AsyncIterator[Scene]:
    """One with the settings of an indirect parameter, or with those that it has by default."""
    found = Scene(getattr(request, "param", None))
    await found.broker.start()
    yield found
    found.broker.stop_taking(0x8B)
    await found.broker.finish()
    await found.scheduler.close()
    assert found.errors == []
