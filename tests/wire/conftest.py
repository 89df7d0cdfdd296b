"""Fixtures of the wire cases: one broker process for each module, fresh names for each case."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from tests.wire.harness import Broker, Options

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def _broker_of_module(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    """The module's broker, configured by the module's ``BROKER_OPTIONS`` if it has them."""
    options = getattr(request.module, "BROKER_OPTIONS", Options())
    broker = Broker(tmp_path_factory.mktemp("broker"), options)
    broker.start()
    yield broker
    broker.close()


@pytest.fixture
def broker(_broker_of_module: Broker) -> Iterator[Broker]:
    """The module's broker; a case fails if it died or logged an unhandled exception.

    The clients of the case are closed at its end.
    """
    _broker_of_module.ensure_running()
    yield _broker_of_module
    _broker_of_module.close_peers()
    _broker_of_module.check_health()


@pytest.fixture
def name() -> str:
    """A name that no other case uses, for client identifiers and first topic levels."""
    return f"w{next(_numbers)}"
