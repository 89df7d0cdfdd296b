"""The page stands alone and shows every run."""

from __future__ import annotations

from html.parser import HTMLParser

import msgspec

from perdure.bench.page import render
from tests.unit.bench.samples import result

VOID = {"meta", "line", "circle", "rect", "polyline", "path", "br"}


class Balance(HTMLParser):
    """Checks that what was opened is closed, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


def test_a_page_of_one_run() -> None:
    run = result()
    run.warnings = ["other processes were busy"]
    run.phases[0].extra = {"restart_s": 2.0}
    page = render([run], title="a <title>")
    balance = Balance()
    balance.feed(page)
    assert balance.open == []
    for told in ("a &lt;title&gt;", "PUBACK after fsync", "other processes were busy", "p99, ms",
                 "listened again", "lost 0", "3.00 s", "a cpu"):  # fmt: skip
        assert told in page
    assert page.count("<svg") == 5


def test_a_variation_has_its_name_alone() -> None:
    runs = [result(), result(name="perdure qos=2")]
    runs[1].settings = msgspec.structs.replace(runs[1].settings, qos=2)
    page = render(runs, title="t")
    assert "<h2>perdure qos=2</h2>" in page
    assert "<h2>perdure QoS 1</h2>" in page


def test_nothing_is_fetched_from_elsewhere() -> None:
    page = render([result()], title="t")
    assert "<script" not in page
    assert "http" not in page
    assert "src=" not in page


def test_rounds_of_a_comparison_are_one_bar_with_a_spread() -> None:
    runs = [
        result(name=name, done_per_s=rate)
        for name, rate in (("perdure", 900.0), ("peer", 300.0), ("perdure", 1100.0),
                           ("peer", 500.0), ("perdure", 1000.0), ("peer", 400.0))
    ]  # fmt: skip
    page = render(runs, title="t")
    operations = page[page.index("Operations per second") :].partition("</svg>")[0]
    assert operations.count("<rect") == 2
    assert operations.count('class="spread"') == 2
    assert "1,000/s" in operations
    assert "400/s" in operations
    assert "perdure, run 3" in page


def test_runs_are_named_by_what_differs() -> None:
    slow, fast = result(), result(done_per_s=5000.0)
    fast.settings = msgspec.structs.replace(
        fast.settings, version=5, qos=2, rate=5000.0, publishers=99, scenario="fanin", offline=7
    )
    page = render([slow, fast], title="t")
    assert "perdure fanin 5.0 QoS 2 open loop, 5000/s 99 publishers beside 7 offline" in page
    assert "perdure p2p 3.1.1 QoS 1 closed loop, window 16" in page


def test_records_without_points_have_no_curves() -> None:
    run = result()
    phase = run.phases[0]
    assert phase.ack is not None
    assert phase.delivery is not None
    phase.ack = msgspec.structs.replace(phase.ack, curve=[])
    phase.delivery = msgspec.structs.replace(phase.delivery, curve=[])
    phase.series = []
    page = render([run], title="t")
    assert "Latency by percentile" not in page
    assert "Throughput against latency" in page
