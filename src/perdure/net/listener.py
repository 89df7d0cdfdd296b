"""A listener: its sockets, its bounds, and the connections that came through it.

Accepts by itself rather than through ``loop.create_server``: a refusal then costs no handshake,
a PROXY header can be read below TLS, and a new certificate holds from the next connection.

Invariant: every accepted socket is counted once and released once, however it ends.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable
from typing import Final, final

from perdure.broker.runtime.scheduler import Gate
from perdure.broker.runtime.stream import ConnectionFactory, PeerInfo
from perdure.broker.runtime.token_bucket import TokenBucket
from perdure.broker.runtime.turn_budget import TurnBudget
from perdure.broker.runtime.unexpected_errors import UnexpectedErrors
from perdure.clock import SystemClock
from perdure.config import plugged
from perdure.config.listener_kinds import LISTENER_KINDS
from perdure.errors import UsageError
from perdure.net.admission import Admission
from perdure.net.certificate import read_revoked
from perdure.net.proxy_protocol import ProxyFault
from perdure.net.records import MeteredTls
from perdure.net.revoking import close_revoked
from perdure.net.settings import ListenerSettings
from perdure.net.shell import NO_HANDLER, Shell
from perdure.net.sockets import (
    Address,
    behind_proxy,
    is_loopback,
    open_listening,
    plain_address,
    read_proxy_header,
)
from perdure.net.tls import server_context
from perdure.net.transport_shell import TransportShell
from perdure.observe.instruments import add
from perdure.observe.logs import get_logger
from perdure.observe.metrics import Metrics

log = get_logger("net")

ACCEPT_BURST: Final = 32
"""Sockets accepted in one turn of the loop; the others wait so that traffic is not held up."""
TLS_ACCEPT_BURST: Final = 4
"""Where a handshake follows: the server's part of it takes a millisecond."""
LEAVE_BURST: Final = 256
"""Connections closed in one turn of the loop when the broker takes leave of all."""
ACCEPT_RETRY_S: Final = 1.0
"""Pause after the process ran out of descriptors or memory."""

CROWDED_RETRY_S: Final = 0.02
"""Pause while so many newcomers wait as may: some dozens have their turn meanwhile."""

_EXHAUSTED: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))


@final
class ListenerStats:
    """Counters of one listener."""

    __slots__ = ("handshake_failures_total", "opened_total", "refused_total")

    def __init__(self) -> None:
        self.opened_total = 0
        """Sockets accepted and admitted."""
        self.refused_total = 0
        """Sockets closed because a limit was reached."""
        self.handshake_failures_total = 0
        """TLS, WebSocket and PROXY openings that failed."""


@final
class _LoopTurns:
    """Turns of the running loop; nobody takes steps of long work here."""

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Run at the end of this turn of the loop."""
        asyncio.get_running_loop().call_soon(callback)

    def call_later(self, delay_us: int, callback: Callable[[], None]) -> object:
        """Run once after a delay, microseconds."""
        return asyncio.get_running_loop().call_later(delay_us / 1_000_000, callback)

    def gate(self) -> Gate:
        """There is none."""
        raise UsageError("a listener has no long work")


@final
class Listener:
    """One configured listener.

    Args:
        settings: where and how it listens.
        factory: makes the connection of each transport.
        admission: bounds that all listeners share.
        metrics: counts TLS handshakes that failed.
        unexpected_errors: told what fails as nobody expects; None = one of its own.
        turn_budget: where those wait who have sent more than is read in one turn; None = one of its
        own.
    """

    def __init__(
        self,
        settings: ListenerSettings,
        factory: ConnectionFactory,
        *,
        admission: Admission,
        metrics: Metrics | None = None,
        unexpected_errors: UnexpectedErrors | None = None,
        turn_budget: TurnBudget | None = None,
    ) -> None:
        self.turn_budget: TurnBudget = turn_budget or TurnBudget(_LoopTurns(), SystemClock())
        self._unexpected_errors = unexpected_errors or UnexpectedErrors(
            metrics or Metrics(), log, SystemClock()
        )
        self.settings = settings
        self._traits = LISTENER_KINDS[settings.kind]
        self._shell: type[TransportShell] = plugged.load(
            self._traits.opens, setting=settings.setting, what=f"a {settings.kind} listener"
        )
        self.stats = ListenerStats()
        self._factory = factory
        self._admission = admission
        self._metrics = metrics
        rate = settings.connect_rate
        self._pace = TokenBucket(rate) if rate > 0 else None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sockets: list[socket.socket] = []
        self._addresses: list[Address] = []
        self._retry: asyncio.TimerHandle | None = None
        self._shells: dict[Shell, str] = {}
        self._pending: dict[asyncio.Task[None], tuple[socket.socket, Shell]] = {}
        self._count = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._context: ssl.SSLContext | None = None
        self._closing: asyncio.Task[None] | None = None
        self.reload_tls()

    @property
    def addresses(self) -> list[Address]:
        """The addresses really bound; they stay known after ``stop_accepting``."""
        return list(self._addresses)

    @property
    def port(self) -> int:
        """The port really bound, also where 0 was asked for."""
        return self._addresses[0][1] if self._addresses else self.settings.port

    @property
    def accepting(self) -> bool:
        """Whether its sockets are open."""
        return bool(self._sockets)

    @property
    def shells(self) -> list[Shell]:
        """The transports that are open."""
        return list(self._shells)

    @property
    def connections(self) -> int:
        """Accepted sockets that are not gone, those in a handshake included."""
        return self._count

    def reload_tls(self) -> None:
        """Read the certificates anew; they hold from the next connection. Who is connected with
        one that is revoked now is disconnected.

        Raises:
            ConfigError: the files are unusable; the ones in use stay.
        """
        tls = self.settings.tls
        if tls is not None:
            self._context = server_context(tls, alpn=self._traits.alpn)
            self._context.sslobject_class = MeteredTls
            if tls.client_crl and self._shells and self._loop is not None:
                work = close_revoked(
                    list(self._shells), read_revoked(tls.client_crl), listener=self.settings.name
                )
                self._closing = self._loop.create_task(work, name="tls.revoked")

    def start(self) -> None:
        """Bind, listen and accept; a listener that was stopped takes its old port again.

        Raises:
            ConfigError: its name stands for no address.
            AddressUnavailable: an address cannot be bound.
        """
        if self._sockets:
            return
        self._loop = loop = asyncio.get_running_loop()
        settings = self.settings
        self._sockets = open_listening(
            settings.host, self.port, backlog=settings.backlog, path=settings.setting
        )
        self._addresses = [plain_address(opened.getsockname()) for opened in self._sockets]
        for opened in self._sockets:
            loop.add_reader(opened.fileno(), self._accept_ready, opened)
        log.info(
            "listener.started",
            listener=settings.name,
            kind=settings.kind,
            addresses=[f"{host}:{port}" for host, port in self._addresses],
        )

    def stop_accepting(self) -> None:
        """Close the listening sockets; connections stay. May be repeated."""
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        if not self._sockets or self._loop is None:
            return
        for opened in self._sockets:
            self._loop.remove_reader(opened.fileno())
            opened.close()
        self._sockets = []
        log.info("listener.stopped", listener=self.settings.name, connections=self._count)

    async def close_connections(self, reason_code: int) -> None:
        """Ask every connection to take leave with ``reason_code``; handshakes are broken off."""
        self._break_off()
        for number, shell in enumerate(list(self._shells), start=1):
            if number % LEAVE_BURST == 0:
                await asyncio.sleep(0)
            if shell.handler is NO_HANDLER:
                shell.abort()
            else:
                shell.handler.close(reason_code)

    async def wait_idle(self) -> None:
        """Wait until no connection is left."""
        await self._idle.wait()

    async def close(self) -> None:
        """Stop accepting, abort what is connected, and wait until all of it is gone."""
        self.stop_accepting()
        self._break_off()
        for shell in list(self._shells):
            shell.abort()
        await self._idle.wait()

    # The shells call these.

    def shell_lost(self, shell: Shell) -> None:
        """Release a connection; a second call does nothing."""
        address = self._shells.pop(shell, None)
        if address is not None:
            self._release(address)

    def handshake_failed(self, shell: Shell, reason: str) -> None:
        """Count a peer that never came as far as MQTT."""
        self.stats.handshake_failures_total += 1
        log.info(
            "listener.handshake_failed",
            listener=self.settings.name,
            address=self._shells.get(shell, ""),
            reason=reason,
        )

    def shell_failed(self, shell: Shell, error: Exception) -> None:
        """Report what has cost one connection."""
        self._unexpected_errors.report(
            error, "transport", listener=self.settings.name, address=self._shells.get(shell, "")
        )

    # Inside.

    def _accept_ready(self, listening: socket.socket) -> None:
        if self.turn_budget.is_crowded:
            self._pause_accepting(CROWDED_RETRY_S)
            return
        for _ in range(ACCEPT_BURST if self._context is None else TLS_ACCEPT_BURST):
            try:
                accepted, address = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionError:
                continue  # that client has gone already
            except OSError as exc:
                if exc.errno not in _EXHAUSTED:
                    raise
                log.error(
                    "listener.exhausted",
                    listener=self.settings.name,
                    error=exc.strerror,
                    hint="raise the limit of open files (LimitNOFILE, ulimit -n)",
                )
                self._pause_accepting(ACCEPT_RETRY_S)
                return
            try:
                self._admit(accepted, plain_address(address))
            except Exception as error:  # noqa: BLE001 - it costs this client alone
                self._unexpected_errors.report(
                    error, "accept", listener=self.settings.name, address=str(address[0])
                )
                accepted.close()

    def _pause_accepting(self, pause_s: float) -> None:
        """Let the backlog wait: the socket stays readable, so the loop would spin on it."""
        assert self._loop is not None
        for opened in self._sockets:
            self._loop.remove_reader(opened.fileno())
        if self._retry is None:  # each socket of a listener may find out
            self._retry = self._loop.call_later(pause_s, self._resume_accepting)

    def _resume_accepting(self) -> None:
        assert self._loop is not None
        self._retry = None
        for opened in self._sockets:
            self._loop.add_reader(opened.fileno(), self._accept_ready, opened)

    def _admit(self, accepted: socket.socket, address: Address) -> None:
        assert self._loop is not None
        if self._count >= self.settings.connections_max:
            refusal = "listener.connections_max"
        else:
            refusal = self._admission.admit(
                address[0],
                now_s=self._loop.time(),
                per_ip_max=self.settings.connections_per_ip_max,
                pace=self._pace,
                paced=self.settings.connect_rate != 0,
            )
        if refusal:
            accepted.close()
            self.stats.refused_total += 1
            if self._metrics is not None:
                limit = refusal if "." in refusal else f"limits.{refusal}"
                add(self._metrics.limit_refusals, (limit,))
            log.warning(
                "listener.refused", listener=self.settings.name, address=address[0], limit=refusal
            )
            return
        accepted.setblocking(False)
        self.stats.opened_total += 1
        self._count += 1
        self._idle.clear()
        settings = self.settings
        peer = PeerInfo(settings.name, settings.kind, *address, is_loopback(address[0]))
        shell = self._shell(self._factory, peer, settings=settings, owner=self, loop=self._loop)
        self._shells[shell] = address[0]
        task = self._loop.create_task(self._establish(accepted, shell))
        self._pending[task] = accepted, shell
        task.add_done_callback(self._established)

    async def _establish(self, accepted: socket.socket, shell: TransportShell) -> None:
        """Bring an accepted socket to a transport with its shell."""
        loop, settings = asyncio.get_running_loop(), self.settings
        if settings.proxy_protocol:
            async with asyncio.timeout(settings.handshake_timeout_s):
                header = await read_proxy_header(accepted)
            if isinstance(header, ProxyFault):
                raise ConnectionAbortedError(header.reason)
            shell.peer = behind_proxy(shell.peer, header)
        protocol = shell.as_protocol()
        if self._context is None:
            await loop.connect_accepted_socket(lambda: protocol, accepted)
            return
        await loop.connect_accepted_socket(
            lambda: protocol,
            accepted,
            ssl=self._context,
            ssl_handshake_timeout=settings.handshake_timeout_s,
            ssl_shutdown_timeout=settings.close_timeout_s,
        )

    def _established(self, task: asyncio.Task[None]) -> None:
        """Release a socket whose opening failed or was cancelled, even before it began."""
        accepted, shell = self._pending.pop(task)
        if not task.cancelled():
            exc = task.exception()
            if exc is None:
                return
            if isinstance(exc, OSError):
                # Includes TLS alerts, certificates that do not verify, and timeouts.
                if self._context is not None and self._metrics is not None:
                    self._metrics.tls_handshake_failures += 1
                self.handshake_failed(shell, str(exc) or type(exc).__name__)
            else:
                self._unexpected_errors.report(
                    exc, "accept", listener=self.settings.name, address=self._shells.get(shell, "")
                )
        shell.abort()
        if shell.connected:
            # uvloop does not report the loss of a transport whose opening was cancelled.
            shell.connection_lost(None)
        else:
            accepted.close()
            self.shell_lost(shell)

    def _break_off(self) -> None:
        """Cancel the openings that are still below the shell."""
        for task, (_, shell) in list(self._pending.items()):
            if not shell.connected:
                task.cancel()

    def _release(self, address: str) -> None:
        self._admission.release(address)
        self._count -= 1
        if self._count == 0:
            self._idle.set()
