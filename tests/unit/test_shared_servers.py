"""What tests start for a whole run ends with it."""

from __future__ import annotations

import pytest

from perdure.storebench.servers.server import Managed
from tests import conftest, servers


class _Server(Managed):
    closed = 0

    def start(self) -> float:
        return 0.0

    def close(self) -> None:
        self.closed += 1


def test_shared_servers_are_closed_at_the_end_of_the_tests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A worker that takes long to leave is killed, and leaves what it has started."""
    server = _Server()
    monkeypatch.setattr(servers, "_started", {_Server: server})
    conftest.pytest_sessionfinish()
    servers.close()
    assert server.closed == 1
