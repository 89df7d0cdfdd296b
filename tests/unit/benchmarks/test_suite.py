"""The suite makes comparisons from stated parts, and records them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from benchmarks import record, suite
from benchmarks.suite import Part, is_clean, told

from perdure.bench import compare
from perdure.bench.compare import Comparison
from perdure.bench.result import Totals
from perdure.bench.settings import Settings
from tests.unit.bench.samples import result


@pytest.mark.slow
@pytest.mark.sampled
def test_a_part_is_measured_and_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "DIRECTORY", tmp_path)
    settings = Settings(scenario="p2p", publishers=2, subscribers=2, duration_s=0.2, warmup_s=0.05)
    part = Part(settings=settings, variations=("qos=2",), rounds=1)
    assert suite.measure("small", part)
    (path,) = tmp_path.glob("*-small.json")
    found = msgspec.json.decode(path.read_bytes(), type=Comparison)
    assert [broker.name for broker in found.brokers] == ["perdure", "perdure qos=2"]
    (summary,) = tmp_path.glob("*-small.md")
    assert summary.read_text(encoding="utf-8") == compare.markdown(found)


def test_a_run_with_faults_is_not_clean() -> None:
    run = result()
    assert is_clean(run)
    for totals in (Totals(lost=1), Totals(repeated=1), Totals(out_of_order=1)):
        run.totals = totals
        assert not is_clean(run)


def test_progress_is_a_line_for_what_begins(capsys: pytest.CaptureFixture[str]) -> None:
    tell = told("perdure 1/2")
    for done in (0.0, 0.5):
        tell("connect", done, "")
    tell("flow", 0.0, "")
    assert capsys.readouterr().out == "  perdure 1/2: connect ...\n  perdure 1/2: flow ...\n"
