"""``/metrics`` over HTTP, in a thread of its own that holds little and works little.

It shares the interpreter with the broker, so it is bounded in all that others can make it do:
connections at once and for each second, bytes of a request, time from the first byte to the last.
A request is answered and the connection closed. The text is made at most once in ``cache_ms``: a
flood of scrapes costs what one does.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol, final

from perdure.observe.logs import get_logger
from perdure.observe.metrics_text import Text

log = get_logger("metrics")

REQUEST_BYTES_MAX: Final = 8_192
"""Request line and headers; Prometheus sends some hundred bytes."""

ACCEPT_BURST: Final = 8
ACCEPT_RETRY_S: Final = 0.05
STOP_TIMEOUT_S: Final = 5.0

TEXT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_PHRASES: Final = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    431: "Request Header Fields Too Large",
}

_SAID: Final = {
    400: "this is no HTTP request",
    401: "this needs a token: Authorization: Bearer TOKEN (see metrics.token_file)",
    404: "the metrics are at /metrics",
    405: "GET or HEAD",
    408: "the request did not come in time",
    431: "the head of the request is too long",
}


class Settings(Protocol):
    """What is used of ``config.schema.MetricsConfig``."""

    @property
    def connections_max(self) -> int:
        """Held at once."""
        ...

    @property
    def connect_rate(self) -> int:
        """Accepted in a second."""
        ...

    @property
    def timeout_s(self) -> int:
        """From accept to the last byte of the answer."""
        ...

    @property
    def cache_ms(self) -> int:
        """How long a text is given out."""
        ...


@final
class Exposition:
    """The metrics in the formats that are asked for; each is kept for a moment.

    Args:
        metrics: what is told.
        cache_ms: how long.
        clock: monotonic, seconds.
    """

    def __init__(
        self,
        metrics: Text,
        *,
        cache_ms: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._metrics = metrics
        self._cache_s = cache_ms / 1000
        self._clock = clock
        self._kept: dict[tuple[bool, bool], tuple[float, bytes]] = {}

    def text(self, *, is_open: bool, zipped: bool) -> bytes:
        """The text.

        Args:
            is_open: as OpenMetrics.
            zipped: with gzip.
        """
        key = (is_open, zipped)
        kept = self._kept.get(key)
        if kept is not None and self._clock() - kept[0] < self._cache_s:
            return kept[1]
        if zipped:
            made = gzip.compress(self.text(is_open=is_open, zipped=False), 1)
        else:
            made = "".join(self._metrics.families(is_open=is_open)).encode()
        self._kept[key] = self._clock(), made
        return made


@final
class MetricsServer:
    """Serves until ``close``.

    Args:
        sockets: bound and listening; it closes them.
        metrics: what is told.
        settings: see there.
        knows: whether an ``Authorization`` header may read; None = everybody may.
        count: is told the status of each answer, and of each connection that got none.
    """

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        metrics: Text,
        settings: Settings,
        *,
        knows: Callable[[str], bool] | None = None,
        count: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.settings = settings
        self.exposition = Exposition(metrics, cache_ms=settings.cache_ms)
        self.knows = knows
        self.count = count
        self.waiting: dict[_Scrape, None] = {}
        """Connections whose request is not there, the oldest first."""
        self.held: dict[_Scrape, None] = {}
        self._sockets = list(sockets)
        self._port = int(sockets[0].getsockname()[1])
        self._loop: asyncio.AbstractEventLoop = asyncio.SelectorEventLoop()
        self._budget = float(settings.connect_rate)
        self._filled_s = self._loop.time()
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port in use."""
        return self._port

    def close(self) -> None:
        """Stop serving and release the port."""
        with contextlib.suppress(RuntimeError):  # it is closed already
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(STOP_TIMEOUT_S)

    def _run(self) -> None:
        loop = self._loop
        asyncio.set_event_loop(loop)
        loop.set_exception_handler(_failed)
        for each in self._sockets:
            each.setblocking(False)
        self._watch()
        try:
            loop.run_forever()
        finally:
            for scrape in list(self.held):
                scrape.abort()
            for each in self._sockets:
                loop.remove_reader(each.fileno())
                each.close()
            # The transports close their sockets in a turn of the loop.
            loop.run_until_complete(asyncio.sleep(0))
            loop.close()

    def _watch(self) -> None:
        for each in self._sockets:
            self._loop.add_reader(each.fileno(), self._ready, each)

    def _rest(self, pause_s: float) -> None:
        """Leave what waits in the queue of the system."""
        for each in self._sockets:
            self._loop.remove_reader(each.fileno())
        self._loop.call_later(pause_s, self._watch)

    def _ready(self, listening: socket.socket) -> None:
        now_s = self._loop.time()
        rate = self.settings.connect_rate
        self._budget = min(rate, self._budget + (now_s - self._filled_s) * rate)
        self._filled_s = now_s
        for _ in range(ACCEPT_BURST):
            if self._budget < 1:
                self._rest(ACCEPT_RETRY_S)
                return
            try:
                accepted, _ = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionError:
                continue
            except OSError:
                self._rest(1.0)  # out of descriptors
                return
            self._budget -= 1
            self._admit(accepted)

    def _admit(self, accepted: socket.socket) -> None:
        if len(self.held) >= self.settings.connections_max:
            oldest = next(iter(self.waiting or self.held))
            oldest.drop("evicted")
        accepted.setblocking(False)
        scrape = _Scrape(self, self._loop)
        self.held[scrape] = self.waiting[scrape] = None
        task = self._loop.create_task(self._loop.connect_accepted_socket(lambda: scrape, accepted))
        scrape.opening = task

    def gone(self, scrape: _Scrape) -> None:
        """A connection has ended."""
        self.held.pop(scrape, None)
        self.waiting.pop(scrape, None)


@final
class _Scrape(asyncio.Protocol):
    """One connection: one request, one answer."""

    def __init__(self, server: MetricsServer, loop: asyncio.AbstractEventLoop) -> None:
        self.opening: asyncio.Task[object] | None = None
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._read = bytearray()
        self._answered = False
        self._deadline = loop.call_later(server.settings.timeout_s, self._late)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.cancel()
        self._server.gone(self)

    def data_received(self, data: bytes) -> None:
        if self._answered:
            return
        self._read += data[: REQUEST_BYTES_MAX + 1]
        end = self._read.find(b"\r\n\r\n")
        if end < 0 and len(self._read) <= REQUEST_BYTES_MAX:
            return
        if end < 0 or end > REQUEST_BYTES_MAX:
            self._answer(431)
            return
        self._request(self._read[:end].decode("latin-1").split("\r\n"))

    def abort(self) -> None:
        """End it at once."""
        if self._transport is not None:
            self._transport.abort()
        self._deadline.cancel()
        self._server.gone(self)

    def drop(self, why: str) -> None:
        """End it before its time."""
        self._server.count(why)
        self.abort()

    def _late(self) -> None:
        if self._read and not self._answered:
            self._answer(408)
        self.drop("timeout")

    def _request(self, lines: list[str]) -> None:
        method, _, rest = lines[0].partition(" ")
        target, _, version = rest.partition(" ")
        headers = {}
        for line in lines[1:]:
            name, colon, value = line.partition(":")
            if not colon:
                self._answer(400)
                return
            headers[name.lower()] = value.strip()
        if not version.startswith("HTTP/1."):
            self._answer(400)
        elif method not in ("GET", "HEAD"):
            self._answer(405)
        elif _path(target) != "/metrics":
            self._answer(404)
        elif self._server.knows is not None and not self._server.knows(
            headers.get("authorization", "")
        ):
            self._answer(401)
        else:
            self._answer(200, headers, has_body=method == "GET")

    def _answer(
        self, status: int, headers: dict[str, str] | None = None, *, has_body: bool = True
    ) -> None:
        server = self._server
        assert self._transport is not None
        self._answered = True
        self._read.clear()
        server.waiting.pop(self, None)
        server.count(str(status))
        extra = ""
        kind = "text/plain; charset=utf-8"
        if headers is None:
            body = f"{_SAID[status]}\n".encode()
            if status == 401:
                extra = 'www-authenticate: Bearer realm="perdure"\r\n'
            elif status == 405:
                extra = "allow: GET, HEAD\r\n"
            peer = self._transport.get_extra_info("peername")
            log.warning(
                "metrics.refused",
                address=peer[0] if peer else "",
                status=status,
                reason=_SAID[status],
            )
        else:
            is_open = "application/openmetrics-text" in headers.get("accept", "")
            zipped = "gzip" in headers.get("accept-encoding", "")
            body = server.exposition.text(is_open=is_open, zipped=zipped)
            kind = OPENMETRICS_TYPE if is_open else TEXT_TYPE
            if zipped:
                extra = "content-encoding: gzip\r\n"
        head = (
            f"HTTP/1.1 {status} {_PHRASES[status]}\r\nserver: perdure\r\ncontent-type: {kind}\r\n"
            f"{extra}content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self._transport.write(head.encode() + (body if has_body else b""))
        # The deadline runs until the last byte is taken.
        self._transport.close()


def _path(target: str) -> str:
    """The path of a target in origin or absolute form."""
    if not target.startswith("/"):
        scheme, separator, rest = target.partition("://")
        if separator and scheme.lower() in ("http", "https"):
            target = "/" + rest.partition("/")[2]
    return target.partition("?")[0]


def _failed(_loop: asyncio.AbstractEventLoop, about: dict[str, object]) -> None:
    """What nobody caught is a line, not a traceback."""
    log.error("metrics.failed", error=f"{about.get('message', '')}: {about.get('exception')!r}")
