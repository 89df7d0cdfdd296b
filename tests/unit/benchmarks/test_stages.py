"""What is measured of one message, as far as it needs no profiler."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from benchmarks import stages
from benchmarks.stages import Found, Observer

from tests.unit.bench.samples import result


def test_without_a_profiler_the_last_record_stays(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    assert stages.run()
    assert "perf is not installed" in capsys.readouterr().out


def test_a_profiler_that_fails_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    perf = tmp_path / "perf"
    perf.write_text("#!/bin/sh\necho no permission >&2\nexit 1\n")
    perf.chmod(0o755)
    monkeypatch.setattr(stages, "_LEAD_S", 0.0)
    observer = Observer(str(perf), os.getpid(), tmp_path)
    observer.run()
    with pytest.raises(RuntimeError, match="perf: no permission"):
        observer.found(result().phases[0])


def test_what_a_message_took(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    perf = tmp_path / "perf"
    perf.write_text(
        "#!/bin/sh\n"
        'case "$1" in\n'
        "stat) sleep 0.05\n"
        "  echo '500,,raw_syscalls:sys_enter,1,100,,' >&2\n"
        "  echo '<not counted>,,syscalls:sys_enter_read,0,0,,' >&2;;\n"
        "script) printf 'python 7\\n\\t 7f00 memmove (/lib/libc.so.6)\\n\\n';;\n"
        "esac\n"
    )
    perf.chmod(0o755)
    monkeypatch.setattr(stages, "_LEAD_S", 0.0)
    observer = Observer(str(perf), os.getpid(), tmp_path)
    observer.run()
    observer._window = (1.0, 1.5)
    phase = result().phases[0]
    phase.series = [(0.9, 7.0, 7.0), (1.2, 1e6, 1e6), (1.4, 3e6, 3e6), (1.6, 7.0, 7.0)]
    found = observer.found(phase)
    assert found.per_s == 2e6
    assert found.calls == {"system calls": 500 / 1e6}
    assert found.share == {"libc: copies, memory": 1.0}
    assert found.cpu_us >= 0


def test_looking_begins_with_the_measured_phase() -> None:
    told: list[str] = []
    tell = stages._when_it_flows(
        lambda: told.append("look"), lambda what, done, detail: told.append(what)
    )
    for what in ("connect", "flow: warm up", "flow", "flow"):
        tell(what, 0.0, "")
    assert told == ["connect", "flow: warm up", "flow", "look", "flow"]


def test_the_middle_has_no_outliers() -> None:
    assert stages._middle([1000.0, *range(1, 20)]) == list(range(3, 19))


def test_the_lines_of_a_record() -> None:
    found = Found(
        per_s=10,
        cpu_us=50,
        loop_us=40,
        calls={"system calls": 4.0},
        read_bytes=1,
        written_bytes=2,
        disk_bytes=3,
        share={"RocksDB": 0.5, "other": 0.001},
    )
    lines = {check.what: check.found for check in stages._checks("sparse", found)}
    assert lines["sparse: system calls for a message"] == 4.0
    assert lines["sparse, stage: RocksDB"] == 25.0
    assert "sparse, stage: other" not in lines
