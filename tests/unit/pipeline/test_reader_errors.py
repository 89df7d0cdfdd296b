"""A damaged table file ends each job that reads it with its own exit code, the file and a way out,
whatever read it in between."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.cli.exit_codes import ExitCode
from perdure.cli.main import run
from perdure.errors import StorageCorrupt
from perdure.storage.rocksdb import RocksDatabase
from tests.unit.pipeline.logs import START, append, open_log

pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")
pytest.importorskip("pyiceberg")
import duckdb
import pyarrow as pa

from perdure.pipeline.jobs.archive_files import remade
from perdure.pipeline.reader_errors import ReaderErrors
from perdure.pipeline.tables import parse_table

pytestmark = pytest.mark.filterwarnings("default")

SCHEMA = pa.schema({"number": pa.int64()})


def damaged(directory: Path, database: RocksDatabase) -> str:
    """The name of a table file that has messages and cannot be read in its middle."""
    payloads = [b"%064x" % (number * 2_654_435_761) for number in range(5_000)]
    append(database, [f"t/{number % 9}" for number in range(5_000)], at=START, payloads=payloads)
    database.close()
    open_log(directory).close()  # what was in the write-ahead log is in a table now
    file = max(directory.glob("*.sst"), key=lambda each: each.stat().st_size)
    data = bytearray(file.read_bytes())
    middle = len(data) // 2
    data[middle] ^= 0xFF
    file.write_bytes(data)
    return file.name


@pytest.mark.parametrize(
    "command",
    [
        ["pipeline", "stats"],
        ["pipeline", "learn"],
        ["pipeline", "audit"],
        ["sql", "select count(distinct payload) from log"],
    ],
)
def test_a_damaged_table_is_told(
    command: list[str],
    database: RocksDatabase,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = damaged(tmp_path / "db", database)
    assert run([*command, "--data", str(tmp_path / "db")]) == ExitCode.DATA
    told = capsys.readouterr()
    assert not told.out
    assert name in told.err
    assert "perdure storage repair" in told.err


@pytest.mark.parametrize("damage", ["cut", "pages"])
@pytest.mark.parametrize("table", ["log", "d"])
def test_a_damaged_file_of_an_archive_is_told(
    table: str,
    damage: str,
    database: RocksDatabase,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It was a wrong query (64), and a traceback in Spark."""
    payloads = [b"%064x" % (number * 2_654_435_761) for number in range(5_000)]
    append(database, ["d/1"] * 5_000, at=START, payloads=payloads)
    database.rotate(START + 3_600_000_000)
    where = ["--data", str(tmp_path / "db"), "--to", str(tmp_path / "to")]
    table_option = ["--table", "d=d/{device}"]
    assert run(["pipeline", "archive", *where, *table_option, "--once"]) == ExitCode.OK
    database.drop_generation(1)
    (file,) = (tmp_path / "to").rglob("*.parquet")
    data = bytearray(file.read_bytes())
    if damage == "cut":
        data = data[: len(data) // 2]
    else:
        data[4 : len(data) // 2] = bytes(len(data) // 2 - 4)
    file.write_bytes(data)
    capsys.readouterr()
    query = f"select count(distinct payload), max(topic) from {table}"
    assert run(["sql", query, *where]) == ExitCode.DATA
    told = capsys.readouterr()
    assert not told.out
    if damage == "cut" or table == "log":
        assert f"{file} is damaged" in told.err
        assert "from a copy of the archive" in told.err
    else:
        assert "table d cannot be read" in told.err
    # Whoever puts files together tells it in the same way.
    with pytest.raises(StorageCorrupt, match="is damaged"):
        list(remade(str(file), parse_table("d=d/{device}"), {}, str(tmp_path)))


def test_an_error_is_told_once() -> None:
    def broken() -> Iterator[object]:
        yield pa.record_batch({"number": [1]}, schema=SCHEMA)
        raise StorageCorrupt("here", hint="there")

    errors = ReaderErrors()
    with duckdb.connect() as connection:
        reader = pa.RecordBatchReader.from_batches(SCHEMA, broken())
        connection.register("rows", errors.kept(reader))
        with pytest.raises(StorageCorrupt) as raised, errors.told():
            connection.execute("create table kept as select * from rows")
        assert raised.value.hint == "there"
        with pytest.raises(duckdb.Error), errors.told():
            connection.execute("select nothing")
