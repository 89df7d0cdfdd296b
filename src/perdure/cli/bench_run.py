"""What ``perdure bench`` does once it knows what to measure: runs, comparisons, files."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, final

import click
import msgspec

from perdure.bench import compare, expectations, page
from perdure.bench.applied import AppliedProbe
from perdure.bench.compare import Comparison
from perdure.bench.contestants import Contestant, vary
from perdure.bench.errors import BenchError
from perdure.bench.expectations import Expectation
from perdure.bench.measure import measure
from perdure.bench.peers import PEERS
from perdure.bench.result import Broker, Result
from perdure.bench.settings import Settings
from perdure.bench.stopwatch import Progress
from perdure.bench.target import Target
from perdure.cli.bench_options import ReportOptions, TargetOptions
from perdure.cli.bench_screen import progress, show
from perdure.cli.exit_codes import CommandFailed, ExitCode
from perdure.cli.output import Output, error_line
from perdure.errors import UsageError

_NOT_PERDURE: Final = "replay"
"""The one scenario that only Perdure can run."""


@final
class ComparePlan(msgspec.Struct, frozen=True):
    """What ``perdure bench compare`` was told before the scenario.

    Attributes:
        names: brokers, Perdure first.
        variations: of Perdure, see ``bench.contestants``.
        keep: brokers go on from round to round.
        rounds: runs of each.
        name: of the record; empty = the scenario's.
        directory: of the record.
        program: the ``perdure`` to start; None = this one.
    """

    names: tuple[str, ...]
    variations: tuple[str, ...]
    keep: bool
    rounds: int
    name: str
    directory: Path
    program: str | None


def run_scenario(
    settings: Settings, *, where: TargetOptions, report: ReportOptions, out: Output
) -> int:
    """Measure once, or every broker of a comparison in turn; print, write, judge."""
    plan = click.get_current_context().find_object(ComparePlan)
    try:
        expected = expectations.parse(report.expect)
    except UsageError as error:
        raise click.UsageError(f"--expect: {error.message}; {error.hint}") from error
    try:
        if plan is not None:
            return _compare(plan, settings, where, report, expected, out)
        with progress(wanted=report.progress) as tell, _target(where) as (target, broker, data):
            result = measure(settings, target, broker=broker, directory=data, progress=tell)
    except BenchError as error:
        raise CommandFailed(error.message, ExitCode.UNAVAILABLE, hint=error.hint) from error
    verdicts = expectations.judge(expected, result)
    show(out, result, verdicts)
    if report.save is not None:
        write(report.save, msgspec.json.encode(result) + b"\n")
    if report.html is not None:
        write(
            report.html, page.render([result], title=f"perdure bench {settings.scenario}").encode()
        )
    return ExitCode.OK if all(verdict.is_met for verdict in verdicts) else ExitCode.EXPECTATION


def report_on(records: Sequence[Path], html: Path | None, out: Output) -> int:
    """Show saved runs again; the runs of a comparison's record are taken one by one."""
    results = [result for path in records for result in _read(path)]
    for result in results:
        show(out, result, ())
    if html is not None:
        write(html, page.render(results, title="perdure bench").encode())
    return ExitCode.OK


def write(path: Path, content: bytes) -> None:
    """Write a file that was asked for."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as error:
        raise CommandFailed(f"cannot write {path}: {error.strerror}", ExitCode.DATA) from error


def _compare(
    plan: ComparePlan,
    settings: Settings,
    where: TargetOptions,
    report: ReportOptions,
    expected: list[Expectation],
    out: Output,
) -> int:
    if where.start or where.pid or where.program:
        raise click.UsageError("compare starts the brokers itself: no --start, --pid or --program")
    peers, skipped = compare.available(plan.names, settings.version)
    if settings.scenario == _NOT_PERDURE:
        raise click.UsageError("only Perdure replays: there is nobody to compare with")
    contestants = [
        Contestant(peer, settings, program=plan.program if peer.name == "perdure" else None)
        for peer in peers
    ]
    try:
        contestants += [vary(text, settings, program=plan.program) for text in plan.variations]
    except UsageError as error:
        raise click.UsageError(f"--vary: {error.message}") from error
    for name, reason in skipped.items():
        error_line(f"{name} is skipped: {reason}")
    with ExitStack() as stack:
        tell = stack.enter_context(progress(wanted=report.progress))
        found = compare.compare(
            plan.name or settings.scenario,
            contestants,
            rounds=plan.rounds,
            keep=plan.keep,
            skipped=skipped,
            progress=lambda who: _prefixed(tell, who),
        )
    stem = f"{found.started_at[:10]}-{found.name}"
    summary = compare.markdown(found)
    write(plan.directory / f"{stem}.json", compare.record(found))
    write(plan.directory / f"{stem}.md", summary.encode())
    if report.html is not None:
        write(report.html, page.render(found.runs, title=found.name).encode())
    if out.is_json:
        out.record(msgspec.to_builtins(found))
    else:
        out.text(summary)
    # Expectations are about Perdure: the others are measured, not judged.
    ours = [run for run in found.runs if run.broker.name.split()[0] == "perdure"]
    missed = [
        verdict
        for run in ours
        for verdict in expectations.judge(expected, run)
        if not verdict.is_met
    ]
    for verdict in missed:
        error_line(f"expected {verdict.text}, found {verdict.found:g}")
    return ExitCode.EXPECTATION if missed else ExitCode.OK


def _prefixed(tell: Progress | None, who: str) -> Progress | None:
    if tell is None:
        return None

    def on_progress(what: str, done: float, detail: str) -> None:
        assert tell is not None
        tell(f"{who}: {what}", done, detail)

    return on_progress


@contextmanager
def _target(where: TargetOptions) -> Iterator[tuple[Target, Broker, Path]]:
    """The broker to measure; one that was started ends afterwards."""
    password = where.password_file.read_bytes().rstrip(b"\r\n") if where.password_file else None
    if not where.start:
        target = Target(
            where.host.strip("[]"),
            where.port,
            pid=where.pid,
            username=where.username,
            password=password,
            node_pids=where.node_pids,
            node_metrics=[AppliedProbe(each, where.metrics_token) for each in where.node_metrics],
        )
        yield target, Broker(name=f"{where.host}:{where.port}"), Path.cwd()
        return
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as directory:
        started = PEERS[where.start].prepare(Path(directory), program=where.program)
        started.process.start()
        try:
            target = Target("127.0.0.1", started.port, process=started.process)
            yield target, started.broker, Path(directory)
        finally:
            started.process.stop()


def _read(path: Path) -> list[Result]:
    """The runs in a file that ``--save`` or ``compare`` wrote."""
    content = path.read_bytes()
    try:
        return msgspec.json.decode(content, type=Comparison).runs
    except msgspec.ValidationError:
        pass
    except ValueError as error:
        raise CommandFailed(f"{path} is not a record: {error}", ExitCode.DATA) from error
    try:
        return [msgspec.json.decode(content, type=Result)]
    except msgspec.ValidationError as error:
        raise CommandFailed(f"{path} is not a record: {error}", ExitCode.DATA) from error
