"""Every node of a cluster answers for all of them, with what each has said of itself last."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from perdure.admin.problems import Refused
from perdure.admin.records.node import ALL_NODES, GetOverview, ListNodes, NodePage, Overview
from perdure.admin.rights import Principal
from perdure.model import Will
from perdure.model.reserved import NODES_PREFIX
from perdure.observe.metrics_text import MetricsText
from perdure.server.administration.history import Recorder
from perdure.server.administration.node import NodeOperations
from perdure.server.administration.node_reports import STALLED_S, NodeReports, Report
from perdure.server.administration.service import Call
from perdure.server.administration.stepped_exposition import SteppedExposition
from perdure.storage.ordered.record import Forget
from tests.support.ordered_log import LateDatabase
from tests.support.sim_broker import SimBroker
from tests.unit.broker.harness import Client
from tests.wire.harness import Options
from tests.wire.virtual_cluster import VirtualCluster

CALL = Call(Principal("eva", "viewer", source="token"), "r1")


class Desk:
    """The administration of a node, as far as it is about nodes."""

    def __init__(self, node: SimBroker, name: str) -> None:
        self._node = node
        services = node.live.services
        self.reports = NodeReports(services)
        self.operations = NodeOperations(
            services,
            Recorder(services),
            reports=self.reports,
            node=name,
            version="1.0",
            started_us=services.clock.wall_us(),
            exposition=SteppedExposition(
                MetricsText(services.metrics, version="1.0", backend="kafka"),
                services.clock.monotonic_us,
            ),
        )

    def tell(self) -> None:
        self.reports.tell(self.operations.now())
        self._node.run_for(100_000)

    def overview(self, node: str) -> Overview:
        return self._run(self.operations.overview(GetOverview(node=node), CALL))  # type: ignore[no-any-return]

    def rows(self) -> dict[str, dict[str, Any]]:
        page: NodePage = self._run(self.operations.nodes(ListNodes(), CALL))
        return {row.name: msgspec.to_builtins(row) for row in page.items}

    def refusal(self, node: str) -> str:
        with pytest.raises(Refused) as caught:
            self.overview(node)
        return caught.value.problem.code

    def _run(self, work: Any) -> Any:
        found: list[Any] = []

        async def keep() -> None:
            try:
                found.append(await work)
            except Refused as error:
                found.append(error)

        assert self._node.scheduler is not None
        self._node.scheduler.run(keep())
        if isinstance(found[0], Refused):
            raise found[0]
        return found[0]


@pytest.fixture
def cluster() -> Iterator[VirtualCluster]:
    made = VirtualCluster(Options(), seed=5)
    made.start()
    yield made
    made.check_health()
    made.close()


@pytest.fixture
def desks(cluster: VirtualCluster) -> list[Desk]:
    return [Desk(node, f"n{number}") for number, node in enumerate(cluster.nodes, start=1)]


def connected(node: SimBroker, *names: str) -> list[Client]:
    clients = [Client(node, name) for name in names]
    for client in clients:
        client.connect()
    return clients


def test_each_node_knows_what_the_others_have_said(
    cluster: VirtualCluster, desks: list[Desk]
) -> None:
    connected(cluster.nodes[0], "a", "b")
    connected(cluster.nodes[1], "c")
    for desk in desks:
        desk.tell()
    for number, desk in enumerate(desks):
        rows = desk.rows()
        assert [row["name"] for row in rows.values() if row["is_self"]] == [f"n{number + 1}"]
        assert {name: row["connections"] for name, row in rows.items()} == {
            "n1": 2,
            "n2": 1,
            "n3": 0,
        }
        assert {row["state"] for row in rows.values()} == {"running"}
        assert {row["version"] for row in rows.values()} == {"1.0"}
        every = desk.overview(ALL_NODES)
        assert (every.node, every.connections, every.unheard) == ("*", 3, [])
    # What is said stays as it was until it is said anew, and says of when it is.
    told = desks[2].overview("n1")
    connected(cluster.nodes[0], "d")
    assert desks[2].overview("n1") == told
    desks[0].tell()
    assert desks[2].overview("n1").connections == 3
    assert desks[2].overview("n1").as_of_us > told.as_of_us
    assert desks[2].overview(ALL_NODES).as_of_us == min(
        desks[2].overview(name).as_of_us for name in ("n1", "n2", "n3")
    )


def test_what_was_not_heard_is_not_made_up(desks: list[Desk]) -> None:
    first, second, third = desks
    assert first.refusal("n2") == "not_found"
    assert first.refusal("n9") == "not_found"
    second.tell()
    assert first.overview("n2").node == "n2"
    every = first.overview(ALL_NODES)
    assert every.unheard == ["n3"]
    row = first.rows()["n3"]
    assert (row["state"], row["connections"], row["as_of"]) == ("running", None, None)
    assert third.overview("").node == third.overview("n3").node == "n3"


def test_a_node_that_died_has_last_words_and_counts_no_more(
    cluster: VirtualCluster, desks: list[Desk]
) -> None:
    connected(cluster.nodes[2], "c")
    for desk in desks:
        desk.tell()
    assert desks[0].overview(ALL_NODES).connections == 1
    # Who dies is missed when it joins again; what its last process has said is not the new one's.
    cluster.nodes[2].kill()
    cluster.nodes[2].start()
    cluster.nodes[0].run_for(100_000)
    every = desks[0].overview(ALL_NODES)
    assert (every.connections, every.unheard) == (0, ["n3"])
    row = desks[0].rows()["n3"]
    assert (row["state"], row["connections"], row["version"]) == ("running", None, "1.0")
    assert row["as_of_us"] == desks[0].overview("n3").as_of_us
    again = Desk(cluster.nodes[2], "n3")
    assert again.overview(ALL_NODES).unheard == ["n1", "n2"]
    again.tell()
    assert desks[0].overview(ALL_NODES).unheard == []


def test_a_node_that_has_left_keeps_its_last_numbers_until_it_is_forgotten(
    cluster: VirtualCluster, desks: list[Desk]
) -> None:
    first = desks[0]
    store = cluster.nodes[0].store
    assert isinstance(store, LateDatabase)
    fourth = LateDatabase(log=store.log, name="n4")
    overview = msgspec.structs.replace(first.overview(""), node="n4", connections=7)
    report = Report(fourth.replica.peers.incarnation, overview)
    first.reports.heard("n4", msgspec.json.encode(report))
    cluster.nodes[0].run_for(100_000)
    assert first.overview(ALL_NODES).connections == first.rows()["n4"]["connections"] == 7
    fourth.close()
    cluster.nodes[0].run_for(100_000)
    assert (first.overview("n4").state, first.overview("n4").connections) == ("left", 7)
    row = first.rows()["n4"]
    assert (row["state"], row["connections"], row["as_of"]) == ("left", None, overview.as_of)
    every = first.overview(ALL_NODES)
    assert (every.connections, every.unheard) == (0, ["n2", "n3"])
    store.replica.submit_acts(Forget("n4"))
    store.log.sequence_all()
    cluster.nodes[0].run_for(100_000)
    assert "n4" not in first.rows()
    assert first.refusal("n4") == "not_found"
    first.tell()
    assert first.reports._told == {}


def test_nobody_tells_while_the_log_stands_still(
    cluster: VirtualCluster, desks: list[Desk]
) -> None:
    services = cluster.nodes[0].live.services
    services.metrics.cluster_stalled_seconds = STALLED_S
    desks[0].tell()
    assert desks[1].refusal("n1") == "not_found"
    services.metrics.cluster_stalled_seconds = 0
    desks[0].tell()
    assert desks[1].overview("n1").storage == "ok"


def test_no_client_speaks_for_a_node_not_even_with_its_will(
    cluster: VirtualCluster, desks: list[Desk]
) -> None:
    desks[0].tell()
    told = desks[1].overview("n1")
    client = Client(cluster.nodes[2], "c")
    client.connect(will=Will(NODES_PREFIX + "n1", b"{}"))
    client.cut()
    cluster.nodes[2].run_for(1_000_000)
    assert desks[1].overview("n1") == told


def test_what_a_node_cannot_read_it_does_not_count(desks: list[Desk]) -> None:
    for said in (b'{"incarnation":1,"overview":{"later":true}}', b"{", b'{"\xff":1}'):
        desks[0].reports.heard("n2", said)
        assert desks[0].refusal("n2") == "not_found"
    assert desks[0].overview(ALL_NODES).unheard == ["n2", "n3"]


def test_nothing_of_it_is_kept(cluster: VirtualCluster, desks: list[Desk]) -> None:
    database = cluster.nodes[1].live.services.database
    before = (database.last_offset, database.retained_count)
    for desk in desks:
        desk.tell()
    assert (database.last_offset, database.retained_count) == before
