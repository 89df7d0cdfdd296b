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
import duckdb
import pyarrow as pa

from perdure.pipeline.reader_errors import ReaderErrors

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
