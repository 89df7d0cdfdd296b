"""Parts of a page that its stream keeps up to date.

A page names them when it opens the stream: the path of each and how often it wants it. They are
made by the pages' own handlers, with the rights of whoever watches, and sent if they differ from
what was sent before: a question over HTTP for each would cost the broker's machine and the browser
several times what is in it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, final
from urllib.parse import unquote

import msgspec
from starlette.requests import Request

from perdure.errors import PerdureError
from perdure.web.admission import check_may_have
from perdure.web.dashboard.render import KEPT_STATE
from perdure.web.principals import principal_of
from perdure.web.problems import ApiError, as_problem
from perdure.web.routing import Found, RouteTable, WebRoute

PARTS_MAX: Final = 4
"""Of one page."""

PART_BYTES_MAX: Final = 4_096
"""Of the path and the query of one."""

EVERY_S: Final = ("2", "4", "10")
"""How often a page may want one, seconds."""

EARLY_S: Final = 0.5
"""A part is made with the event that comes next to its time, be it a little before it."""


@final
class Part:
    """One of them.

    Args:
        name: as the page has named it.
        every_s: how often it is wanted.
        found: its route.
        request: that asks for it, made of the stream's.
    """

    def __init__(self, name: str, every_s: float, found: Found, request: Request) -> None:
        self.name = name
        self.every_s = every_s
        self.found = found
        self.request = request
        self.due_s = 0.0
        self.sent: bytes = b""


@final
class Parts:
    """The parts of one stream.

    Args:
        parts: of its page.
        clock: monotonic, seconds.
    """

    def __init__(
        self, parts: Sequence[Part], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._parts = tuple(parts)
        self._clock = clock

    async def news(self) -> bytes:
        """Events of those that are due and differ from what was sent."""
        events = bytearray()
        for part in self._parts:
            now_s = self._clock()
            if now_s < part.due_s - EARLY_S:
                continue
            part.due_s = now_s + part.every_s
            event = await _made(part)
            if event != part.sent:
                part.sent = event
                events += event
        return bytes(events)


@final
class PartTable:
    """Finds the parts that a page names.

    Args:
        pages: the routes that may be parts: those of the pages.
    """

    def __init__(self, pages: Iterable[WebRoute]) -> None:
        self._table = RouteTable(each for each in pages if each.method == "GET")

    def parts_of(self, request: Request) -> Parts:
        """The parts that the request for a stream names.

        Raises:
            ApiError: one is none, or not for whoever asks.
        """
        named = request.query_params.getlist("part")
        if len(named) > PARTS_MAX:
            raise ApiError("bad_request", f"a page has {PARTS_MAX} parts at most")
        return Parts([self._part(request, name) for name in named])

    def _part(self, request: Request, name: str) -> Part:
        every, _, target = name.partition(":")
        if every not in EVERY_S or len(name.encode()) > PART_BYTES_MAX:
            raise ApiError("bad_request", f"a part is {'|'.join(EVERY_S)}:PATH")
        path, _, query = target.partition("?")
        found = self._table.find("GET", path.encode())
        if found is None or not path.startswith("/ui/"):
            raise ApiError("not_found", "there is no such part")
        check_may_have(principal_of(request), found.route)
        scope = request.scope
        headers = [each for each in scope["headers"] if each[0] == b"cookie"]
        asked = {
            **scope,
            "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "path_params": found.params,
            "headers": [*headers, (b"hx-request", b"true")],
            "state": {**scope["state"], KEPT_STATE: True},
        }
        return Part(name, float(every), found, Request(asked))


async def _made(part: Part) -> bytes:
    """The event of a part as it is now; a refusal is one, too."""
    told: dict[str, Any] = {"part": part.name}
    try:
        response = await part.found.route.endpoint(part.request)
        told["html"] = bytes(response.body).decode()
    except PerdureError as error:
        told["problem"] = as_problem(error)[1]
    return b"event: part\ndata: " + msgspec.json.encode(told) + b"\n\n"
