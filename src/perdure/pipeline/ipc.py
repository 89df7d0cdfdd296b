"""Rows as an Arrow IPC stream, and back. Knows no sockets; ``pipeline.protocol`` says what is said.

Invariant: a reader is given all rows of a stream or an exception, never a part as if it were all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, final

import msgspec
import pyarrow as pa

from perdure.errors import PerdureError, StorageUnavailable
from perdure.pipeline.protocol import END_KEY, ERROR_KEY, POSITION_KEY, Problem, problem_of
from perdure.pipeline.schema import arrow_schema

COMPRESSIONS = ("", "lz4", "zstd")


@final
class StreamCut(Exception):
    """A stream ended before its end; what came until then is good."""


@final
class _Chunks:
    """A file that keeps what is written until it is taken."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> int:
        """Keep bytes; Arrow may use its buffer again."""
        self._parts.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        """Nothing to do."""

    def take(self) -> bytes:
        """What was written since the last time."""
        taken = b"".join(self._parts)
        self._parts.clear()
        return taken


def write_stream(
    batches: Iterable[tuple[int, Any]], columns: Sequence[str], *, compression: str = ""
) -> Iterator[bytes]:
    """An Arrow IPC stream, in pieces: one for each batch, the first with the head, and the end.

    Args:
        batches: record batches, each with the position behind it. An error of ours that they
            raise is told in the stream, for a reader of ours to raise it again, and then raised
            here: whoever sends the stream must cut it off, because others only see its end.
        columns: of the batches.
        compression: one of ``COMPRESSIONS``.
    """
    schema = arrow_schema(columns)
    empty = pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)
    chunks = _Chunks()
    options = pa.ipc.IpcWriteOptions(compression=compression or None)
    with pa.ipc.new_stream(pa.PythonFile(chunks, mode="w"), schema, options=options) as writer:
        position = rows = 0
        try:
            for position, batch in batches:
                rows += batch.num_rows
                writer.write_batch(batch, custom_metadata={POSITION_KEY: b"%d" % position})
                yield chunks.take()
        except PerdureError as error:
            problem = problem_of(error.code, error.message, error.hint)
            failure = {ERROR_KEY: msgspec.json.encode(problem)}
            writer.write_batch(empty, custom_metadata=failure)
            yield chunks.take()
            raise
        last = {END_KEY: msgspec.json.encode({"position": position, "rows": rows})}
        writer.write_batch(empty, custom_metadata=last)
    yield chunks.take()


def read_stream(source: Any) -> Iterator[tuple[int, Any]]:
    """The batches of a stream, each with the position behind it.

    Args:
        source: a readable binary file.

    Raises:
        StreamCut: it ended before its end.
        RemoteProblem: its writer failed.
    """
    try:
        reader = pa.ipc.open_stream(source)
    except (pa.ArrowInvalid, OSError) as error:
        raise StreamCut(str(error)) from error
    while True:
        try:
            batch, metadata = reader.read_next_batch_with_custom_metadata()
        except StopIteration:
            raise StreamCut("the stream has no end") from None
        except (pa.ArrowInvalid, OSError) as error:
            raise StreamCut(str(error)) from error
        keys = dict(metadata or {})
        if END_KEY in keys:
            return
        if ERROR_KEY in keys:
            raise RemoteProblem(msgspec.json.decode(keys[ERROR_KEY], type=Problem))
        if POSITION_KEY not in keys:
            raise StorageUnavailable("the stream is not one of a Perdure broker")
        yield int(keys[POSITION_KEY]), batch


@final
class RemoteProblem(Exception):
    """The other side told what went wrong."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem
