"""A ban that is made through one node holds on all of them, for who is connected too."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure.broker.auth.bans import BanFile, BanList, make_ban
from perdure.config.schema import AuthConfig, Config, StorageConfig
from perdure.errors import StorageUnavailable
from perdure.mqtt.packets import Connack, Disconnect, Publish
from perdure.mqtt.reason_codes import ADMINISTRATIVE_ACTION, BANNED, TOPIC_NAME_INVALID
from perdure.server.bans import BanKeeper, make_keeper
from tests.support.ordered_log import LateDatabase
from tests.support.sim_broker import SimBroker
from tests.unit.broker.harness import Client
from tests.wire.harness import Options
from tests.wire.virtual_cluster import VirtualCluster


@pytest.fixture
def cluster() -> Iterator[VirtualCluster]:
    made = VirtualCluster(Options(), seed=3)
    made.start()
    yield made
    made.check_health()
    made.close()


def keeper_of(node: SimBroker) -> BanKeeper:
    """The keeper of a node that has started, told what the log has by then."""
    services = node.live.services
    keeper = make_keeper(Config(), services, BanList())
    keeper.reload(None, BanList())  # no file
    run(node, services.notices.load())
    return keeper


def run(node: SimBroker, work: Coroutine[Any, Any, Any]) -> list[Any]:
    found: list[Any] = []

    async def keep() -> None:
        found.append(await work)

    assert node.scheduler is not None
    node.scheduler.run(keep())
    return found


def refusal(node: SimBroker, client_id: str) -> int:
    """The reason code of its CONNACK."""
    client = Client(node, client_id)
    client.connect(wait=False)
    return client.take(Connack).reason


def test_a_ban_holds_on_all_nodes_until_any_takes_it_back(cluster: VirtualCluster) -> None:
    first, second, third = cluster.nodes
    keepers = [keeper_of(node) for node in cluster.nodes]
    client = Client(first, "c")
    client.connect()
    (made,) = run(second, keepers[1].add("client_id", "c", reason="floods", until_us=0))
    assert made.closed == 0  # on the node that was asked
    first.run_for(100_000)
    assert client.take(Disconnect).reason == ADMINISTRATIVE_ACTION
    assert [refusal(node, "c") for node in cluster.nodes] == [BANNED] * 3
    # A node that starts has it from its store.
    third.kill()
    third.start()
    keepers[2] = keeper_of(third)
    assert refusal(third, "c") == BANNED
    assert [each.reason for each in keepers[2].ordered()] == ["floods"]
    assert run(third, keepers[2].remove("client_id", "c")) != [None]
    first.run_for(100_000)
    assert [refusal(node, "c") for node in cluster.nodes] == [0] * 3
    assert run(first, keepers[0].remove("client_id", "c")) == [None]


def test_of_two_bans_that_cross_the_later_one_in_the_log_counts_everywhere(
    cluster: VirtualCluster,
) -> None:
    first, second, _ = cluster.nodes
    keepers = [keeper_of(node) for node in cluster.nodes]
    for number, node in enumerate((first, second)):
        peers = node.live.services.peers
        assert peers is not None
        work = keepers[number].add("username", "u", reason=peers.node, until_us=0)
        assert node.scheduler is not None
        node.scheduler.spawn(_ignore(work), name="ban")
    first.run_for(1_000_000)
    found = {tuple(each.reason for each in keeper.ordered()) for keeper in keepers}
    assert len(found) == 1
    assert len(found.pop()) == 1


def with_file(node: SimBroker, file: BanFile, *, named: str = "") -> BanKeeper:
    """The keeper of a node that starts on a directory that has a file of bans."""
    services = node.live.services
    config = Config(
        auth=AuthConfig(ban_file=named), storage=StorageConfig(path=str(file.path.parent))
    )
    keeper = make_keeper(config, services, file.load())
    run(node, services.notices.load())
    run(node, keeper.adopt())
    return keeper


def test_bans_of_a_single_brokers_directory_hold_on_all_nodes(
    cluster: VirtualCluster, tmp_path: Path
) -> None:
    """And are taken back through any of them."""
    first, second, _ = cluster.nodes
    other = keeper_of(second)
    file = BanFile(tmp_path / "bans")
    file.put([make_ban("client_id", name, reason="floods") for name in ("c", "d")])
    file.put([make_ban("client_id", "over", until_us=1)])
    run(second, other.add("client_id", "d", reason="of the cluster", until_us=0))
    keeper = with_file(first, file)
    first.run_for(100_000)
    assert [refusal(node, "c") for node in (first, second)] == [BANNED] * 2
    assert {each.value: each.reason for each in other.ordered()} == {
        "c": "floods",
        "d": "of the cluster",
    }
    assert len(file.load()) == 0
    assert file.path.read_bytes()  # or it would be missed
    for name in "cd":
        run(second, other.remove("client_id", name))
    first.run_for(100_000)
    assert [refusal(node, "c") for node in (first, second)] == [0] * 2
    assert list(keeper.ordered()) == []


def test_a_file_that_the_configuration_names_stays_the_nodes_own(
    cluster: VirtualCluster, tmp_path: Path
) -> None:
    first, second, _ = cluster.nodes
    file = BanFile(tmp_path / "bans")
    file.put([make_ban("client_id", "c")])
    with_file(first, file, named=str(file.path))
    first.run_for(100_000)
    assert len(file.load()) == 1
    keeper_of(second)
    assert refusal(second, "c") == 0


def test_bans_that_the_log_does_not_take_stay_where_they_are(
    cluster: VirtualCluster, tmp_path: Path
) -> None:
    first = cluster.nodes[0]
    file = BanFile(tmp_path / "bans")
    file.put([make_ban("client_id", "c")])
    first.live.services.committer.lost(StorageUnavailable("cut off"))
    keeper = with_file(first, file)
    assert [each.value for each in keeper.ordered()] == ["c"]
    assert len(file.load()) == 1


def test_a_node_that_is_cut_off_says_that_it_cannot_ban(cluster: VirtualCluster) -> None:
    first = cluster.nodes[0]
    keeper = keeper_of(first)
    assert isinstance(first.store, LateDatabase)
    first.live.services.committer.lost(StorageUnavailable("cut off"))
    failed: list[str] = []

    async def ban() -> None:
        try:
            await keeper.add("client_id", "c", reason="", until_us=0)
        except StorageUnavailable as error:
            failed.append(error.code)

    assert first.scheduler is not None
    first.scheduler.run(ban())
    assert failed == ["storage_unavailable"]
    assert list(keeper.ordered()) == []


def test_no_client_publishes_to_what_the_nodes_keep(cluster: VirtualCluster) -> None:
    client = Client(cluster.nodes[0], "c")
    client.connect()
    client.send(Publish("$bans/x", b"{}", 1, True, False, 5))
    assert client.take(Disconnect).reason == TOPIC_NAME_INVALID


async def _ignore(work: Coroutine[Any, Any, Any]) -> None:
    await work
