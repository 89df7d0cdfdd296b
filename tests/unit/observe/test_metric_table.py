"""The table of metrics agrees with what is counted, and the page with the table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from perdure.observe import metrics
from perdure.observe.instruments import Histogram
from perdure.observe.metric_info import MetricInfo
from perdure.observe.metric_table import TABLE, histograms, numbers, reference
from perdure.observe.metrics import Metrics

DERIVED = {"connections_now", "messages_delivered", "messages_dropped", "messages_received"}
"""Sums of what the table has one by one."""

FED_AS = {
    "packets_received": ("control_packets_received", "publishes_received", "pubacks_received"),
    "packets_sent": ("control_packets_sent", "pubacks_sent"),
}
"""Attributes that are computed, and what is counted instead."""

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "metrics.md"


def test_table_and_attributes_agree() -> None:
    named = set()
    for info in TABLE:
        if info.layout == "fields":
            named |= {f"{info.name}_{value}" for value in info.values}
        else:
            named.add(info.name)
    metrics = Metrics()
    # What the compiled class has too: its attributes, without methods and what they come from.
    counted = {
        name
        for name in dir(metrics)
        if not name.startswith("_")
        and not callable(getattr(metrics, name))
        and name not in DERIVED.union(*FED_AS.values())
    }
    assert named == counted


def test_every_number_is_fed_by_something() -> None:
    """What is exported and never written would be read as "nothing happened"."""
    rooms = Path(metrics.__file__).parents[1]
    others = [path for path in rooms.rglob("*.py") if path.parent.name != "observe"]
    ours = (rooms / "observe/connection_metrics.py").read_text(encoding="utf-8")
    methods = ours[ours.index("def connection_opened") :]
    source = methods + "".join(path.read_text(encoding="utf-8") for path in others)
    for info in TABLE:
        ends = [f"_{value}" for value in info.values] if info.layout == "fields" else [""]
        for end in ends:
            for name in FED_AS.get(info.name, (info.name + end,)):
                used = re.search(rf"\.{name}\b", source)
                assert used, f"{name} is never fed"


def test_names_are_unique_and_told() -> None:
    assert len({info.name for info in TABLE}) == len(TABLE)
    for info in TABLE:
        assert info.help.endswith(".")
        assert not info.name.endswith("_total")


@pytest.mark.parametrize("info", TABLE, ids=lambda info: info.name)
def test_every_line_can_be_read(info: MetricInfo) -> None:
    metrics = Metrics()
    if info.kind == "histogram":
        found = list(histograms(metrics, info))
        assert found or info.layout == "dict"
        assert all(isinstance(histogram, Histogram) for _, histogram in found)
    else:
        for values, number in numbers(metrics, info):
            assert len(values) == len(info.labels)
            assert number == 0


def test_lists_are_labelled_by_value_or_by_code() -> None:
    metrics = Metrics()
    metrics.publishes_received += 7
    metrics.pubacks_received += 8
    metrics.control_packets_received[1] += 9
    metrics.connack_sent[0x86] += 2
    metrics.pubacks_sent += 2
    metrics.control_packets_sent[4] += 1
    metrics.control_packets_sent[2] += 3
    metrics.messages_delivered_0 += 1
    metrics.messages_delivered_1 += 10
    metrics.messages_delivered_2 += 100
    by_name = {info.name: info for info in TABLE}
    received = [line for line in numbers(metrics, by_name["packets_received"]) if line[1]]
    assert received == [(("connect",), 9), (("publish",), 7), (("puback",), 8)]
    sent = [line for line in numbers(metrics, by_name["packets_sent"]) if line[1]]
    assert sent == [(("connack",), 3), (("publish",), 111), (("puback",), 3)]
    assert metrics.messages_delivered == 111
    assert list(numbers(metrics, by_name["connack_sent"])) == [(("0x86",), 2)]


def test_page_is_current() -> None:
    assert PAGE.read_text() == reference(), "write perdure.observe.metric_table.reference() there"


def test_every_metric_is_on_the_page() -> None:
    page = reference()
    for info in TABLE:
        total = "_total" if info.kind == "counter" else ""
        assert f"| `perdure_{info.name}{total}` |" in page
    assert "| `perdure_messages_dropped_total` | counter | `reason` = expired, " in page
