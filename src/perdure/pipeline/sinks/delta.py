"""Tables in the Delta format, committed by deltalake without Java.

The position is Delta's own record of a writing application: its transaction version is the offset,
its name holds the database's id, and both are in the commit that adds the files.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, final

from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.transaction import AddAction

from perdure.clock import SystemClock
from perdure.errors import ConfigError
from perdure.pipeline.sinks.contract import DataFile, check_position


@final
class DeltaSink:
    """Delta tables below one directory.

    Args:
        root: the archive.
        database_id: whose log it holds.
    """

    def __init__(self, root: Path, database_id: str) -> None:
        self._root = root
        self._application = f"perdure-{database_id}"

    def begin(self, table: str, schema: Any) -> None:
        path = self._root / table
        if not DeltaTable.is_deltatable(str(path)):
            path.mkdir(parents=True, exist_ok=True)
            DeltaTable.create(str(path), schema=schema, name=table)
        found = [field.name for field in self._table(table).schema().fields]
        if found != schema.names:
            raise ConfigError(
                f"{path} has other columns", path="table", hint="give the table a new name"
            )

    def position(self, table: str) -> int:
        return self._table(table).transaction_version(self._application) or 0

    def data_directory(self, table: str) -> str:
        return str(self._root / table)

    def commit(
        self, table: str, files: Sequence[DataFile], *, expected: int, position: int
    ) -> None:
        # Delta refuses a commit if the application's version moved after the table was opened.
        opened = self._table(table)
        check_position(table, opened.transaction_version(self._application) or 0, expected)
        now_ms = SystemClock().now_us() // 1000
        actions = [
            AddAction(Path(file.path).name, file.size, {}, now_ms, True, _statistics(file))
            for file in files
        ]
        opened.create_write_transaction(
            actions,
            mode="append",
            schema=opened.schema(),
            commit_properties=CommitProperties(
                app_transactions=[Transaction(self._application, position)],
                custom_metadata={"perdure.commit": uuid.uuid4().hex},
            ),
        )

    def close(self) -> None:
        """Nothing is held: files that no commit took are not part of a table."""

    def _table(self, table: str) -> Any:
        return DeltaTable(str(self._root / table))


def _statistics(file: DataFile) -> str:
    return f'{{"numRecords": {file.rows}}}'
