"""Accepts the connections of a process, so that each is counted from its first moment.

uvicorn's own listening leaves a TLS handshake uncounted and without an end for a minute.
"""

from __future__ import annotations

import asyncio
import functools
import socket
import ssl
from collections.abc import Callable
from typing import Final, final

from perdure.web.connection import BoundedConnection
from perdure.web.gate import Gate

ACCEPT_BURST: Final = 64
"""Sockets accepted in one turn of the loop; the others wait so that answers are not held up."""
ACCEPT_RETRY_S: Final = 1.0
"""Pause after the process ran out of descriptors or memory."""
CLOSE_TIMEOUT_S: Final = 5.0


@final
class Acceptor:
    """Accepts on one listening socket; uvicorn stops it as it would a server of its own.

    Args:
        listening: the socket.
        make: makes a connection.
        gate: which lets it in.
        context: of TLS; None = none.
        handshake_timeout_s: for TLS.
    """

    def __init__(
        self,
        listening: socket.socket,
        make: Callable[[], BoundedConnection],
        *,
        gate: Gate,
        context: ssl.SSLContext | None,
        handshake_timeout_s: float,
    ) -> None:
        self._listening = listening
        self._make = make
        self._gate = gate
        self._context = context
        self._handshake_timeout_s = handshake_timeout_s
        self._loop = asyncio.get_running_loop()
        self._openings: set[asyncio.Task[None]] = set()
        self._retry: asyncio.TimerHandle | None = None
        listening.setblocking(False)
        self._resume()

    def close(self) -> None:
        """Accept no more; what is being opened is broken off."""
        if self._retry is not None:
            self._retry.cancel()
        self._loop.remove_reader(self._listening.fileno())
        for task in list(self._openings):
            task.cancel()

    async def wait_closed(self) -> None:
        """Wait for what was broken off."""
        await asyncio.gather(*self._openings, return_exceptions=True)

    def _resume(self) -> None:
        self._retry = None
        self._loop.add_reader(self._listening.fileno(), self._ready)

    def _ready(self) -> None:
        for _ in range(ACCEPT_BURST):
            try:
                accepted, _ = self._listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionError:
                continue  # that client has gone already
            except OSError:
                # Out of descriptors: the socket stays readable, the loop would spin on it.
                self._loop.remove_reader(self._listening.fileno())
                self._retry = self._loop.call_later(ACCEPT_RETRY_S, self._resume)
                return
            connection = self._make()
            if not self._gate.enter(connection):
                connection.turned_away()
                accepted.close()
                continue
            accepted.setblocking(False)
            task = self._loop.create_task(self._open(accepted, connection))
            connection.opening = task
            self._openings.add(task)
            task.add_done_callback(functools.partial(self._opened, accepted, connection))

    async def _open(self, accepted: socket.socket, connection: BoundedConnection) -> None:
        if self._context is None:
            await self._loop.connect_accepted_socket(lambda: connection, accepted)
            return
        await self._loop.connect_accepted_socket(
            lambda: connection,
            accepted,
            ssl=self._context,
            ssl_handshake_timeout=self._handshake_timeout_s,
            ssl_shutdown_timeout=CLOSE_TIMEOUT_S,
        )

    def _opened(
        self, accepted: socket.socket, connection: BoundedConnection, task: asyncio.Task[None]
    ) -> None:
        self._openings.discard(task)
        connection.opening = None
        if not task.cancelled() and task.exception() is None:
            return
        # TLS that failed, or a connection that was evicted or broken off.
        self._gate.leave(connection)
        if connection.transport is not None:
            connection.transport.abort()
        else:
            accepted.close()
