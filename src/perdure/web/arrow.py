"""Rows of the log as the body of a response: read in a thread, sent as fast as they are taken.

Invariant: a body that was begun is complete or the connection is cut; in each case the turn of
the read is given back and its view is let go.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final, final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from perdure.pipeline.log_index import BulkLog
from perdure.pipeline.options import check_where
from perdure.pipeline.protocol import ARROW_TYPE, RowQuery
from perdure.web.context import Context
from perdure.web.problems import ApiError

TURN_WAIT_S: Final = 20.0
"""How long a read waits for its turn before the client is told to come again."""


async def stream_rows(context: Context, query: RowQuery) -> Response:
    """The response to a query, once it is this read's turn.

    Raises:
        ApiError: too many reads, or the query cannot be answered.
        PerdureError: the log cannot be read.
    """
    try:
        async with asyncio.timeout(TURN_WAIT_S):
            await context.reads.acquire()
    except TimeoutError:
        raise ApiError("busy", "too many reads at once", hint="see http.reads_max") from None
    rows = _Rows(context, query)
    try:
        await context.in_thread(rows.open)
    except BaseException:
        rows.release()
        raise
    return ArrowResponse(context, rows)


@final
class _Rows:
    """A read: its view, its pieces, and its turn."""

    def __init__(self, context: Context, query: RowQuery) -> None:
        self._context = context
        self._query = query
        self._held = contextlib.ExitStack()
        self._pieces: Iterator[bytes] = iter(())
        self._has_turn = True

    def open(self) -> None:
        """Open the view and begin."""
        try:
            from perdure.pipeline.ipc import COMPRESSIONS, write_stream
            from perdure.pipeline.log_source import scan
            from perdure.pipeline.schema import arrow_schema
        except ImportError:
            raise ApiError(
                "arrow_missing",
                "this broker cannot write Arrow streams: pyarrow is not installed there",
                hint="pip install 'perdure[http,arrow]'",
            ) from None
        query = self._query
        if query.compression not in COMPRESSIONS:
            raise ApiError("bad_request", f"compression {query.compression!r} is not known")
        arrow_schema(query.columns)
        check_where(query.where)
        files = self._held.enter_context(self._context.views.use(query.view))
        check_database(files, query.database_id, Path(self._context.settings.data))
        for each in query.slices:
            files.layout(each.generation)
        batches = scan(files, query, bytes_max=self._context.settings.page_bytes)
        self._pieces = write_stream(batches, query.columns, compression=query.compression)

    def piece(self) -> bytes:
        """The next piece of the body; empty = no more."""
        return next(self._pieces, b"")

    def close(self) -> None:
        """Let go of the view; in a thread, because closing files takes time."""
        close = getattr(self._pieces, "close", None)
        if close is not None:
            close()
        self._held.close()

    def release(self) -> None:
        """Give the turn back; on the loop."""
        if self._has_turn:
            self._has_turn = False
            self._context.reads.release()


def check_database(files: BulkLog, database_id: str, data: Path) -> None:
    """Make sure that a client reads the database that it planned for.

    Raises:
        ApiError: it is another one.
    """
    if database_id and files.database_id != database_id:
        raise ApiError(
            "other_database",
            f"{data.name} holds another database than the one this query was planned for",
        )


@final
class ArrowResponse(Response):
    """Sends the pieces of a read."""

    media_type = ARROW_TYPE

    def __init__(self, context: Context, rows: _Rows) -> None:
        super().__init__(headers={"Cache-Control": "no-store"}, media_type=ARROW_TYPE)
        del self.headers["content-length"]
        self._context = context
        self._rows = rows

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until all is sent or the client has gone."""
        gone = asyncio.create_task(_gone(receive))
        try:
            start = {
                "type": "http.response.start",
                "status": self.status_code,
                "headers": self.raw_headers,
            }
            await send(start)
            while not gone.done():
                piece = await self._context.in_thread(self._rows.piece)
                async with asyncio.timeout(self._context.settings.send_timeout_s):
                    message = {"body": piece, "more_body": bool(piece)}
                    await send({"type": "http.response.body", **message})
                if not piece:
                    break
        finally:
            gone.cancel()
            await asyncio.shield(self._finish())

    async def _finish(self) -> None:
        try:
            await self._context.in_thread(self._rows.close)
        finally:
            self._rows.release()


async def _gone(receive: Receive) -> None:
    """Return when the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
