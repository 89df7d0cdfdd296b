"""What a node says of itself is read by later releases, and by earlier ones."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from perdure.admin.problems import Refused
from perdure.admin.records.node import ALL_NODES, GetOverview, ListNodes
from perdure.server.administration.node_reports import Report
from tests.unit.server.administration.fake_service import overview
from tests.unit.server.administration.scene import Scene

GOLDEN = Path(__file__).parents[3] / "golden" / "node_report.jsonl"


def test_what_earlier_releases_have_said_is_read() -> None:
    for line in GOLDEN.read_bytes().splitlines():
        report = msgspec.json.decode(line, type=Report)
        assert (report.overview.node, report.overview.connections) == ("n2", 3)
        assert report.overview.state == "running"


def test_a_field_of_a_later_release_is_skipped() -> None:
    report = Report(7, overview("n1"))
    said = msgspec.json.decode(msgspec.json.encode(report))
    said["later"] = said["overview"]["later"] = {"a": [1]}
    assert msgspec.json.decode(msgspec.json.encode(said), type=Report) == report


async def test_a_broker_by_itself_is_all_there_is(scene: Scene) -> None:
    await scene.connect("a", expiry_s=60)
    (row,) = (await scene.ask(ListNodes()))["items"]
    assert (row["is_self"], row["sessions_connected"], row["storage"]) == (True, 1, "ok")
    assert row["cluster_lag"] is None
    own = await scene.ask(GetOverview())
    assert (await scene.ask(GetOverview(node=own["node"])))["node"] == own["node"]
    every = await scene.ask(GetOverview(node=ALL_NODES))
    assert (every["node"], every["sessions_connected"], every["unheard"]) == ("*", 1, [])
    with pytest.raises(Refused) as caught:
        await scene.ask(GetOverview(node="n2"))
    assert caught.value.problem.code == "not_found"
