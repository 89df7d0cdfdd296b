"""Tables and the page of a comparison of stores."""

from __future__ import annotations

from perdure.storebench import report
from tests.unit.storebench.fakes import comparison


def test_rows() -> None:
    rows = list(report.row_fields(comparison()))
    assert [set(row) for row in rows] == [set(report.ROW_FIELDS)] * len(rows)
    assert rows[2]["cycles_per_s"] == 500
    assert (rows[2]["low"], rows[2]["high"]) == (300, 600)
    assert rows[4]["server_cpu_us"] is None


def test_ratios() -> None:
    found = comparison()
    rows = {row["what"]: row for row in report.ratio_fields(found.ratios)}
    assert rows["compact against redis-async, single, durable"]["kept"] == "yes"
    missed = rows["compact against redis-async, batched, durable"]
    assert (missed["ratio"], missed["wanted"], missed["kept"]) == (2.0, ">= 2.5", "no")
    assert rows["memory of compact against tbmq, queued"]["wanted"] == "<= 0.333"
    assert rows["postgres-unbatched against redis-sync, single, durable"]["kept"] == ""


def test_memory() -> None:
    [compact, tbmq, postgres] = report.memory_fields(comparison())
    assert (compact["bytes_each"], compact["where"]) == (110, "memory of the server")
    assert tbmq["bytes_each"] == 440
    assert "disk" in postgres["where"]


def test_the_chart_stands_beside_the_seed() -> None:
    [(durability, bars)] = report.seed_bars(comparison())
    assert durability == "durable"
    assert [(bar.name, bar.value) for bar in bars[:3]] == [
        ("TBMQ: postgres-unbatched", 0.75),
        ("TBMQ: redis-sync", 1.0),
        ("TBMQ: redis-async", 1.5),
    ]
    assert {bar.name: bar.value for bar in bars[3:]}["redis-async"] == 5


def test_the_page() -> None:
    page = report.render(comparison())
    assert page.count("<svg") == 3
    assert "30k : 40k : 60k" in page
    assert "What it costs" in page
    for note in report.NOTES:
        assert note.split(".")[0].replace("'", "&#x27;") in page
