"""Cases of this version alone."""

from __future__ import annotations

import pytest

from tests.wire.clients import Clients
from tests.wire.harness import Broker


@pytest.fixture
def clients(broker: Broker) -> Clients:
    """Clients of this version."""
    return Clients(broker, 4)
