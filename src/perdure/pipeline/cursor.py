"""Tells the log how far a pipeline has read it, so that retention can wait. Knows no Spark."""

from __future__ import annotations

import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import ClassVar, final

from perdure.clock import SystemClock
from perdure.errors import PerdureError
from perdure.pipeline.address import Remote
from perdure.pipeline.offsets import StreamPosition
from perdure.pipeline.options import ReadOptions
from perdure.storage.cursors import PipelineCursor, load_cursors, save_cursor
from perdure.storage.pipeline_runs import PipelineRun, RunState, save_report


def place_for(options: ReadOptions, place: str) -> str:
    """A place as the broker of a log knows it: a directory of another machine is another one."""
    return place if options.remote is None else f"{socket.gethostname()}:{place}"


class _Keeper:
    """Tells the log about one pipeline.

    Args:
        options: the log.
        name: of the pipeline, as ``retention.keep_for`` names it.
        place: what it writes to.
        warn: is told why the log could not be told, once for each reason. The pipeline goes on:
            what it has read is safe.
    """

    COMPLAINT: ClassVar[str]

    def __init__(
        self, options: ReadOptions, name: str, place: str, *, warn: Callable[[str], None]
    ) -> None:
        self._options = options
        self._name = name
        self._place = place_for(options, place)
        self._warn = warn
        self._warned = ""

    def _tell(self, save: Callable[[Path], None], send: Callable[[Remote], None]) -> None:
        """Keep something beside a log that is here, or send it to the broker that has the log."""
        try:
            if self._options.remote is None:
                save(Path(self._options.path))
            else:
                send(self._options.remote)
        except PerdureError as error:
            if error.message != self._warned:
                self._warned = error.message
                self._warn(f"{self.COMPLAINT}: {error.message}")


@final
class CursorKeeper(_Keeper):
    """Keeps the cursor of one pipeline beside the log that it reads; without it retention waits
    longer than it needs to. Arguments: see ``_Keeper``."""

    COMPLAINT = "retention cannot learn how far this has read"

    def __call__(self, position: StreamPosition) -> None:
        """Everything up to a position is safe."""
        from perdure.pipeline.remote import send_cursor

        cursor = PipelineCursor(
            self._name, self._place, position.database, position.offset, SystemClock().now_us()
        )
        self._tell(partial(save_cursor, cursor=cursor), partial(send_cursor, cursor=cursor))

    def told(self, database_id: str) -> int:
        """Up to which offset it was said to have a database; 0 = nothing was said.

        Raises:
            StorageUnavailable, ConfigError: the log cannot be asked.
        """
        from perdure.pipeline.remote import fetch_cursors

        remote = self._options.remote
        if remote is None:
            found, _ = load_cursors(Path(self._options.path))
        else:
            found = list(fetch_cursors(remote).items)
        own = (self._name, self._place, database_id)
        said = (each.offset for each in found if (each.name, each.place, each.database) == own)
        return next(said, 0)


@final
class RunKeeper(_Keeper):
    """Tells the log how the jobs of a pipeline are going. Arguments: see ``_Keeper``."""

    COMPLAINT = "the broker cannot show this pipeline"

    def __call__(self, state: RunState) -> None:
        """This is how they are going."""
        from perdure.pipeline.remote import send_run

        run = PipelineRun(self._name, self._place, state)
        self._tell(partial(save_report, run=run), partial(send_run, run=run))
