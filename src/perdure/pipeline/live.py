"""How a streaming query is doing: its rate, and how far it is behind the log. Knows no Spark: a
query is whatever has ``isActive`` and ``lastProgress``.

How far a stream is behind is a time, not a number of messages: an offset is a moment in
microseconds, so that the last message of the log and the last one read tell it at once.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from perdure.errors import StorageCorrupt
from perdure.pipeline.offsets import StreamPosition, parse_position

POLL_S: Final = 0.5


class StreamState(msgspec.Struct, frozen=True):
    """A query after its last micro-batch.

    Attributes:
        batch: its number.
        rows: messages in it.
        rows_per_s: its rate.
        behind_s: from what it has read to the end of the log, as ``pipeline archive`` and
            ``pipeline status`` tell it; 0 = it has read everything; None = not known yet.
    """

    batch: int
    rows: int
    rows_per_s: float
    behind_s: float | None


def state_of(progress: Mapping[str, Any] | None) -> StreamState | None:
    """What ``query.lastProgress`` says; None = there was no micro-batch yet.

    Of several sources that read logs, the one that is farthest behind counts.
    """
    if progress is None:
        return None
    behind = [
        late
        for source in progress["sources"]
        if (late := _behind_s(source["endOffset"], source["latestOffset"])) is not None
    ]
    return StreamState(
        batch=progress["batchId"],
        rows=progress["numInputRows"] or 0,
        rows_per_s=progress["processedRowsPerSecond"] or 0.0,
        behind_s=max(behind, default=None),
    )


def _behind_s(end: object, latest: object) -> float | None:
    read, newest = _position(end), _position(latest)
    if read is None or newest is None:
        return None
    return max(0, newest.offset - read.offset) / 1_000_000


def _position(value: object) -> StreamPosition | None:
    """An offset as a listener tells it, or None if it is none of ours."""
    try:
        data = msgspec.json.decode(value) if isinstance(value, str | bytes) else value
        return parse_position(data) if isinstance(data, Mapping) else None
    except (ValueError, StorageCorrupt):
        return None


def describe(state: StreamState | None) -> str:
    """A state as a line."""
    if state is None:
        return "waiting for the first messages"
    behind = "" if state.behind_s is None else f", {_duration(state.behind_s)} behind"
    return f"batch {state.batch}: {state.rows:,} messages, {state.rows_per_s:,.0f}/s{behind}"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes / 60:.1f} h"


@contextlib.contextmanager
def watch(query: Any, label: str, *, show: bool | None = None) -> Iterator[None]:
    """Keep a line on the terminal that says how a query is doing.

    Args:
        query: a streaming query; wait for it inside.
        label: stands before it.
        show: None = if standard error is a terminal.
    """
    if not (sys.stderr.isatty() if show is None else show):
        yield
        return
    from rich.console import Console
    from rich.status import Status

    stop = threading.Event()
    with Status(label, console=Console(stderr=True)) as line:

        def follow() -> None:
            while not stop.wait(POLL_S) and query.isActive:
                line.update(f"{label}  {describe(state_of(query.lastProgress))}")

        watcher = threading.Thread(target=follow, name="stream-progress", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            stop.set()
            watcher.join()
