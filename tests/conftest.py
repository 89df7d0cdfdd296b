"""What a test needs of the machine: a test of a server that is not installed is left out.

In CI (``PERDURE_CI``) such a test fails.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.support import selection
from tests.support.needs import missing

# No test is timed: on a machine that does other things too, any example may take long.
# Fixtures that last for one test are shared by its examples, which is meant.
settings.register_profile(
    "untimed",
    deadline=None,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.function_scoped_fixture,
    ],
)
settings.load_profile("untimed")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keep the garbage collector off what collection makes: 20,000 tests stay to the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take the sample or the share of this run (``tests/support/selection.py``)."""
    items[:], left = selection.chosen(items)
    if left:
        config.hook.pytest_deselected(items=left)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what this run leaves out, and how it is repeated."""
    if told := selection.told():
        terminalreporter.write_line(told)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """End the servers that tests share while the run still waits for this process."""
    servers = sys.modules.get("tests.servers")
    if servers is not None:
        servers.close()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Blame who changes what all packets without properties share, not who meets it later."""
    packets = sys.modules.get("perdure.mqtt.packets")
    if packets is not None and (none := packets.Properties()) != packets.EMPTY:
        found = repr(packets.EMPTY)
        for name in packets.PROPERTY_NAMES:
            setattr(packets.EMPTY, name, getattr(none, name))
        pytest.fail(f"{item.nodeid} has changed EMPTY: {found}", pytrace=False)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Stop the tests marked ``redis``, ``postgres`` or ``kafka`` where the programs are missing."""
    if item.get_closest_marker("redis") is not None:
        from perdure.storebench.servers.redis import find_redis

        if find_redis() is None:
            missing("Redis is not installed")
    if item.get_closest_marker("postgres") is not None:
        from perdure.storebench.servers.postgres import find_postgres

        if find_postgres() is None:
            missing("PostgreSQL is not installed")
    if item.get_closest_marker("kafka") is not None:
        from tests.support import kafka

        absent = kafka.why_not()
        if absent:
            missing(absent)


@pytest.fixture
def cheap_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passwords cost next to nothing, for tests that are about something else."""
    from perdure.broker.auth import hashes

    monkeypatch.setattr(hashes, "SCRYPT_LOG2_N", 4)
    monkeypatch.setattr(hashes, "PBKDF2_SHA512_ITERATIONS", 1_000)
