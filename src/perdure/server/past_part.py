"""The archive as what the log has dropped: pages of it for clients that ask for the past.

A process beside the broker reads it (``pipeline.past``): Arrow and catalogs take seconds and
hundreds of megabytes, and a store may hang. It is begun when the first page is asked for, and ends
when nobody has asked for a while. One page is read at a time; who waits for one stands in line
(``past_line``). An archive that is away, a process that dies and one that does not answer are one
thing here: the request goes to the end of the line, and after a pause the next one is tried, as
long as there is a client that waits.

Invariant: a page is answered once, to a client that is still there; what was given is known to the
broker alone, so that nothing is lost with this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, final

import msgspec

from perdure.config.schema import PipelineConfig, ReplayConfig
from perdure.errors import PerdureError, StorageUnavailable
from perdure.observe.logs import get_logger
from perdure.observe.metrics import Metrics
from perdure.pipeline.lake.lake import checked_place
from perdure.pipeline.past.wire import (
    LENGTH_BYTES,
    PageAnswer,
    PageRequest,
    PastSettings,
    answer_length,
    messages_of,
    parse_answer,
)
from perdure.server.child_process import RESTART_PAUSES_S, ChildProcess
from perdure.server.past_line import PastLine
from perdure.storage.contract import ReadResult
from perdure.storage.cursors import load_cursors
from perdure.topic.matching import covers

log = get_logger("archive")

HELD_WINDOWS: Final = 16
"""Full windows that the process holds rows for; of more filters each has a smaller one."""

STOP_TIMEOUT_S: Final = 1.0
"""It is ended at once, whatever it reads."""

LOOK_EVERY_S: Final = 1.0
"""How old may be what is known of the archive's progress: a generation is dropped for all sessions
one after the other."""

_LINE_BYTES_MAX: Final = 64 * 1024
_TOLD_MAX: Final = 1_000
"""Clients and filters of which it is remembered that something is missing for them."""


class _Waiting(msgspec.Struct, eq=False):
    """One that waits for a page.

    Attributes:
        filter, after_offset, until_offset: what is wanted.
        is_wanted: whether somebody waits still.
        page: what is waited for.
        since_s: since when, on the loop's clock.
    """

    filter: str
    after_offset: int
    until_offset: int
    is_wanted: Callable[[], bool]
    page: asyncio.Future[ReadResult | None]
    since_s: float


class _NoPage(Exception):
    """There is no page now."""

    def __init__(self, message: str, code: str, hint: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.hint = hint


@final
class PastPart:
    """Reads the archive of a broker's log; is its ``broker.core.Past``.

    Args:
        config: the section ``replay``.
        pipeline: says where the archive is, what of the log is in it, and who makes it.
        data: data directory, where that tells how far it is.
        database: identity of the log.
        metrics: counts the pages.
        command: what the process runs; for tests.
    """

    name: str = "archive"

    def __init__(
        self,
        config: ReplayConfig,
        pipeline: PipelineConfig,
        data: Path,
        *,
        database: Callable[[], str],
        metrics: Metrics,
        command: Sequence[str] = (sys.executable, "-P", "-m", "perdure.pipeline.past"),
    ) -> None:
        self._config = config
        self._tables = pipeline.tables
        self._archive = pipeline.archive
        self._place = checked_place(pipeline.tables.place)
        self._data = data
        self._database = database
        self._metrics = metrics
        self._command = tuple(command)
        self._line: PastLine[_Waiting] = PastLine()
        self._is_asked = asyncio.Event()
        self._asked: _Waiting | None = None
        self._child: ChildProcess | None = None
        self._server: asyncio.Task[None] | None = None
        self._number = 0
        self._failures = 0
        self._told: set[tuple[str, str, str]] = set()
        self._problem = ""
        self._reached = (0.0, 0)
        """When it was looked how far the archive is, and how far that was."""

    async def start(self) -> None:
        """Be ready for requests."""
        self._server = asyncio.create_task(self._serve(), name="archive")

    async def stop(self) -> None:
        """End the process; who waits gets nothing."""
        if self._server is not None:
            self._server.cancel()
            await asyncio.gather(self._server, return_exceptions=True)
            self._server = None
        for each in self._line.clear():
            _answer(each, None)
        self._count()
        await self._end_child()

    # -- what the broker asks --------------------------------------------------------------

    @property
    def is_full(self) -> bool:
        """See ``Past``."""
        return len(self._line) >= self._config.waiting_max

    @property
    def problem(self) -> str:
        """See ``Past``."""
        return self._problem

    @property
    def waiting_s(self) -> float:
        """See ``Past``."""
        oldest = self._asked
        since = [oldest.since_s] if oldest is not None else []
        since += [each.since_s for each in self._line.waiting()]
        return asyncio.get_running_loop().time() - min(since) if since else 0.0

    def has(self, topic_filter: str, until_offset: int, *, last_offset: int) -> bool:
        """See ``Past``. What the archive tells retention is safe, so it is known here, too."""
        topics = self._archive.topics
        if topics and not any(covers(wide, topic_filter) for wide in topics):
            return False
        now_s = asyncio.get_running_loop().time()
        looked_s, reached = self._reached
        if not looked_s or now_s - looked_s >= LOOK_EVERY_S:
            reached = self._look()
            self._reached = (now_s, reached)
        return until_offset <= reached <= last_offset

    def _look(self) -> int:
        """How far the archive is, as it has told retention."""
        try:
            cursors, _ = load_cursors(self._data)
        except StorageUnavailable:
            return 0
        told = [
            cursor.offset
            for cursor in cursors
            if cursor.name == self._archive.name
            # One that reads over HTTP has the name of its machine before it.
            and (cursor.place == self._place or cursor.place.endswith(f":{self._place}"))
            and cursor.database == self._database()
        ]
        return max(told, default=0)

    async def read(
        self,
        client_id: str,
        topic_filter: str,
        *,
        after_offset: int,
        until_offset: int,
        is_wanted: Callable[[], bool],
    ) -> ReadResult | None:
        """See ``Past``."""
        loop = asyncio.get_running_loop()
        waiting = _Waiting(
            topic_filter, after_offset, until_offset, is_wanted, loop.create_future(), loop.time()
        )
        if self._server is None:
            # The broker stops, and this client is about to be told.
            await asyncio.sleep(STOP_TIMEOUT_S)
            return None
        self._line.put(client_id, waiting)
        self._count()
        self._is_asked.set()
        return await waiting.page

    # -- serving ---------------------------------------------------------------------------

    async def _serve(self) -> None:
        while True:
            taken = self._line.take()
            if taken is None:
                await self._wait_for_requests()
                continue
            client_id, waiting = taken
            if not waiting.is_wanted():
                _answer(waiting, None)
                self._count()
                continue
            self._asked = waiting
            try:
                page = await self._page(client_id, waiting)
            except _NoPage as error:
                self._line.put(client_id, waiting)
                await self._failed(error)
            except Exception as error:  # noqa: BLE001 - the others in the line wait for this task
                self._line.put(client_id, waiting)
                await self._end_child()
                await self._failed(_NoPage(f"{type(error).__name__}: {error}", "unexpected"))
            except asyncio.CancelledError:
                _answer(waiting, None)
                raise
            else:
                self._succeeded()
                _answer(waiting, page)
            finally:
                self._asked = None
                self._count()

    async def _wait_for_requests(self) -> None:
        """Until there is one; the process ends if that takes long."""
        self._is_asked.clear()
        if len(self._line):
            return
        try:
            async with asyncio.timeout(self._config.idle_s if self._child is not None else None):
                await self._is_asked.wait()
        except TimeoutError:
            await self._end_child()

    async def _page(self, client_id: str, waiting: _Waiting) -> ReadResult:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        self._number += 1
        request = PageRequest(
            self._number,
            waiting.filter,
            waiting.after_offset,
            waiting.until_offset,
            self._config.page_messages,
            self._config.page_bytes,
        )
        answer = await self._ask(request)
        if answer.code:
            raise _NoPage(answer.error, answer.code, answer.hint)
        try:
            page = ReadResult(messages_of(answer), answer.through_offset)
        except PerdureError as error:
            raise _NoPage(error.message, error.code, error.hint) from error
        if not waiting.after_offset < page.through_offset <= waiting.until_offset:
            await self._end_child()
            raise _NoPage("the process has answered something else", "unexpected")
        if answer.missing:
            self._tell_missing(client_id, waiting, answer)
        metrics = self._metrics
        metrics.archive_pages += 1
        metrics.archive_messages += len(page.messages)
        metrics.archive_read_seconds.observe(round((loop.time() - begun) * 1_000_000))
        return page

    async def _ask(self, request: PageRequest) -> PageAnswer:
        timeout_s = self._config.answer_timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                child = self._child
                if child is None:
                    child = self._child = await self._begin_child()
                await child.tell(msgspec.json.encode(request))
                head = await child.stdout.readexactly(LENGTH_BYTES)
                answer = parse_answer(await child.stdout.readexactly(answer_length(head)))
        except TimeoutError:
            await self._end_child()
            raise _NoPage(f"no answer within {timeout_s} s", "storage_timeout") from None
        except asyncio.IncompleteReadError:
            code = await self._end_child()
            raise _NoPage(f"the process that reads it died ({code})", "unexpected") from None
        except (PerdureError, OSError) as error:
            await self._end_child()
            raise _NoPage(str(error), "unexpected") from error
        except asyncio.CancelledError:
            # An answer to nobody would be taken for that to the next request.
            await self._end_child()
            raise
        if answer.number != request.number:
            await self._end_child()
            raise _NoPage("the process has answered something else", "unexpected")
        return answer

    async def _begin_child(self) -> ChildProcess:
        config = self._config
        window_bytes = config.window_bytes
        settings = PastSettings(
            self._tables, self._database(), window_bytes, window_bytes * HELD_WINDOWS
        )
        child = await ChildProcess.begun(
            self._command, msgspec.json.encode(settings), limit=_LINE_BYTES_MAX
        )
        log.info("archive.reader_started", pid=child.pid, place=self._place)
        return child

    async def _end_child(self) -> int | None:
        child, self._child = self._child, None
        if child is None:
            return None
        await child.tell(b"stop")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await child.ended()
        return await child.close()

    # -- telling ---------------------------------------------------------------------------

    async def _failed(self, error: _NoPage) -> None:
        """Say that the archive is away, and wait a while."""
        self._metrics.archive_failures += 1
        text = str(error)
        if text != self._problem:
            self._problem = text
            log.error(
                "archive.away",
                place=self._place,
                error=text,
                code=error.code,
                hint=error.hint or "replays wait for it",
                waiting=len(self._line),
            )
        pause_s = RESTART_PAUSES_S[min(self._failures, len(RESTART_PAUSES_S) - 1)]
        self._failures += 1
        ends_s = asyncio.get_running_loop().time() + pause_s
        while (left_s := ends_s - asyncio.get_running_loop().time()) > 0:
            for each in self._line.drop(lambda each: not each.is_wanted()):
                _answer(each, None)
            self._asked = None
            self._count()
            if not len(self._line):
                return
            await asyncio.sleep(min(left_s, 1.0))

    def _succeeded(self) -> None:
        self._failures = 0
        if self._problem:
            self._problem = ""
            log.info("archive.back", place=self._place)

    def _tell_missing(self, client_id: str, waiting: _Waiting, answer: PageAnswer) -> None:
        told = (client_id, waiting.filter, answer.missing)
        if told in self._told:
            return
        if len(self._told) >= _TOLD_MAX:
            self._told.clear()
        self._told.add(told)
        log.warning(
            "archive.incomplete",
            client_id=client_id,
            filter=waiting.filter,
            after_offset=waiting.after_offset,
            reason=answer.missing,
        )

    def _count(self) -> None:
        self._metrics.archive_waiting = len(self._line) + (self._asked is not None)


def _answer(waiting: _Waiting, page: ReadResult | None) -> None:
    if not waiting.page.done():
        waiting.page.set_result(page)
