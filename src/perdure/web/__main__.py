"""An HTTP process: ``python -m perdure.web``, started by the broker.

Standard input is its life: the first line is a ``WebSettings``, a line ``stop`` asks it to end,
and the end of the file means that the broker is dead; then the port must be free at once for the
next one. Signals are the broker's matter: a terminal sends them to both. Standard output carries
events for the broker's log, a line of JSON each.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import math
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, cast, final

import msgspec
import uvicorn

from perdure.errors import StorageError
from perdure.identity.logins import LoginLimits
from perdure.identity.service import Identity
from perdure.web.acceptor import Acceptor
from perdure.web.app import make_app
from perdure.web.connection import BoundedConnection
from perdure.web.context import Context, report_on_stdout
from perdure.web.gate import Gate
from perdure.web.guard import ERROR_MAX
from perdure.web.settings import WebSettings
from perdure.web.traffic import REPORT_S

NICENESS: Final = 5

GRACE_S: Final = 2
"""Time for answers that are under way when the broker stops."""

TIDY_S: Final = 5.0
LOGINS_S: Final = 600.0
"""How often expired logins are removed."""

SWEEP_S: Final = 1.0
"""How often deadlines are looked at."""


@final
class _Server(uvicorn.Server):
    """Without signal handlers of its own, and with connections of ours; tells when it listens.

    Args:
        config: of uvicorn.
        context: of the process.
    """

    def __init__(self, config: uvicorn.Config, context: Context) -> None:
        super().__init__(config)
        self._context = context
        self.gate = Gate(context.settings.connections_max)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        loop = asyncio.get_running_loop()
        make = functools.partial(
            BoundedConnection,
            self.config,
            self.server_state,
            loop,
            gate=self.gate,
            context=self._context,
        )
        # They have what uvicorn uses of a server: ``close`` and ``wait_closed``.
        acceptors = [
            Acceptor(
                each,
                make,
                gate=self.gate,
                context=self.config.ssl,
                handshake_timeout_s=self._context.settings.head_timeout_s,
            )
            for each in sockets or ()
        ]
        self.servers = cast("list[asyncio.Server]", acceptors)
        self.started = True
        report_on_stdout("http.ready")


async def serve(settings: WebSettings, stopping: asyncio.Event) -> None:
    """Answer requests until told to stop."""
    identity = await Identity.open(
        Path(settings.data),
        login_store=settings.login_store,
        limits=LoginLimits(settings.login_idle_s, settings.login_total_s),
    )
    context = Context(settings, identity)
    config = uvicorn.Config(
        make_app(context),
        http="h11",
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        headers=[("server", "perdure")],
        h11_max_incomplete_event_size=settings.head_bytes_max,
        timeout_keep_alive=math.ceil(settings.idle_timeout_s),
        timeout_graceful_shutdown=GRACE_S,
        ssl_certfile=settings.certificate or None,
        ssl_keyfile=settings.private_key or None,
    )
    asyncio.get_running_loop().set_exception_handler(functools.partial(_failed, context))
    server = _Server(config, context)
    sockets = [socket.socket(fileno=each) for each in settings.sockets]
    running = asyncio.create_task(server.serve(sockets))
    beside = [
        asyncio.create_task(each)
        for each in (
            _tidy(context),
            _report_traffic(context),
            _sweep(server.gate),
            _forget_logins(context),
        )
    ]
    ended = asyncio.create_task(stopping.wait())
    await asyncio.wait([running, ended], return_when=asyncio.FIRST_COMPLETED)
    server.should_exit = True
    for task in (*beside, ended):
        task.cancel()
    await running
    context.report_traffic()
    await context.admin.close()
    if context.login_tokens is not None:
        await context.login_tokens.close()
    context.close()
    await identity.close()


async def _tidy(context: Context) -> None:
    while True:
        await asyncio.sleep(TIDY_S)
        await context.in_thread(context.views.tidy)


async def _forget_logins(context: Context) -> None:
    while True:
        await asyncio.sleep(LOGINS_S)
        try:
            await context.identity.maintain()
        except StorageError as error:
            context.report("http.logins_kept", reason=error.message)


async def _report_traffic(context: Context) -> None:
    while True:
        await asyncio.sleep(REPORT_S)
        context.report_traffic()


async def _sweep(gate: Gate) -> None:
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(SWEEP_S)
        gate.sweep(loop.time())


def _failed(context: Context, loop: asyncio.AbstractEventLoop, about: dict[str, Any]) -> None:
    """What nobody caught is a line of the log, whatever a client has done to bring it about."""
    error = about.get("exception")
    if isinstance(error, OSError):
        return  # of a connection that is gone, or TLS that was none
    context.report("http.failed", error=f"{about.get('message', '')}: {error!r}"[:ERROR_MAX])


def main() -> None:
    """Run the process."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _step_back()
    # What it has to say goes through the broker's log.
    logging.getLogger("uvicorn").setLevel(logging.CRITICAL + 1)
    lines = _lines(sys.stdin.fileno())
    settings = msgspec.json.decode(next(lines), type=WebSettings)
    loop = _new_loop()
    stopping = asyncio.Event()

    def follow() -> None:
        for line in lines:
            if line == b"stop":
                loop.call_soon_threadsafe(stopping.set)
        if not stopping.is_set():
            os._exit(0)

    threading.Thread(target=follow, name="parent", daemon=True).start()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(serve(settings, stopping))


def _step_back() -> None:
    """Where there are too few cores for all, the broker's acknowledgements come first: it has the
    larger share, and what wakes this process up does not interrupt it."""
    if hasattr(os, "nice"):
        os.nice(NICENESS)
    if hasattr(os, "sched_setscheduler"):
        with contextlib.suppress(OSError):  # a container may not let it
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def _lines(descriptor: int) -> Iterator[bytes]:
    """Lines of standard input. A buffered file would be locked by a thread that waits in it, and
    the interpreter could not end."""
    left = b""
    while data := os.read(descriptor, 65_536):
        *whole, left = (left + data).split(b"\n")
        yield from whole


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.SelectorEventLoop()
    made: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return made


if __name__ == "__main__":
    main()
