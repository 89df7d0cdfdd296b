"""``perdure pipeline``, with the tasks run in this process instead of Spark."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perdure.cli.exit_codes import ExitCode
from perdure.cli.main import run
from perdure.config.schema import RocksdbConfig
from perdure.storage.rocksdb import RocksDatabase, keys
from perdure.storage.rocksdb.engine import META, Engine
from perdure.topic.proposal import parse_proposal
from tests.unit.pipeline.logs import SECOND, START, append, open_log
from tests.unit.web.child import WebProcess

pytest.importorskip("pyspark")
pytest.importorskip("pyiceberg")
pytest.importorskip("deltalake")
from perdure.pipeline import session, spark_jobs
from perdure.pipeline.jobs import stats as stats_job
from perdure.pipeline.jobs.archive import execute_here
from perdure.pipeline.lake.stores import LOCAL
from perdure.pipeline.service.state import save_run
from perdure.storage.pipeline_runs import RunState

pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture
def database(tmp_path: Path) -> Iterator[RocksDatabase]:
    opened = open_log(tmp_path / "db")
    yield opened
    opened.close()


@pytest.fixture(autouse=True)
def spark(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """No Java: sessions that only count that they are stopped."""
    stopped: list[str] = []

    def build(**options: Any) -> SimpleNamespace:
        return SimpleNamespace(stop=lambda: stopped.append(options["app"]))

    monkeypatch.setattr(session, "build", build)
    monkeypatch.setattr(spark_jobs, "SparkExecute", lambda _: execute_here)
    return stopped


@pytest.mark.parametrize("kind", ["iceberg", "delta", "parquet"])
def test_archive_once(
    kind: str,
    database: RocksDatabase,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    spark: list[str],
) -> None:
    append(database, ["d/1/t", "d/2/t", "x"], at=START)
    command = [
        *("pipeline", "archive", "--data", str(tmp_path / "db"), "--to", str(tmp_path / "to")),
        *("--once", "--json", "--format", kind, "--table", "devices=d/{device}/t"),
    ]
    assert run(command) == ExitCode.OK
    told = capsys.readouterr()
    assert "archived 3 messages in 2 files" in told.err
    assert "new columns: devices.value" in told.err
    record = json.loads(told.out)
    assert (record["rows"], record["tables"]) == (3, ["devices", "messages"])
    written = append(database, ["x"], at=START + SECOND)
    assert run(command) == ExitCode.OK
    record = json.loads(capsys.readouterr().out)
    assert record["rows"] == 1
    assert record["through_offset"] == written[0].offset
    assert run(command) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["rows"] == 0
    assert not spark


def test_archive_again_and_again(
    database: RocksDatabase,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    spark: list[str],
) -> None:
    from perdure.cli import pipeline_archive

    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise KeyboardInterrupt
        append(database, ["x"], at=START + len(pauses) * SECOND)

    monkeypatch.setattr(pipeline_archive.time, "sleep", sleep)
    command = ["pipeline", "archive", "--data", str(tmp_path / "db"), "--every", "90s"]
    command += ["--to", str(tmp_path / "to"), "--format", "parquet", "--master", "local[2]"]
    assert run(command) == ExitCode.INTERRUPTED
    assert pauses == [90, 90, 90]
    assert capsys.readouterr().err.count("archived 1 messages") == 2
    assert spark == ["perdure-archive"]
    assert len(list((tmp_path / "to").glob("messages/offsets-*/*.parquet"))) == 2
    assert not list((tmp_path / "to").glob("messages/.staging-*"))


def test_what_was_dropped_is_told(
    database: RocksDatabase, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, to = str(tmp_path / "db"), str(tmp_path / "to")
    command = ["pipeline", "archive", "--data", data, "--to", to, "--format", "parquet"]
    command += ["--once", "--json", "--name", "lake"]
    status = ["pipeline", "status", "--data", data, "--json"]
    assert run(status) == ExitCode.OK
    assert json.loads(capsys.readouterr().out) == []
    append(database, ["x"], at=START)
    assert run(command) == ExitCode.OK
    record = json.loads(capsys.readouterr().out)
    assert (record["behind_s"], record["gaps"]) == (0, [])
    append(database, ["x"], at=START + SECOND)
    database.rotate(START + 2 * SECOND)
    append(database, ["x"], at=START + 3 * SECOND)
    assert run(status) == ExitCode.OK
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["name"], row["place"], row["offset"]) == ("lake", to, START)
    assert (row["behind_s"], row["gaps"]) == (3, 0)
    database.drop_generation(1)
    assert run(command) == ExitCode.DATA
    told = capsys.readouterr()
    assert told.out == ""
    assert "were dropped" in told.err
    assert "--on-data-loss skip" in told.err
    assert run([*command, "--on-data-loss", "skip"]) == ExitCode.DATA
    told = capsys.readouterr()
    record = json.loads(told.out)
    since = database.generations()[0].since_offset
    assert (record["rows"], record["behind_s"]) == (1, 0)
    assert record["gaps"] == [{"after_offset": START, "until_offset": since - 1}]
    assert "warning: messages after 2023-11-14T22:13:20.000000Z" in told.err
    assert "retention.keep_for" in told.err
    # It was told once; what is known to be missing fails no later run.
    assert run(command) == ExitCode.OK
    capsys.readouterr()
    assert run(status) == ExitCode.OK
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["behind_s"], row["gaps"]) == (0, 1)
    assert run([*status, "--forget", "lake", "--place", "elsewhere"]) == ExitCode.NOT_FOUND
    assert run([*status, "--forget", "lake"]) == ExitCode.OK
    assert run([*status, "--forget", "lake"]) == ExitCode.NOT_FOUND
    assert run([*status, "--place", "x"]) == ExitCode.USAGE


def test_status_says_nothing_of_what_is_not_known(
    database: RocksDatabase, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It said -0.000001 seconds."""
    to = tmp_path / "to"
    to.mkdir()
    command = ["pipeline", "status", "--data", str(tmp_path / "db")]
    command += ["--set", f"pipeline.tables.place={to}", "--set", "pipeline.tables.format=parquet"]
    for state, messages, seconds in (
        (RunState(holder="h"), None, None),
        (RunState(holder="h", behind_us=2_500_000, behind_messages=7), "7", 2.5),
    ):
        save_run(str(to), LOCAL, state)
        assert run(command) == ExitCode.OK
        told = dict(
            line.split("\t", 1) for line in capsys.readouterr().out.splitlines() if "\t" in line
        )
        assert told["behind_messages"] == (messages or "")
        assert told["behind_s"] == ("" if seconds is None else str(seconds))


def test_status_says_that_it_may_not_list_the_cursors(
    database: RocksDatabase,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    append(database, ["x"], at=START)
    home = tmp_path / "db" / "pipelines"
    home.mkdir()
    plain = Path.iterdir

    def refused(path: Path) -> Iterator[Path]:
        if path == home:
            raise PermissionError(errno.EACCES, "Permission denied")
        return plain(path)

    monkeypatch.setattr(Path, "iterdir", refused)
    assert run(["pipeline", "status", "--data", str(tmp_path / "db"), "--json"]) == ExitCode.OK
    told = capsys.readouterr()
    assert json.loads(told.out) == []
    assert f"warning: {home} cannot be listed (Permission denied)" in told.err
    assert told.err.count("\n") == 1


def test_a_cursor_that_cannot_be_kept_is_a_warning(
    database: RocksDatabase, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "db" / "pipelines").write_text("in the way")
    append(database, ["x"], at=START)
    command = ["pipeline", "archive", "--data", str(tmp_path / "db"), "--to", str(tmp_path / "to")]
    assert run([*command, "--once", "--json", "--format", "parquet"]) == ExitCode.OK
    told = capsys.readouterr()
    assert json.loads(told.out)["rows"] == 1
    assert told.err.count("warning: retention cannot learn how far") == 1


@pytest.mark.parametrize("kind", ["iceberg", "delta", "parquet"])
def test_maintain(
    kind: str, database: RocksDatabase, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = ["pipeline", "archive", "--data", str(tmp_path / "db"), "--to", str(tmp_path / "to")]
    for number in range(3):
        append(database, ["x"], at=START + number * SECOND)
        assert run([*archive, "--once", "--json", "--format", kind]) == ExitCode.OK
    capsys.readouterr()
    command = ["pipeline", "maintain", "--to", str(tmp_path / "to"), "--json"]
    assert run([*command, "--keep", "0s", "--file-size", "1MiB"]) == ExitCode.OK
    told = capsys.readouterr()
    assert "messages: group 1 of 1" in told.err
    (row,) = json.loads(told.out)
    assert (row["table"], row["files_before"], row["files_after"], row["rows"]) == (
        *("messages", 3, 1),
        3,
    )
    assert run([*command, "--table", "nope"]) == ExitCode.NOT_FOUND
    assert "it has messages" in capsys.readouterr().err
    assert run([*command, "--keep", "long"]) == ExitCode.USAGE
    assert run(["pipeline", "maintain", "--to", str(tmp_path / "db")]) == ExitCode.NOT_FOUND
    assert "holds no archive" in capsys.readouterr().err


def test_tables_from_a_file_and_what_was_learned(
    database: RocksDatabase, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    append(database, [f"rooms/{n}/t" for n in range(5)] + ["a/1", "x"], at=START)
    tables = tmp_path / "tables.json"
    tables.write_text('{"tables": {"first": "a/{number}"}}')
    command = ["pipeline", "archive", "--data", str(tmp_path / "db"), "--once", "--json"]
    command += ["--format", "parquet"]
    assert run([*command, "--to", str(tmp_path / "to"), "--tables", str(tables)]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["tables"] == ["first", "rooms_t", "messages"]
    plain = [*command, "--to", str(tmp_path / "plain"), "--no-learned"]
    assert run(plain) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["tables"] == ["messages"]
    tables.write_text("[]")
    assert run([*plain, "--tables", str(tables)]) == ExitCode.CONFIG
    assert '{"tables": {"name": "pattern"}}' in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "code", "text"),
    [
        (["--data", "nowhere"], ExitCode.NOT_FOUND, "holds no database"),
        (["--topic", "a/#/b"], ExitCode.USAGE, "last level"),
        (["--from", "soon"], ExitCode.USAGE, "expected a time"),
        (["--every", "often"], ExitCode.USAGE, "--every"),
        (["--table", "nope"], ExitCode.CONFIG, "name=pattern"),
        (["--catalog", "x", "--format", "delta"], ExitCode.USAGE, "--catalog is for"),
        (["--catalog", "no-such-catalog"], ExitCode.CONFIG, "no-such-catalog"),
        (["--to", "s3://bucket/archive"], ExitCode.USAGE, "need a catalog"),
        (["--to", "db/archive"], ExitCode.USAGE, "inside the data directory"),
        (["--name", "A/b"], ExitCode.USAGE, "no name of a pipeline"),
    ],
)
def test_bad_input_is_one_line_and_a_code(
    options: list[str],
    code: ExitCode,
    text: str,
    database: RocksDatabase,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["pipeline", "archive", "--data", str(tmp_path / "db"), "--to", str(tmp_path / "to")]
    assert run([*command, "--once", *options]) == code
    told = capsys.readouterr()
    assert text in told.err
    assert "Traceback" not in told.err


def test_learn(
    database: RocksDatabase,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    spark: list[str],
) -> None:
    command = ["pipeline", "learn", "--data", str(tmp_path / "db")]
    assert run(command) == ExitCode.NOT_FOUND
    written = append(database, [f"rooms/{n}/t" for n in range(12)], at=START)
    asked: list[Any] = []

    def count_patterns(_: Any, options: Any) -> list[tuple[str, int]]:
        asked.append(options)
        return [(message.topic, 2) for message in written]

    monkeypatch.setattr(spark_jobs, "count_patterns", count_patterns)
    file = tmp_path / "proposal.json"
    assert run([*command, "--write", str(file), "--json", "-t", "rooms/#"]) == ExitCode.OK
    told = json.loads(capsys.readouterr().out)
    assert told["structures"] == [{"pattern": "rooms/+/t", "messages": 12, "streams_before": 4}]
    assert told["through_offset"] == written[-1].offset
    assert json.loads(file.read_bytes()) == told
    assert not spark
    assert run([*command, "--master", "local[2]"]) == ExitCode.OK
    assert asked[0].until_offset == written[-1].offset
    assert spark == ["perdure-learn"]
    lines = capsys.readouterr().out.splitlines()
    assert "streams_before\t4" in lines
    assert "rooms/+/t\t24\t4\t1" in lines
    database.rotate_to(parse_proposal(file.read_bytes()).structure, START + 100 * SECOND)
    append(database, ["rooms/x/t"], at=START + 200 * SECOND)
    assert [each.pattern for each in database.streams(2)] == ["rooms/+/t"]


def test_audit(database: RocksDatabase, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    append(database, ["a"] * 3, at=START, payloads=[b'{"n": %d}' % n for n in (1, 3, 4)])
    command = ["pipeline", "audit", "--data", str(tmp_path / "db")]
    assert run(command) == ExitCode.OK
    assert "3 messages (0 numbered), 0 sessions" in capsys.readouterr().err
    ledger = tmp_path / "ledger.jsonl"
    lines = [("client-0", 1), ("client-1", 2), ("client-1", 3)]
    ledger.write_text(
        "".join(
            json.dumps({"topic": "a", "publisher": publisher, "number": number}) + "\n"
            for publisher, number in lines
        )
    )
    against = [*command, "--stamp", "json:n", "--ledger", str(ledger)]
    assert run(against) == ExitCode.EXPECTATION
    told = capsys.readouterr()
    assert told.out.splitlines() == ["missing\ta\tnumber 2 of client-1 was acknowledged"]
    assert "3 acknowledged (0 older than the log): 1 findings" in told.err
    assert run([*against, "--json"]) == ExitCode.EXPECTATION
    record = json.loads(capsys.readouterr().out)
    assert (record["found"], record["stamped"]) == ({"missing": 1}, 3)
    assert run([*command, "--stamp", "xml"]) == ExitCode.USAGE
    assert run([*command, "--ledger", str(ledger)]) == ExitCode.USAGE
    assert "needs --stamp" in capsys.readouterr().err
    ledger.write_text("x")
    assert run([*command, "--stamp", "text", "--ledger", str(ledger)]) == ExitCode.CONFIG
    assert run([*command, "--catalog", str(tmp_path)]) == ExitCode.CONFIG


def test_stats(
    database: RocksDatabase,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    spark: list[str],
) -> None:
    append(database, [f"a/{number}" for number in range(12)] + ["b", "c"], at=START)
    report = tmp_path / "report.html"
    command = ["pipeline", "stats", "--data", str(tmp_path / "db"), "--top", "1"]
    filtered = [*command, "-t", "a/#", "-t", "b", "--from", "2023-11-01T00:00:00Z"]
    assert run([*filtered, "--html", str(report), "--json"]) == ExitCode.OK
    told = json.loads(capsys.readouterr().out)
    assert told["totals"]["messages"] == 13
    assert told["totals"]["first"] == "2023-11-14T22:13:20.000000Z"
    assert [row["structure"] for row in told["structures"]] == ["a/+"]
    assert "<svg" in report.read_text(encoding="utf-8")
    assert run([*command, "--set", "pipeline.master=none"]) == ExitCode.OK
    lines = capsys.readouterr().out.splitlines()
    assert "messages\t14" in lines
    assert "a/+\t12\t14\t3\t2023-11-14T22:13:20.011000Z" in lines
    assert "silent" not in lines
    assert not spark
    # Where Spark is named, and where there is nothing else.
    asked: list[Any] = []
    monkeypatch.setattr(spark_jobs, "read_log", lambda _, options, columns: options)
    found = stats_job.Statistics({"messages": 5}, [], [], [], [])
    monkeypatch.setattr(stats_job, "collect", lambda engine, top: asked.append(engine) or found)
    assert run([*command, "--master", "local[2]"]) == ExitCode.OK
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert run(command) == ExitCode.OK
    assert spark == ["perdure-stats"] * 2
    assert [type(each) for each in asked] == [spark_jobs.SparkEngine] * 2
    capsys.readouterr()
    assert run([*command, "--set", "pipeline.master=none"]) == ExitCode.USAGE
    assert "pip install 'perdure[sql]'" in capsys.readouterr().err


@pytest.fixture
def web(database: RocksDatabase, tmp_path: Path) -> Iterator[WebProcess]:
    pytest.importorskip("uvicorn")
    append(database, [f"rooms/{number}/t" for number in range(12)], at=START)
    with WebProcess(tmp_path / "db") as process:
        yield process


def remote(web: WebProcess, tmp_path: Path) -> list[str]:
    return ["--url", web.url, "--token-file", str(tmp_path / "tokens")]


def test_archive_over_http(
    web: WebProcess,
    database: RocksDatabase,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ["pipeline", "archive", *remote(web, tmp_path), "--to", str(tmp_path / "to")]
    command += ["--once", "--json", "--format", "parquet"]
    assert run(command) == ExitCode.OK
    record = json.loads(capsys.readouterr().out)
    # What the log has learned is known here too.
    assert (record["rows"], "rooms_t" in record["tables"]) == (12, True)
    append(database, ["rooms/99/t"], at=START + SECOND)
    # It goes on from the directory, because it is the same log.
    command = ["pipeline", "archive", "--data", str(tmp_path / "db"), *command[6:]]
    assert run(command) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["rows"] == 1


def test_learn_and_stats_over_http(
    web: WebProcess,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["pipeline", "learn", *remote(web, tmp_path), "--json"]) == ExitCode.OK
    (found,) = json.loads(capsys.readouterr().out)["structures"]
    assert (found["pattern"], found["messages"], found["streams_before"]) == ("rooms/+/t", 12, 4)
    assert run(["pipeline", "stats", *remote(web, tmp_path), "--json"]) == ExitCode.OK
    told = capsys.readouterr()
    assert json.loads(told.out)["totals"]["messages"] == 12
    assert json.loads(told.out)["slow"] is None
    assert "slow sessions: not over --url" in told.err


@pytest.mark.parametrize("name", ["archive", "learn", "stats", "audit"])
def test_bad_input_over_http_is_one_line_and_a_code(
    name: str,
    web: WebProcess,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    spark: list[str],
) -> None:
    def failed(*options: str) -> tuple[int, str]:
        command = ["pipeline", name, *options]
        code = run([*command, "--to", str(tmp_path / "to")] if name == "archive" else command)
        told = capsys.readouterr().err
        assert "Traceback" not in told
        # What was wrong, and under it what to do.
        assert told.count("\n") <= 2
        return code, told

    wrong = tmp_path / "wrong"
    wrong.write_text("x" * 40)
    both = ("--url", web.url, "--data", str(tmp_path / "db"))
    assert failed(*both)[0] == failed("--token-file", str(wrong))[0] == ExitCode.USAGE
    if name == "audit":
        code, told = failed("--url", web.url)
        assert (code, "run it where the data directory is" in told) == (ExitCode.USAGE, True)
        return
    code, told = failed("--url", web.url, "--token-file", str(wrong))
    assert (code, f"{web.url} refused the token" in told) == (ExitCode.NOT_PERMITTED, True)
    monkeypatch.delenv("PERDURE_TOKEN", raising=False)
    code, told = failed("--url", web.url)
    assert (code, "wants a token" in told) == (ExitCode.NOT_PERMITTED, True)
    code, told = failed("--url", "http://127.0.0.1:1")
    assert (code, "cannot reach http://127.0.0.1:1" in told) == (ExitCode.TEMPORARY, True)
    assert failed("--url", "localhost")[0] == ExitCode.USAGE
    assert failed("--url", web.url, "-t", "a/#/b")[0] == ExitCode.USAGE
    assert not spark  # None of this starts Spark.


def _damaged(path: Path, key: bytes, at: int, byte: int) -> None:
    """A database with one byte of one entry changed."""
    opened = open_log(path)
    append(opened, ["a"], at=START)
    opened.close()
    engine = Engine(path, RocksdbConfig())
    value = bytearray(engine.get(META, key) or b"")
    value[at] = byte
    engine.write([META, key, bytes(value)])
    engine.sync()
    engine.close()


@pytest.mark.parametrize("name", ["archive", "learn", "stats", "audit"])
def test_wrong_directories_are_told_before_spark_begins(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], spark: list[str]
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "junk").mkdir()
    (tmp_path / "junk" / "CURRENT").write_text("junk")
    # The layout in the header of the generation, and the version of the whole.
    _damaged(tmp_path / "layout", keys.generation_header(1), 3, 9)
    _damaged(tmp_path / "format", keys.FORMAT, 2, 9)
    bitmask = RocksDatabase.open(
        tmp_path / "bitmask", config=RocksdbConfig(layout="bitmask"), now_us=START
    )
    append(bitmask, ["a"], at=START)
    bitmask.close()
    for directory, code, text in (
        ("nowhere", ExitCode.NOT_FOUND, "holds no database"),
        ("empty", ExitCode.NOT_FOUND, "holds no database"),
        ("file", ExitCode.NOT_FOUND, "holds no database"),
        ("junk", ExitCode.DATA, "Corruption: CURRENT file"),
        ("layout", ExitCode.DATA, "generation 1 has layout 9"),
        ("format", ExitCode.DATA, "has format 9"),
        ("bitmask", ExitCode.DATA, "which is not read in bulk"),
    ):
        command = ["pipeline", name, "--data", str(tmp_path / directory)]
        if name == "archive":
            command += ["--to", str(tmp_path / "to"), "--once"]
        assert run(command) == code, directory
        told = capsys.readouterr().err
        assert text in told, directory
        assert str(tmp_path / directory) in told
        assert told.count("\n") <= 2
    assert not spark


@pytest.mark.parametrize(
    "options",
    [
        ["maintain", "--to", "file"],
        ["archive", "--once", "--to", "file"],
        ["stats", "--html", "nowhere/report.html"],
        ["learn", "--write", "nowhere/proposal.json"],
    ],
)
def test_what_cannot_be_written_is_told_before_spark_begins(
    options: list[str],
    database: RocksDatabase,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    spark: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    append(database, ["a"], at=START)
    data = [] if options[0] == "maintain" else ["--data", "db"]
    assert run(["pipeline", *options, *data]) == ExitCode.USAGE
    told = capsys.readouterr().err
    assert "Invalid value for" in told or "file is no directory" in told
    assert not spark
