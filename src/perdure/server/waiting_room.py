"""Where a broker answers while it cannot start yet: ``/readyz`` says what it waits for.

The HTTP interface itself asks a broker that runs. Until there is one this stands on its address
(without TLS only, so that nobody is told over a plain connection what was meant for a secret one).
"""

from __future__ import annotations

import asyncio
from typing import Final, final

import msgspec

from perdure.config.schema import HttpConfig
from perdure.net.settings import split_bind
from perdure.observe.logs import get_logger
from perdure.pipeline.protocol import problem_of
from perdure.server.http_part import HTTP_PORT

log = get_logger("http")

REQUEST_TIMEOUT_S: Final = 5.0
CONNECTIONS_MAX: Final = 64


@final
class WaitingRoom:
    """A server of one answer; a context manager.

    Args:
        config: of the HTTP interface.

    Attributes:
        reason: what is waited for.
    """

    def __init__(self, config: HttpConfig) -> None:
        self._config = config
        self._server: asyncio.Server | None = None
        self._count = 0
        self.reason = "it starts"

    async def __aenter__(self) -> WaitingRoom:
        config = self._config
        if config.bind and not config.certificate:
            host, port = split_bind(config.bind, HTTP_PORT, path="http.bind")
            if port:
                try:
                    self._server = await asyncio.start_server(self._serve, host or None, port)
                except OSError as error:
                    # Whoever has it will be in the way of the interface, which says so.
                    log.warning("http.not_waiting", bind=config.bind, error=str(error))
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._count >= CONNECTIONS_MAX:
            writer.transport.abort()
            return
        self._count += 1
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
                path = head.split(b" ", 2)[1].split(b"?")[0]
                writer.write(self._answer(path.endswith(b"/livez")))
                await writer.drain()
        except (OSError, TimeoutError, IndexError, EOFError, asyncio.LimitOverrunError):
            pass  # nobody of ours asks so
        finally:
            self._count -= 1
            writer.close()

    def _answer(self, is_alive: bool) -> bytes:
        if is_alive:
            status, body = "200 OK", msgspec.json.encode({"status": "ok"})
        else:
            why = f"the broker does not start yet: {self.reason}"
            status = "503 Service Unavailable"
            body = msgspec.json.encode(problem_of("not_ready", why))
        head = (
            f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nCache-Control: no-store\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        return head.encode() + body
