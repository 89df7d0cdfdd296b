"""The overview of a cluster: one node answers for all, and says of when what it tells is."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, final

import pytest

from perdure.bench.ports import free_port
from tests import servers
from tests.browser.conftest import wait_until
from tests.support.bounds import HANG_S
from tests.wire.harness import Options
from tests.wire.process_broker import ProcessBroker

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.kafka]


@final
class Scene:
    """Two nodes on a real Kafka; the first one has the dashboard."""

    def __init__(self, folder: Path) -> None:
        http = f"127.0.0.1:{free_port()}"
        self.url = f"http://{http}"
        common = {
            "cluster.name": servers.kafka_topic(),
            "cluster.kafka": servers.kafka().servers,
            "cluster.dead_after": "3s",
        }
        self.nodes: list[ProcessBroker] = []
        for name, more in (("n1", {"http.bind": http}), ("n2", {})):
            (folder / name).mkdir()
            settings = {**common, "node.name": name, **more}
            self.nodes.append(ProcessBroker(folder / name, replace(Options(), settings=settings)))
        for node in self.nodes:
            node.start()

    @property
    def setup_link(self) -> str:
        """As the log of the first node has it."""
        found = re.search(r"http://[^\s\"]*/ui/setup\?token=\w+", self.nodes[0].log.read_text())
        assert found is not None
        return found.group()

    def cli(self, *args: str) -> Any:
        """What a command says of the first node, which must answer."""
        data = str(self.nodes[0].directory / "data")
        line = [sys.executable, "-m", "perdure", *args, "--data", data, "--json"]
        done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=HANG_S)
        return json.loads(done.stdout) if done.stdout else done.stderr

    def close(self) -> None:
        """End the nodes."""
        for node in self.nodes:
            node.close()


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    for module in ("starlette", "jinja2", "argon2", "confluent_kafka"):
        pytest.importorskip(module)
    made = Scene(tmp_path_factory.mktemp("cluster"))
    yield made
    made.close()


@pytest.fixture(autouse=True)
def gone_after(scene: Scene) -> Iterator[None]:
    """No client outlives its test."""
    yield
    for node in scene.nodes:
        node.close_peers()


def connected_to(page: Any) -> int:
    """What the tile says."""
    tile = page.locator(".tile", has_text="Connected").locator(".value")
    return int(tile.inner_text())


def test_the_overview_is_of_any_node_or_of_all(scene: Scene, page: Any) -> None:
    scene.nodes[0].connect("here")
    for number in range(2):
        scene.nodes[1].connect(f"there-{number}")
    # A node says new numbers every ten seconds.
    wait_until(lambda: scene.cli("status", "--node", "n2").get("sessions_connected") == 2)

    page.goto(f"{scene.url}/ui/")
    page.locator("#pulse[data-state=live]").wait_for()
    assert connected_to(page) == 1
    chosen = page.get_by_label("Node", exact=True)
    assert chosen.locator("option").all_inner_texts() == ["n1, live", "n2", "all nodes"]

    # By keyboard alone; the choice is in the address.
    chosen.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_url("**/ui/?node=n2")
    assert connected_to(page) == 2
    assert chosen.input_value() == "n2"
    assert "what n2 has said of itself" in page.locator("#numbers").inner_text()
    assert page.locator("[data-live]").count() == 0
    # Its last hour, from what it has said; what renews the numbers leaves the charts alone.
    legend = page.locator("[data-chart^=sessions_connected] .u-series .u-value")
    wait_until(lambda: legend.nth(1).inner_text() == "2")
    page.locator("[data-chart] canvas").first.evaluate("each => each.dataset.kept = 'so'")
    cli = page.get_by_role("button", name="Copy as CLI").get_attribute("data-copy")
    assert cli == "perdure status --node n2"

    # What this node's stream tells is not taken for the other's, and that one's comes by itself.
    page.locator("#pulse[data-state=live]").wait_for()
    scene.nodes[1].connect("there-2")
    wait_until(lambda: connected_to(page) == 3)
    wait_until(lambda: legend.nth(1).inner_text() == "3")
    assert page.locator("[data-kept=so]").count() == 1

    chosen.select_option("all nodes")
    page.get_by_role("button", name="Show").click()
    page.wait_for_url("**/ui/?node=*")
    assert connected_to(page) == 4
    wait_until(lambda: legend.nth(1).inner_text() == "4")
    rows = page.locator("[aria-labelledby=each] tbody tr")
    assert [row.locator("th").inner_text().split()[0] for row in rows.all()] == ["n1", "n2"]
    rows.nth(1).get_by_role("link", name="n2").click()
    page.wait_for_url("**/ui/?node=n2")
    page.go_back()
    assert connected_to(page) == 4
    page.goto(f"{scene.url}/ui/?node=n9")
    page.get_by_text("no node 'n9' was heard of").wait_for()
    page.wrong.clear()  # the browser says so, too


def test_a_node_that_died_is_seen_with_its_last_numbers(scene: Scene, page: Any) -> None:
    second = scene.nodes[1]
    wait_until(lambda: isinstance(scene.cli("status", "--node", "n2"), dict))
    second.kill9(start=False)
    try:
        wait_until(lambda: scene.cli("status", "--node", "n2")["state"] == "expelled")
        page.goto(f"{scene.url}/ui/?node=n2")
        told = page.locator(".verdict").inner_text()
        assert told == "n2 is no member of the cluster (expelled): these are its last numbers."
        row = next(row for row in scene.cli("cluster", "status") if row["name"] == "n2")
        assert (row["state"], row["connections"]) == ("expelled", None)
        assert row["as_of"] is not None
        page.goto(f"{scene.url}/ui/?node=*")
        assert page.locator(".verdict").inner_text() == "Everything acknowledged is kept."
        assert "expelled" in page.locator("[aria-labelledby=each] tbody").inner_text()
    finally:
        second.start()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_of_a_cluster_keeps_anybody_out(scene: Scene, page: Any, scheme: str) -> None:
    from tests.browser.test_dashboard import axe_finds

    page.emulate_media(color_scheme=scheme)
    wait_until(lambda: scene.cli("status", "--node", "*").get("unheard") == [])
    found: list[str] = []
    for path in ("/ui/", "/ui/?node=n2", "/ui/?node=*", "/ui/nodes"):
        page.goto(f"{scene.url}{path}")
        page.wait_for_load_state()
        found += axe_finds(page)
    assert found == []
