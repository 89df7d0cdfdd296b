"""What a reader of ours raises while DuckDB reads it: DuckDB tells its text alone, as an error of
its own, and neither what to do about it nor which exit code it has."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, final

import pyarrow as pa

from perdure.errors import PerdureError


@final
class ReaderErrors:
    """Keeps the errors of readers until DuckDB has told of them."""

    def __init__(self) -> None:
        self._error: PerdureError | None = None

    def kept(self, reader: Any) -> Any:
        """An Arrow ``RecordBatchReader`` with the batches of another one, and its errors."""

        def batches() -> Iterator[Any]:
            try:
                yield from reader
            except PerdureError as error:
                self._error = error
                raise

        return pa.RecordBatchReader.from_batches(reader.schema, batches())

    @contextlib.contextmanager
    def told(self) -> Iterator[None]:
        """Where DuckDB reads.

        Raises:
            PerdureError: what a reader has raised, in place of what DuckDB makes of it.
        """
        try:
            yield
        except Exception:
            error, self._error = self._error, None
            if error is None:
                raise
            raise error from None
