"""Dashboard and alert rules: what they ask for is what a running broker tells."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from perdure.bench.ports import free_port
from perdure.observe.metric_info import PREFIX
from perdure.observe.metric_table import TABLE
from perdure.observe.metrics_text import RegistryText
from perdure.observe.pipeline_metrics import pipeline_registry
from perdure.storage.pipeline_runs import RunState
from tests.support.bounds import HANG_S
from tests.support.process import BrokerProcess, perdure_command
from tools import grafana

ROOT = Path(__file__).parents[3]
ALERTS = ROOT / "deploy/prometheus/alerts.yml"
OF_PROMETHEUS = {"job", "instance", "le"}
FUNCTIONS = {"sum", "by", "rate", "increase", "histogram_quantile", "label_values"}
SERIES = re.compile(r"([a-z_]\w*)(?:\{([^}]*)\})?")


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Names of series, with the labels that each has."""
    base = tmp_path_factory.mktemp("scraped")
    port, metrics = free_port(), free_port()
    command = perdure_command(base / "data", port, "--set", f"metrics.bind=127.0.0.1:{metrics}")
    broker = BrokerProcess(command, port=port, log=base / "log")

    def read() -> str:
        with urlopen(f"http://127.0.0.1:{metrics}/metrics", timeout=HANG_S) as answer:
            return str(answer.read().decode())

    async def run() -> str:
        await broker.start()
        try:
            return await asyncio.to_thread(read)
        finally:
            await broker.stop()

    text = asyncio.run(run())
    names: dict[str, set[str]] = {"up": set()}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            names.setdefault(sample.name, set()).update(sample.labels)
    # What has not happened yet has no series; its family is told all the same.
    families = {family.name for family in text_string_to_metric_families(text)}
    for info in TABLE:
        assert PREFIX + info.name in families
        if info.kind == "counter":
            names.setdefault(f"{PREFIX}{info.name}_total", set()).update(info.labels)
        elif info.kind == "gauge":
            names.setdefault(PREFIX + info.name, set()).update(info.labels)
    for family in text_string_to_metric_families(of_a_pipeline()):
        for sample in family.samples:
            names.setdefault(sample.name, set()).update(sample.labels)
    return names


def of_a_pipeline() -> str:
    """What a process that runs a pipeline answers."""
    state = RunState()
    state.schedule({"archive": 60.0}, 1)
    return "".join(RegistryText(pipeline_registry(lambda: state, lambda: True)).families())


def asked() -> list[str]:
    """Every expression of ours."""
    rules = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    found = [rule["expr"] for group in rules for rule in group["rules"]]
    panels: list[dict[str, Any]] = grafana.dashboard()["panels"]
    found += [target["expr"] for panel in panels for target in panel.get("targets", [])]
    assert len(found) > 40
    return found


def unknown(expression: str, names: dict[str, set[str]]) -> list[str]:
    """What an expression asks for and nobody tells: series, labels, labels of its `by`."""
    wrong, labels = [], set(OF_PROMETHEUS)
    grouped = re.findall(r"by \(([^)]*)\)", expression)
    bare = re.sub(r'by \([^)]*\)|"[^"]*"(?![^{]*\})|\[[^]]*\]', " ", expression)
    for name, inside in SERIES.findall(bare):
        if name in FUNCTIONS:
            continue
        if name not in names:
            wrong.append(name)
            continue
        labels |= names[name]
        wrong += [
            f"{name}.{label}" for label in re.findall(r"(\w+)=", inside) if label not in labels
        ]
    asked_by = {label.strip() for each in grouped for label in each.split(",")}
    return wrong + sorted(asked_by - labels)


def test_every_series_and_label_is_told(scraped: dict[str, set[str]]) -> None:
    wrong = {expression: found for expression in asked() if (found := unknown(expression, scraped))}
    assert wrong == {}
    # The check can fail.
    assert unknown("sum by (reason, why) (rate(perdure_messages_dropped_total[5m]))", scraped) == [
        "why"
    ]
    assert unknown('perdure_connection{listener="x"} > 1', scraped) == ["perdure_connection"]
    assert unknown('perdure_connections{client="x"}', scraped) == ["perdure_connections.client"]
    # Who scrapes says what a job and an instance are: ours would be renamed, and no rule fit.
    ours = {name: labels & {"job", "instance"} for name, labels in scraped.items()}
    assert {name for name, labels in ours.items() if labels} == set()


def test_values_of_labels_exist() -> None:
    values = {PREFIX + info.name: set(info.values) for info in TABLE if info.values}
    for expression in asked():
        for name, wanted in re.findall(
            r'(perdure_\w+?)(?:_total)?\{[^}]*reason=~"([^"]*)"', expression
        ):
            assert set(wanted.split("|")) <= values[name], expression


def test_the_dashboard_is_written() -> None:
    assert json.loads(grafana.TARGET.read_text(encoding="utf-8")) == grafana.dashboard()
    ids = [panel["id"] for panel in grafana.dashboard()["panels"]]
    assert len(ids) == len(set(ids))


def test_rules_fire_and_clear() -> None:
    promtool = shutil.which("promtool") or str(ROOT / "build/tools/bin/promtool")
    if not Path(promtool).exists():
        pytest.skip("promtool is not here (make deploy-tools)")
    for words in (
        ["check", "rules", str(ALERTS)],
        ["test", "rules", str(Path(__file__).with_name("alerts_test.yml"))],
    ):
        done = subprocess.run(
            [promtool, *words], capture_output=True, text=True, timeout=HANG_S, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
