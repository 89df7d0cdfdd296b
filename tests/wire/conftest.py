"""Fixtures of the wire cases: a broker for each case, on one of two transports.

Each case runs on the virtual network, with a seed of its own (``PERDURE_SEED`` gives others). A
tenth of them, chosen by their names, and those marked ``sockets``, in one of their versions, run on
real sockets as well; those marked ``sockets(only=True)`` or with users run there alone, and those
marked ``virtual`` not at all. ``PERDURE_WIRE=sockets`` runs all of them there. One broker process
serves the cases of a module: names keep them apart.

Another tenth runs on a virtual cluster of three nodes, between which their connections are spread:
no client can tell it from one broker, but for the cases marked ``alone``. ``PERDURE_WIRE=cluster``
runs all of them there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests import servers
from tests.support.selection import digest
from tests.wire.clients import Clients
from tests.wire.cluster_broker import ClusterBroker
from tests.wire.harness import Broker, Options
from tests.wire.peer import SUBJECT
from tests.wire.process_broker import ProcessBroker
from tests.wire.virtual_broker import VirtualBroker, is_possible
from tests.wire.virtual_cluster import VirtualCluster

ALL_ON_SOCKETS: Final = (
    os.environ.get("PERDURE_WIRE") == "sockets"
    or SUBJECT != "perdure"
    or servers.BACKEND != "rocksdb"
)
HERE: Final = Path(__file__).parent
SEED: Final = int(os.environ.get("PERDURE_SEED") or 0)
ON_SOCKETS_TOO: Final = 10
"""One in so many cases runs on sockets too, and another one on a virtual cluster."""
ON_CLUSTER: Final = os.environ.get("PERDURE_WIRE") == "cluster"


def _options(module: object) -> Options:
    options = getattr(module, "BROKER_OPTIONS", None) or Options()
    assert isinstance(options, Options)
    return options


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each case that wants a broker on both transports; ``_choose`` takes some away."""
    if "broker" not in metafunc.fixturenames:
        return
    mark = metafunc.definition.get_closest_marker("sockets")
    is_real_only = mark is not None and bool(mark.kwargs.get("only"))
    if ALL_ON_SOCKETS or is_real_only or not is_possible(_options(metafunc.module)):
        transports: list[Any] = ["sockets"]
    elif ON_CLUSTER:
        transports = ["cluster"]
    else:
        # What the case proves on the virtual network; a file's process is started for all or none.
        sampled = pytest.mark.sampled(group=f"{metafunc.module.__name__} on other transports")
        transports = ["virtual"]
        transports += [pytest.param(other, marks=sampled) for other in ("sockets", "cluster")]
    metafunc.parametrize("broker", transports, indirect=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out the cases on sockets that run on the virtual network and were not chosen."""
    items[:] = [item for item in items if _is_chosen(item)]


def _is_chosen(item: pytest.Item) -> bool:
    if not item.path.is_relative_to(HERE):
        return True  # pytest asks each conftest about all items
    if not isinstance(item, pytest.Function) or "broker" not in item.fixturenames:
        return True
    transport = item.callspec.params.get("broker")
    is_cluster = transport == "cluster" or servers.BACKEND == "cluster"
    if is_cluster and item.get_closest_marker("alone"):
        return False
    if transport == "cluster":
        return ON_CLUSTER or digest(_plain_name(item)) % ON_SOCKETS_TOO == 1
    if transport != "sockets" or ALL_ON_SOCKETS or not is_possible(_options(item.module)):
        return True
    mark = item.get_closest_marker("sockets")
    if mark is not None:
        return bool(mark.kwargs.get("only")) or _is_its_version(item)
    if item.get_closest_marker("virtual"):
        return False
    return digest(_plain_name(item)) % ON_SOCKETS_TOO == 0


def _is_its_version(item: pytest.Function) -> bool:
    """Whether a case of both versions runs on sockets in this one, as its name decides."""
    version = item.callspec.params.get("clients")
    if version is None:
        return True
    name = _plain_name(item).replace("3.1.1", "").replace("5.0", "")
    return version == (4, 5)[digest(name) % 2]


def _plain_name(item: pytest.Function) -> str:
    """What the case is called whatever the transport."""
    return item.nodeid.replace("sockets", "").replace("virtual", "").replace("cluster", "")


@pytest.fixture(scope="module")
def process_broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ProcessBroker | ClusterBroker]:
    """The module's broker process, for those of its cases that run on sockets; or its nodes."""
    directory, options = tmp_path_factory.mktemp("broker"), _options(request.module)
    process: ProcessBroker | ClusterBroker
    if servers.BACKEND == "cluster":
        process = ClusterBroker(directory, options, seed=SEED + digest(request.module.__name__))
    else:
        process = ProcessBroker(directory, options)
    process.start()
    yield process
    process.close()


@pytest.fixture
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """The case's broker; the case fails if it died or met an unhandled exception.

    The clients of the case are closed at its end.
    """
    options = _options(request.module)
    if request.param != "sockets":
        virtual_kind = VirtualBroker if request.param == "virtual" else VirtualCluster
        # Some cases still fail on a cluster with some seeds (ADR 0041): others are for who asks.
        chosen = SEED if request.param == "virtual" or ON_CLUSTER else 0
        virtual = virtual_kind(options, chosen + digest(_plain_name(request.node)))
        virtual.start()
        yield virtual
        virtual.close_peers()
        virtual.check_health()
        virtual.close()
        return
    process: ProcessBroker | ClusterBroker = request.getfixturevalue("process_broker")
    process.ensure_running()
    yield process
    process.close_peers()
    process.check_health()


@pytest.fixture(params=[4, 5], ids=["3.1.1", "5.0"])
def clients(request: pytest.FixtureRequest, broker: Broker) -> Clients:
    """Clients of each version in turn, for what both have in common."""
    return Clients(broker, request.param)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name that no other case uses, for client identifiers and first topic levels."""
    return f"w{digest(_plain_name(request.node)):08x}"
