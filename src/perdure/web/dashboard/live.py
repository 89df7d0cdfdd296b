"""What is new, to every open page: one look at the broker for all of them, and to each the parts
that it keeps up to date.

The look is taken only while somebody watches, and its answer sent to all, to one after the other:
what parts of many pages take at the same moment, a publish waits for. A stream asks before each
message whether its watcher may still see this, and ends by itself after a while: the browser opens
another one, which is judged anew.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Sequence
from typing import Final, final

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from perdure.admin.problems import Refused
from perdure.admin.records.watch import AlarmPage, ListAlarms
from perdure.admin.rights import may
from perdure.admin.table import operation_of
from perdure.identity.proof import Proof
from perdure.web.context import Context
from perdure.web.dashboard.parts import Parts, PartTable
from perdure.web.principals import principal_of
from perdure.web.problems import ApiError
from perdure.web.routing import WebRoute

INTERVAL_S: Final = 2.0
STREAMS_MAX: Final = 64
"""Open at once in one process; each is a socket and a few hundred bytes every two seconds."""

STREAM_S_MAX: Final = 300.0

SLOTS: Final = 8
SLOT_S: Final = 0.2
"""Streams take turns: each has its messages so much behind the one before it."""

ALARMS: Final = operation_of(ListAlarms)
AWAY: Final = b"event: away\ndata: {}\n\n"


@final
class Hub:
    """Looks at the broker for all who watch.

    Args:
        context: of the process.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._watchers = 0
        self._slots = itertools.cycle(range(SLOTS))
        self._looking: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._event = b""
        self._alarms = b""

    async def watch(
        self, proof: Proof | None, parts: Parts | None = None, *, with_alarms: bool = False
    ) -> AsyncIterator[bytes]:
        """Events, until the watcher may not have them any more.

        Args:
            proof: of the watcher; None = one who cannot lose it.
            parts: of its page.
            with_alarms: the names of raised alarms are among them.
        """
        identity = self._context.identity
        ends_s = time.monotonic() + STREAM_S_MAX
        self._watchers += 1
        if self._looking is None:
            self._looking = asyncio.create_task(self._look())
        wait_s = next(self._slots) * SLOT_S
        try:
            yield b"retry: 2000\n\n"
            if self._event:
                yield await self._told(parts, with_alarms=with_alarms)
            while time.monotonic() < ends_s:
                news = self._news
                await news.wait()
                await asyncio.sleep(wait_s)
                if proof is not None and not identity.holds(proof):
                    yield b"event: ended\ndata: {}\n\n"
                    return
                yield await self._told(parts, with_alarms=with_alarms)
        finally:
            self._watchers -= 1
            if not self._watchers and self._looking is not None:
                self._looking.cancel()
                self._looking = None
                self._event = self._alarms = b""

    async def _told(self, parts: Parts | None, *, with_alarms: bool) -> bytes:
        """All that is new for a stream, at once: a browser draws it once."""
        told = self._event + (self._alarms if with_alarms else b"")
        if parts is None or told.startswith(AWAY):
            return told
        return told + await parts.news()

    def check_room(self) -> None:
        """Refuse one more if there are too many.

        Raises:
            ApiError: there are.
        """
        if self._watchers >= STREAMS_MAX:
            raise ApiError("busy", f"{STREAMS_MAX} pages are being kept up to date already")

    async def _look(self) -> None:
        while True:
            self._event, self._alarms = await self._take(), await self._take_alarms()
            news, self._news = self._news, asyncio.Event()
            news.set()
            await asyncio.sleep(INTERVAL_S)

    async def _take(self) -> bytes:
        try:
            found = await self._context.admin.ask("stats.overview", b"{}", None)
        except Refused as error:
            self._context.report("http.live_away", reason=error.message)
            return AWAY
        return b"event: overview\ndata: " + found + b"\n\n"

    async def _take_alarms(self) -> bytes:
        try:
            found = await self._context.admin.ask(ALARMS.name, b"{}", None)
        except Refused:
            return b""  # that the broker is away is told already
        names = [alarm.name for alarm in msgspec.json.decode(found, type=AlarmPage).items]
        return b"event: alarms\ndata: " + msgspec.json.encode(names) + b"\n\n"


def live_routes(context: Context, pages: Sequence[WebRoute]) -> list[WebRoute]:
    """The stream of what is new.

    Args:
        context: of the process.
        pages: whose parts it keeps up to date.
    """
    hub, table = Hub(context), PartTable(pages)

    async def live(request: Request) -> Response:
        hub.check_room()
        with_alarms = may(principal_of(request), ALARMS.right, ALARMS.name)
        return StreamingResponse(
            hub.watch(
                request.scope["state"].get("proof"),
                table.parts_of(request),
                with_alarms=with_alarms,
            ),
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
            media_type="text/event-stream",
        )

    return [
        WebRoute(
            method="GET",
            path="/ui/live",
            endpoint=live,
            operation="stats.overview",
            on_unauthorized="",
        )
    ]
