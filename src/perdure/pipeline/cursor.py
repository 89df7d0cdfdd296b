"""Tells the log how far a pipeline has read it, so that retention can wait. Knows no Spark."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import final

from perdure.clock import SystemClock
from perdure.errors import PerdureError
from perdure.pipeline.offsets import StreamPosition
from perdure.pipeline.options import ReadOptions
from perdure.storage.cursors import PipelineCursor, save_cursor
from perdure.storage.pipeline_runs import PipelineRun, RunState, save_report


def place_for(options: ReadOptions, place: str) -> str:
    """A place as the broker of a log knows it: a directory of another machine is another one."""
    return place if options.remote is None else f"{socket.gethostname()}:{place}"


@final
class CursorKeeper:
    """Keeps the cursor of one pipeline beside the log that it reads.

    Args:
        options: the log.
        name: of the pipeline, as ``retention.keep_for`` names it.
        place: what it writes to.
        warn: is told why a cursor could not be kept, once for each reason. The pipeline goes on:
            what it has read is safe, and retention waits longer than it needs to.
    """

    def __init__(
        self, options: ReadOptions, name: str, place: str, *, warn: Callable[[str], None]
    ) -> None:
        self._options = options
        self._name = name
        self._place = place_for(options, place)
        self._warn = warn
        self._warned = ""

    def __call__(self, position: StreamPosition) -> None:
        """Everything up to a position is safe."""
        cursor = PipelineCursor(
            self._name, self._place, position.database, position.offset, SystemClock().now_us()
        )
        try:
            if self._options.remote is None:
                save_cursor(Path(self._options.path), cursor)
            else:
                from perdure.pipeline.remote import send_cursor

                send_cursor(self._options.remote, cursor)
        except PerdureError as error:
            if error.message != self._warned:
                self._warned = error.message
                self._warn(f"retention cannot learn how far this has read: {error.message}")


@final
class RunKeeper:
    """Tells the log how the jobs of a pipeline are going.

    Args:
        options, name, place, warn: as of ``CursorKeeper``.
    """

    def __init__(
        self, options: ReadOptions, name: str, place: str, *, warn: Callable[[str], None]
    ) -> None:
        self._options = options
        self._name = name
        self._place = place_for(options, place)
        self._warn = warn
        self._warned = ""

    def __call__(self, state: RunState) -> None:
        """This is how they are going."""
        run = PipelineRun(self._name, self._place, state)
        try:
            if self._options.remote is None:
                save_report(Path(self._options.path), run)
            else:
                from perdure.pipeline.remote import send_run

                send_run(self._options.remote, run)
        except PerdureError as error:
            if error.message != self._warned:
                self._warned = error.message
                self._warn(f"the broker cannot show this pipeline: {error.message}")
