"""One line in the log for whatever is refused to a client: who, what, and why.

A client that is refused tries again, often at once and for ever. So lines are few for each client
(or address, while nobody knows who it is), few in all, and what was left out is counted: the next
line of that client says how many, and at the end of a window one line says it for all.

Invariant: memory is bounded, whatever is refused to however many.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from perdure.broker.connection.refusal_table import RefusalTable
from perdure.mqtt.reason_codes import name
from perdure.observe.instruments import add

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from perdure.broker.connection.client import ClientConnection
    from perdure.broker.runtime.scheduler import Scheduler, Timer
    from perdure.clock import Clock
    from perdure.config.schema import LogConfig
    from perdure.observe.metrics import Metrics

KEYS_MAX: Final = 4_096
"""Clients that are told apart in a window; the others count together."""

VALUE_CHARS_MAX: Final = 256
"""Longest name in a line: a client identifier may have 65,535 bytes."""

ADDRESS_SHARE: Final = 4
"""The lines of a window are for so many addresses at least."""

OTHERS: Final = ("", "")

_HTTP_METHODS: Final = (
    b"GET ",
    b"POST ",
    b"PUT ",
    b"HEAD ",
    b"DELETE ",
    b"OPTIONS ",
    b"PATCH ",
    b"CONNECT ",
    b"PRI * HTTP/2",
)


def foreign(data: bytes) -> str:
    """What another protocol the first bytes of a connection are of; empty = nobody knows."""
    if data[:2] == b"\x16\x03":
        return "TLS on a listener without TLS"
    for method in _HTTP_METHODS:
        if data.startswith(method):
            return (
                "HTTP on an MQTT listener (MQTT over WebSocket has listeners of its own: ws, wss)"
            )
    if data.startswith((b"PROXY ", b"\r\n\r\n\x00\r\nQUIT\n")):
        return "a PROXY header on a listener without proxy_protocol"
    if data.startswith(b"SSH-"):
        return "SSH"
    return ""


def shortened(value: str) -> str:
    """A name as it may stand in a line."""
    if len(value) <= VALUE_CHARS_MAX:
        return value
    return f"{value[:VALUE_CHARS_MAX]}... ({len(value)} characters)"


@final
class RefusalLog:
    """Writes those lines.

    Args:
        log: where they go.
        clock: monotonic time.
        scheduler: for the line at the end of a window.
        metrics: counts every refusal.
        config: how many lines are written.
    """

    __slots__ = (
        "_before",
        "_begun_us",
        "_by_address",
        "_clock",
        "_left_out",
        "_log",
        "_metrics",
        "_scheduler",
        "_seen",
        "_suppressed",
        "_timer",
        "_written",
        "config",
        "table",
    )

    def __init__(
        self,
        log: FilteringBoundLogger,
        clock: Clock,
        scheduler: Scheduler,
        metrics: Metrics,
        config: LogConfig,
    ) -> None:
        self._log = log
        self._clock = clock
        self._scheduler = scheduler
        self._metrics = metrics
        self.config: LogConfig = config
        self._begun_us: int = clock.monotonic_us()
        self._written: int = 0
        # Times in this window, and lines left out in the last one, by event and client.
        self._seen: dict[tuple[str, str], int] = {}
        self._before: dict[tuple[str, str], int] = {}
        self._by_address: dict[tuple[str, str], int] = {}
        self._left_out: dict[tuple[str, str], int] = {}
        self._suppressed: dict[str, int] = {}
        self._timer: Timer | None = None
        self.table: RefusalTable = RefusalTable()
        """Who was refused lately, lines left out or not."""

    def connect(self, connection: ClientConnection, reason_code: int, reason: str) -> None:
        """A CONNECT was refused, or what came instead of one.

        Args:
            connection: its peer.
            reason_code: 0 = it was closed without one.
            reason: for people.
        """
        add(self._metrics.refusals, ("connect", _number(reason_code)))
        peer = connection.peer
        event = "connection.refused"
        packet = connection.opening
        said = connection.foreign or reason
        about = connection.about or {}
        why = about.get("reason") or said
        who = said if packet is None else f"{shortened(packet.client_id)} {said}"
        self.table.add(
            "connect",
            None if packet is None else shortened(packet.client_id),
            peer.address,
            self._clock.monotonic_us(),
            username=None if packet is None else _name(packet.username),
            listener=peer.listener,
            reason_code=reason_code,
            reason=shortened(why),
            topic=None,
        )
        suppressed = self._admit(event, who, peer.address)
        if suppressed < 0:
            return
        values: dict[str, object] = {"address": peer.address, "port": peer.port}
        if peer.certificate_subject:
            values["certificate"] = shortened(peer.certificate_subject)
        if packet is not None:
            values["client_id"] = shortened(packet.client_id)
            values["username"] = _name(packet.username)
            values["protocol"] = packet.protocol
        values.update(about)
        values["reason"] = shortened(why)
        self._write(event, connection, reason_code, values, suppressed)

    def publish(
        self, connection: ClientConnection, reason_code: int, reason: str, topic: str, qos: int
    ) -> None:
        """A PUBLISH was refused; the connection stays."""
        self._packet(connection, "publish", reason_code, reason, {"topic": topic, "qos": qos})

    def subscribe(
        self, connection: ClientConnection, reason_code: int, reason: str, topic_filter: str
    ) -> None:
        """A filter of a SUBSCRIBE was refused; the connection stays."""
        self._packet(connection, "subscribe", reason_code, reason, {"filter": topic_filter})

    def dropped(self, connection: ClientConnection, reason_code: int, reason: str) -> None:
        """A client that was connected is dropped for what it did."""
        self._packet(connection, "packet", reason_code, reason, {}, event="connection.closed")

    def close(self) -> None:
        """Write what was left out, and nothing later."""
        if self._timer is not None:
            self._timer.cancel()
            self._log_suppressed()

    # Inside.

    def _packet(
        self,
        connection: ClientConnection,
        packet: str,
        reason_code: int,
        reason: str,
        about: dict[str, object],
        event: str = "",
    ) -> None:
        add(self._metrics.refusals, (packet, _number(reason_code)))
        session = connection.session
        if session is None:
            return
        event = event or f"{packet}.refused"
        topic = about.get("topic") or about.get("filter")
        self.table.add(
            packet,
            shortened(session.client_id),
            connection.peer.address,
            self._clock.monotonic_us(),
            username=_name(session.identity.username),
            listener=connection.peer.listener,
            reason_code=reason_code,
            reason=reason,
            topic=shortened(topic) if isinstance(topic, str) else None,
        )
        who = f"{shortened(session.client_id)} {reason}"
        suppressed = self._admit(event, who, connection.peer.address)
        if suppressed < 0:
            return
        values: dict[str, object] = {
            "client_id": shortened(session.client_id),
            "username": _name(session.identity.username),
            "address": connection.peer.address,
        }
        for key, value in about.items():
            values[key] = shortened(value) if isinstance(value, str) else value
        values["reason"] = reason
        self._write(event, connection, reason_code, values, suppressed)

    def _admit(self, event: str, who: str, address: str) -> int:
        """Count a line.

        Args:
            event: its name.
            who: the client, as far as it is known, and why.
            address: where it comes from.

        Returns:
            How many of it were left out before; -1 = leave it out.
        """
        config = self.config
        now_us = self._clock.monotonic_us()
        if now_us - self._begun_us >= config.repeat_window_s * 1_000_000:
            self._turn(now_us)
        key = (event, f"{address} {who}")
        count = _count(self._seen, key)
        is_over = bool(config.refusals_max) and count >= config.refusals_max
        total = config.refusals_total_max
        place = (address, "")
        if total and not is_over:
            # One address may not use up the lines of all. What one client repeats has no lines, and
            # leaves those of its address to others.
            share = max(1, total // ADDRESS_SHARE)
            is_over = self._written >= total or _count(self._by_address, place) >= share
        if is_over:
            self._suppressed[event] = self._suppressed.get(event, 0) + 1
            _count(self._left_out, place)
            if self._timer is None:
                left_us = self._begun_us + config.repeat_window_s * 1_000_000 - now_us
                self._timer = self._scheduler.call_later(left_us, self._log_suppressed)
            return -1
        self._written += 1
        return self._before.pop(key, 0)

    def _turn(self, now_us: int) -> None:
        """Begin a window."""
        shown = self.config.refusals_max
        over = self._seen.items()
        self._before = {key: count - shown for key, count in over if shown and count > shown}
        self._seen = {}
        self._by_address = {}
        self._written = 0
        self._begun_us = now_us

    def _log_suppressed(self) -> None:
        """Say what was left out."""
        self._timer = None
        suppressed, self._suppressed = self._suppressed, {}
        left_out, self._left_out = self._left_out, {}
        total = sum(suppressed.values())
        if not total:
            return
        most = max(left_out, key=left_out.__getitem__, default=OTHERS)
        self._log.warning(
            "refusals.suppressed",
            suppressed=total,
            events=suppressed,
            most_from=most[0],
            window_s=self.config.repeat_window_s,
            hint="see log.refusals_max",
        )

    def _write(
        self,
        event: str,
        connection: ClientConnection,
        reason_code: int,
        values: dict[str, object],
        suppressed: int,
    ) -> None:
        values["listener"] = connection.peer.listener
        if reason_code:
            values["reason_code"] = _number(reason_code)
            values["reason_name"] = name(reason_code)
        # With a count of its own the event is not limited once more.
        self._log.warning(event, suppressed=suppressed, **values)


def _count(seen: dict[tuple[str, str], int], key: tuple[str, str]) -> int:
    """Times that something was counted before, in a table that does not grow for ever."""
    count = seen.get(key, 0)
    if not count and len(seen) >= KEYS_MAX:
        key = OTHERS
        count = seen.get(key, 0)
    seen[key] = count + 1
    return count


def _number(reason_code: int) -> str:
    return f"0x{reason_code:02x}"


def _name(username: str | None) -> str | None:
    return shortened(username) if username else None
