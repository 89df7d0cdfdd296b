"""SQL on log and archive gives what an independent count of the messages gives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perdure.cli.exit_codes import ExitCode
from perdure.cli.main import run
from perdure.storage.rocksdb import RocksDatabase
from tests.unit.pipeline.logs import SECOND, START, append

pytest.importorskip("pyarrow")
pytest.importorskip("pyiceberg")
pytest.importorskip("duckdb")
from perdure.pipeline.jobs.archive import Archive, Wanted, execute_here
from perdure.pipeline.lake.lake import Lake
from perdure.pipeline.log_index import opened
from perdure.pipeline.options import ReadOptions
from perdure.pipeline.schema import BY_NAME
from perdure.pipeline.sinks.opening import open_sink
from perdure.pipeline.sql import QueryError, SqlSession
from perdure.pipeline.tables import parse_table

pytestmark = pytest.mark.filterwarnings("default")


def ask(session: SqlSession, text: str) -> list[dict[str, Any]]:
    _, rows = session.query(text)
    return list(rows)


def test_tables_and_columns_can_be_asked_for(database: RocksDatabase, tmp_path: Path) -> None:
    append(database, ["d/1"], at=START)
    session = SqlSession(ReadOptions(str(tmp_path / "db")), None)
    assert ask(session, "show tables") == [{"name": "log"}]
    for text in ("describe log", "desc log", "describe select * from log"):
        assert [row["column_name"] for row in ask(session, text)] == list(BY_NAME)
    assert ask(session, "select 1 as one") == [{"one": 1}]
    assert ask(session, "select count(*) as n from log") == [{"n": 1}]
    with pytest.raises(QueryError, match="logg"):
        session.query("describe logg")


def test_only_columns_that_are_used_are_read(database: RocksDatabase, tmp_path: Path) -> None:
    written = append(database, [f"d/{n % 7}" for n in range(500)], at=START)
    session = SqlSession(ReadOptions(str(tmp_path / "db")), None)
    read: list[list[str]] = []
    plain = session._read_log

    def noted(columns: list[str]) -> None:
        read.append(columns)
        plain(columns)

    session._read_log = noted  # type: ignore[method-assign]
    cases = (
        ("select count(*) as n from log", ["offset"], [{"n": 500}]),
        ("select count(distinct topic) as n from log", ["topic"], [{"n": 7}]),
        (
            (
                'select a.topic from log a join log b on a."offset" = b."offset" '
                f"where b.client_id = 'client-1' and a.\"offset\" = {written[1].offset}"
            ),
            ["topic", "client_id", "offset"],
            [{"topic": "d/1"}],
        ),
        ("with x as (select * from log) select max(qos) as q from x", ["qos"], [{"q": 1}]),
    )
    for text, columns, expected in cases:
        assert ask(session, text) == expected
        assert sorted(read.pop()) == sorted(columns), text
    [whole] = ask(session, "from log limit 1")
    assert (whole["topic"], whole["payload"]) == ("d/0", b"0")
    session.close()


def test_archive_and_log_are_one(database: RocksDatabase, tmp_path: Path) -> None:
    to = tmp_path / "to"
    to.mkdir()
    lake = Lake(str(to))
    payloads = [b'{"temperature": %d}' % (n % 40) for n in range(300)]
    written = append(database, [f"d/{n % 7}/t" for n in range(300)], at=START, payloads=payloads)
    options = ReadOptions(str(tmp_path / "db"), catalog=str(to), lake=lake)
    with opened(options) as index:
        sink = open_sink(lake, index.database_id)
    specs = (parse_table("temperature=d/{device}/t"),)
    Archive(
        ReadOptions(str(tmp_path / "db")),
        sink,
        Wanted(specs, learns=False),
        directory=to,
        execute=execute_here,
    ).run_round()
    # Retention takes what is archived; the log goes on.
    database.rotate(START + 10 * SECOND)
    database.drop_generation(1)
    written += append(database, ["d/1/t"] * 9, at=START + 20 * SECOND)
    session = SqlSession(options, lake)
    assert session.tables == ["log", "temperature", "messages"]
    assert ask(session, "select count(*) as n from log") == [{"n": len(written)}]
    expected = sum(n % 40 for n in range(300) if n % 7 == 3)
    text = "select sum(temperature) as s, count(*) as n from temperature where device = '3'"
    assert ask(session, text) == [{"s": expected, "n": 43}]
    joined = 'select count(*) as n from log join temperature using ("offset")'
    assert ask(session, joined) == [{"n": 300}]
    session.close()


def test_the_command(
    database: RocksDatabase, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    append(database, ["a", "b", "b"], at=START)
    data = ["--data", str(tmp_path / "db")]
    query = "select topic, count(*) as n, min(published_at) as since from log group by 1 order by 1"
    assert run(["sql", query, *data, "--json"]) == ExitCode.OK
    since = "2023-11-14T22:13:20.000000Z"
    rows = json.loads(capsys.readouterr().out)
    assert [(row["topic"], row["n"]) for row in rows] == [("a", 1), ("b", 2)]
    assert rows[0]["since"].startswith(since[:19])
    assert run(["sql", "select nothing from log", *data]) == ExitCode.USAGE
    told = capsys.readouterr().err
    assert "nothing" in told
    assert "tables: log" in told
    assert run(["sql", "select 1; select 2", *data]) == ExitCode.USAGE
    assert run(["sql", "select topic from log", "-t", "a", *data, "--json"]) == ExitCode.OK
    assert {row["topic"] for row in json.loads(capsys.readouterr().out)} == {"a"}


def test_sums_are_numbers(
    database: RocksDatabase, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They were texts in JSON: DuckDB adds up in 128 bits."""
    append(database, ["a"] * 3, at=START)
    query = (
        "select sum(qos) as n, sum(octet_length(payload)) / 2.0 as half, 1.50::decimal(5,2) as d, "
        "sum(9223372036854775807 - qos) as large, sum(qos - 3) as below from log"
    )
    assert run(["sql", query, "--data", str(tmp_path / "db"), "--json"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out) == [
        {"n": 3, "half": 1.5, "d": 1.5, "large": "27670116110564327418", "below": -6}
    ]


def test_columns_of_one_name_and_moments_that_no_calendar_has(
    database: RocksDatabase, tmp_path: Path
) -> None:
    """The last of them was the value of all; the moment was an internal error."""
    append(database, ["a"], at=START)
    session = SqlSession(ReadOptions(str(tmp_path / "db")), None)
    assert ask(session, "select 1 as a, 2 as a, 3 as a_1, 4 as a") == [
        {"a": 1, "a_1": 2, "a_1_1": 3, "a_2": 4}
    ]
    assert ask(session, "select topic, qos as topic from log") == [{"topic": "a", "topic_1": 1}]
    for source in ("", " from log"):
        with pytest.raises(QueryError, match="cast such moments to text"):
            ask(session, f"select 'infinity'::timestamp as t{source}")
    session.close()


def test_what_neither_log_nor_archive_has(
    database: RocksDatabase, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The way out that was named was no option of the command."""
    where = ["--data", str(tmp_path / "db"), "--to", str(tmp_path / "to")]
    archive = ["pipeline", "archive", "--once", "--format", "parquet", *where]
    for number in range(3):
        append(database, ["a"], at=START + 2 * number * SECOND)
        if number == 0:
            assert run(archive) == ExitCode.OK
        database.rotate(START + (2 * number + 1) * SECOND)
    database.drop_generation(1)
    database.drop_generation(2)
    capsys.readouterr()
    query = ["sql", "select count(*) as n from log", *where, "--json"]
    assert run(query) == ExitCode.CONFIG
    assert "was dropped" in capsys.readouterr().err
    assert run([*query, "--missing", "skip"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out) == [{"n": 2}]


@pytest.mark.parametrize(
    "query",
    [
        "delete from log",
        "insert into log select * from log",
        "drop table log",
        "create table other as select topic from log",
        "create view other as select topic from log",
        "alter table log drop column topic",
        "begin",
    ],
)
def test_a_query_changes_nothing_and_says_so(
    database: RocksDatabase, tmp_path: Path, query: str
) -> None:
    """Copies were changed, and "20000 rows deleted" was the answer."""
    append(database, ["a"], at=START)
    session = SqlSession(ReadOptions(str(tmp_path / "db")), None)
    with pytest.raises(QueryError, match="changes nothing"):
        ask(session, query)
    assert ask(session, "from log select topic") == [{"topic": "a"}]
    assert ask(session, "pivot log on topic using count(*) group by qos")[0]["a"] == 1
    session.close()


@pytest.mark.parametrize(
    "query",
    [
        "select * from read_csv('{secret}')",
        "select * from read_text('{secret}')",
        "select * from '{secret}'",
        "select * from glob('{home}/*')",
        "copy (select topic from log) to '{home}/out.csv'",
        "export database '{home}/out'",
        "attach '{home}/out.db'",
        "set enable_external_access = true",
        "set temp_directory = '{home}/out'",
        "install httpfs",
        "explain select * from read_csv('{secret}')",
    ],
)
def test_a_query_sees_no_files(database: RocksDatabase, tmp_path: Path, query: str) -> None:
    append(database, ["a"], at=START)
    secret = tmp_path / "secret.csv"
    secret.write_text("word\nxyzzy\n")
    session = SqlSession(ReadOptions(str(tmp_path / "db")), None)
    before = set(tmp_path.iterdir())
    with pytest.raises(QueryError) as caught:
        ask(session, query.format(secret=secret, home=tmp_path))
    assert "xyzzy" not in str(caught.value)
    assert set(tmp_path.iterdir()) == before
    assert ask(session, "select topic from log") == [{"topic": "a"}]
    session.close()
