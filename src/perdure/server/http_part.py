"""The HTTP processes as a part of the broker's life: started, watched, replaced, stopped.

The broker binds the port and hands the sockets on, so that an address that cannot be had is an
error of the start, and clients wait in the queue while a process that died is replaced. What the
processes are is in ``web``; here is only how they live.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, final

import msgspec

from perdure.config.schema import HttpConfig, StorageConfig
from perdure.config.schema.auth_methods import TokensAuthConfig
from perdure.errors import AddressUnavailable, ConfigError, StartTimeout
from perdure.identity.setup import offer_setup
from perdure.net.settings import split_bind
from perdure.net.sockets import is_loopback, open_listening
from perdure.observe.logs import get_logger
from perdure.observe.metrics import Metrics
from perdure.server.child_process import RESTART_PAUSES_S, ChildProcess
from perdure.web.forwarded import networks_of
from perdure.web.settings import WebSettings
from perdure.web.tokens import make_token_file, read_tokens
from perdure.web.traffic import TRAFFIC, TrafficMetrics, TrafficReport

log = get_logger("http")

HTTP_PORT: Final = 18_083
TOKEN_FILE: Final = "http.token"  # noqa: S105 - the name of a file
BACKLOG: Final = 512

READY_TIMEOUT_S: Final = 30.0
STOP_TIMEOUT_S: Final = 5.0
BIND_TIMEOUT_S: Final = 5.0
"""Time for the processes of a broker that was killed to let go of the port."""

LINE_BYTES_MAX: Final = 1024 * 1024
"""Longest line that a process tells; what it says of a client is cut far shorter."""

_POLL_S: Final = 0.05
_WARNINGS: Final = frozenset(
    {"http.refused", "http.dropped", "http.token_file_unreadable", "http.cut"}
)
_ERRORS: Final = frozenset({"http.failed"})


@final
class HttpPart:
    """Serves ``/api/v1``.

    Args:
        config: the section ``http``.
        data: data directory.
        version: release.
        metrics: counts the requests.
        command: what a process runs; for tests.
        login_store: a Redis URL where logins are kept; empty = in the data directory.
        storage: where the log is, if that is a server.
        tokens: ``auth.tokens``, whose store ``http.login_tokens`` takes tokens of.
    """

    name: str = "http"

    def __init__(
        self,
        config: HttpConfig,
        data: Path,
        *,
        version: str,
        metrics: Metrics,
        command: Sequence[str] = (sys.executable, "-P", "-m", "perdure.web"),
        login_store: str = "",
        storage: StorageConfig | None = None,
        tokens: TokensAuthConfig | None = None,
    ) -> None:
        self._config = config
        self._data = data.resolve()
        self._version = version
        self._traffic = TrafficMetrics(metrics)
        self._command = tuple(command)
        self._login_store = login_store
        self._storage = storage
        self._tokens = tokens if tokens is not None and config.login_tokens else TokensAuthConfig()
        self._sockets: list[socket.socket] = []
        self._keepers: list[asyncio.Task[None]] = []
        self._ready: list[asyncio.Future[None]] = []
        self._stopping = asyncio.Event()

    @property
    def port(self) -> int:
        """The port in use (the real one if 0 was asked for)."""
        return int(self._sockets[0].getsockname()[1])

    async def start(self) -> None:
        """Bind, and begin to start the processes.

        Raises:
            ConfigError: a file or the extra is not there.
            AddressUnavailable: the address cannot be had.
        """
        for module in ("starlette", "uvicorn", "jinja2", "argon2"):
            if importlib.util.find_spec(module) is None:
                raise ConfigError(
                    "http.bind is set, and the HTTP server is not installed",
                    path="http.bind",
                    hint="pip install 'perdure[http]'",
                )
        self._prepare_files()
        networks_of(self._config.proxies)
        host, port = split_bind(self._config.bind, HTTP_PORT, path="http.bind")
        await self._listen(host, port)
        if not self._config.certificate and host and not is_loopback(host):
            log.warning(
                "http.no_tls",
                bind=self._config.bind,
                hint="tokens and messages travel in clear text; see http.certificate",
            )
        for _ in range(self._config.processes):
            self._ready.append(asyncio.get_running_loop().create_future())
            self._keepers.append(asyncio.create_task(self._keep(self._ready[-1])))

    async def settle(self) -> None:
        """Wait for the processes, which take a second to begin; requests wait in the queue.

        Raises:
            ConfigError: one ended at its start.
            StartTimeout: one was not ready in time.
        """
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                await asyncio.gather(*self._ready)
        except TimeoutError:
            raise StartTimeout(
                f"the HTTP process did not start within {READY_TIMEOUT_S:g} s",
                hint="the machine has too much to do; start again",
            ) from None
        scheme = "https" if self._config.certificate else "http"
        log.info("http.started", scheme=scheme, port=self.port, processes=len(self._ready))
        await self._offer_setup(
            scheme, split_bind(self._config.bind, HTTP_PORT, path="http.bind")[0]
        )

    async def _offer_setup(self, scheme: str, host: str) -> None:
        """Where nobody can log in yet, say how the first one does."""
        token = await asyncio.to_thread(offer_setup, self._data)
        if token:
            shown = "localhost" if host in ("", "0.0.0.0", "::") else host  # noqa: S104
            shown = f"[{shown}]" if ":" in shown else shown
            log.warning(
                "http.no_users",
                setup=f"{scheme}://{shown}:{self.port}/ui/setup?token={token}",
                hint="whoever opens this makes the first administrator: once, within an hour; "
                "or take `perdure users add`",
            )

    async def stop(self) -> None:
        """Stop the processes and let go of the port."""
        self._stopping.set()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        self._keepers.clear()
        for future in self._ready:
            future.cancel()
        self._ready.clear()
        for each in self._sockets:
            each.close()
        self._sockets.clear()

    def _prepare_files(self) -> None:
        path = self._token_file
        if not self._config.token_file and not path.exists():
            make_token_file(path)
            log.info("http.token_made", path=str(path))
        read_tokens(path)
        for name in ("certificate", "private_key"):
            given = getattr(self._config, name)
            if given and not Path(given).is_file():
                raise ConfigError(f"there is no file {given}", path=f"http.{name}")

    @property
    def _token_file(self) -> Path:
        given = self._config.token_file
        return Path(given).resolve() if given else self._data / TOKEN_FILE

    async def _listen(self, host: str, port: int) -> None:
        deadline = asyncio.get_running_loop().time() + BIND_TIMEOUT_S
        while True:
            try:
                self._sockets = open_listening(host, port, backlog=BACKLOG, path="http")
            except AddressUnavailable:
                if not port or asyncio.get_running_loop().time() > deadline:
                    raise
                await asyncio.sleep(_POLL_S)
            else:
                return

    # -- one process -----------------------------------------------------------------------

    async def _keep(self, ready: asyncio.Future[None]) -> None:
        """Run a process, and another one whenever it ends, until told to stop."""
        tries = 0
        while not self._stopping.is_set():
            begun = asyncio.get_running_loop().time()
            code = await self._run(ready)
            if self._stopping.is_set():
                return
            if not ready.done():
                ready.set_exception(
                    ConfigError(f"the HTTP process ended at its start ({code})", path="http")
                )
                return
            if asyncio.get_running_loop().time() - begun > RESTART_PAUSES_S[-1]:
                tries = 0
            pause_s = RESTART_PAUSES_S[min(tries, len(RESTART_PAUSES_S) - 1)]
            tries += 1
            log.error("http.process_died", code=code, again_in_s=pause_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._stopping.wait()

    async def _run(self, ready: asyncio.Future[None]) -> int:
        """One process from its start to its end; its exit code."""
        descriptors = tuple(each.fileno() for each in self._sockets)
        process = await ChildProcess.begun(
            self._command,
            msgspec.json.encode(self._settings(descriptors)),
            limit=LINE_BYTES_MAX,
            descriptors=descriptors,
        )
        stopper = asyncio.create_task(self._stop_process(process))
        try:
            async for line in process.stdout:
                self._take_line(line, ready, process.pid)
            return await process.ended()
        finally:
            stopper.cancel()
            self._traffic.ended(process.pid)
            await process.close()

    async def _stop_process(self, process: ChildProcess) -> None:
        """Once told to, ask a process to end, and see to it."""
        await self._stopping.wait()
        await process.tell(b"stop")
        await asyncio.sleep(STOP_TIMEOUT_S)
        log.warning("http.process_killed", pid=process.pid)
        process.kill()

    def _settings(self, descriptors: tuple[int, ...]) -> WebSettings:
        config = self._config
        return WebSettings(
            data=str(self._data),
            token_file=str(self._token_file),
            sockets=descriptors,
            version=self._version,
            reads_max=config.reads_max,
            connections_max=config.connections_max,
            head_bytes_max=config.head_bytes_max,
            head_timeout_s=config.head_timeout_s,
            body_timeout_s=config.body_timeout_s,
            idle_timeout_s=config.idle_timeout_s,
            send_timeout_s=config.send_timeout_s,
            page_bytes=config.page_bytes,
            certificate=str(Path(config.certificate).resolve()) if config.certificate else "",
            private_key=str(Path(config.private_key).resolve()) if config.private_key else "",
            proxies=config.proxies,
            login_store=self._login_store,
            login_idle_s=config.login_idle_s,
            login_total_s=config.login_total_s,
            storage=self._storage,
            token_store=_absolute(self._tokens.store),
            token_layout=self._tokens.layout,
            token_prefix=self._tokens.prefix,
        )

    def _take_line(self, line: bytes, ready: asyncio.Future[None], pid: int) -> None:
        """Log what a process tells, or count it."""
        try:
            fields = msgspec.json.decode(line, type=dict[str, Any])
            event = str(fields.pop("event"))
        except (ValueError, KeyError):
            return
        if event == "http.ready":
            if not ready.done():
                ready.set_result(None)
            return
        if event == TRAFFIC:
            with contextlib.suppress(msgspec.ValidationError):
                self._traffic.add_report(pid, msgspec.convert(fields, TrafficReport))
            return
        if event in _ERRORS:
            log.error(event, **fields)
        elif event in _WARNINGS:
            log.warning(event, **fields)
        else:
            log.info(event, **fields)


def _absolute(store: str) -> str:
    """A token store for a process that may run elsewhere."""
    return store if not store or "://" in store else str(Path(store).resolve())
