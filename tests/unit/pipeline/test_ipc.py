"""A stream is whole or it is an error, wherever it was cut."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyarrow")
import pyarrow as pa

from perdure.errors import StorageCorrupt, StorageUnavailable
from perdure.pipeline.ipc import (
    COMPRESSIONS,
    RemoteProblem,
    StreamCut,
    read_stream,
    write_stream,
)
from perdure.pipeline.schema import arrow_schema

COLUMNS = ("topic", "offset")


def batch(first: int, count: int) -> Any:
    rows = [{"topic": f"t/{n}", "offset": n} for n in range(first, first + count)]
    return pa.RecordBatch.from_pylist(rows, schema=arrow_schema(COLUMNS))


BATCHES = [(3, batch(0, 3)), (5, batch(3, 0)), (9, batch(5, 4))]


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_round_trip(compression: str) -> None:
    pieces = list(write_stream(BATCHES, COLUMNS, compression=compression))
    assert len(pieces) == 4
    assert all(pieces)
    found = list(read_stream(io.BytesIO(b"".join(pieces))))
    assert [(position, got.to_pylist()) for position, got in found] == [
        (position, sent.to_pylist()) for position, sent in BATCHES
    ]


def test_nothing_at_all_has_an_end_too() -> None:
    assert list(read_stream(io.BytesIO(b"".join(write_stream([], COLUMNS))))) == []


def test_cut_anywhere_it_is_not_taken_for_whole() -> None:
    pieces = list(write_stream(BATCHES, COLUMNS))
    body = b"".join(pieces)
    # Up to here the reader has seen the last batch, which says that it is the last.
    end = len(body) - len(pieces[-1])
    for size in [*range(0, end, 61), end, end + 8]:
        found: list[int] = []
        with pytest.raises(StreamCut):
            found.extend(position for position, _ in read_stream(io.BytesIO(body[:size])))
        assert found == [3, 5, 9][: len(found)]


def test_what_its_writer_met_is_told() -> None:
    def failing() -> Iterator[tuple[int, Any]]:
        yield BATCHES[0]
        raise StorageCorrupt("torn", hint="restore it")

    pieces: list[bytes] = []
    with pytest.raises(StorageCorrupt, match="torn"):
        # Whoever sends it learns of it, and does not end its answer as if all were there.
        pieces.extend(write_stream(failing(), COLUMNS))
    body = b"".join(pieces)
    found = read_stream(io.BytesIO(body))
    assert next(found)[0] == 3
    with pytest.raises(RemoteProblem) as caught:
        next(found)
    problem = caught.value.problem
    assert (problem.code, problem.message, problem.hint) == (
        "storage_corrupt",
        "torn",
        "restore it",
    )


def test_a_stream_of_others_is_not_ours() -> None:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, arrow_schema(COLUMNS)) as writer:
        writer.write_batch(batch(0, 1))
    sink.seek(0)
    with pytest.raises(StorageUnavailable, match="not one of a Perdure"):
        list(read_stream(sink))
    with pytest.raises(StreamCut):
        list(read_stream(io.BytesIO(b"<html>nothing of ours</html>")))
