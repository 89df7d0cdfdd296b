"""Operations on listeners, and on clients that were refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

from perdure.admin.operation import Request
from perdure.admin.problems import Refused
from perdure.admin.records.listeners import (
    GetListener,
    ListenerPage,
    ListenerRow,
    ListListeners,
    ListUnauthorized,
    RestartListener,
    StartListener,
    StopListener,
    Unauthorized,
    UnauthorizedPage,
)
from perdure.broker.connection.refusal_table import RefusalTable
from perdure.config.units import format_time
from perdure.mqtt.reason_codes import ADMINISTRATIVE_ACTION
from perdure.net.listener import Listener
from perdure.server.administration.paging import page_of
from perdure.server.administration.service import Call, Handler
from perdure.server.administration.sessions import stepped


@final
class ListenerOperations:
    """Answers what is asked of listeners.

    Args:
        listeners: of the broker.
        refusals: who was refused lately.
        skew_us: what the wall clock is ahead of monotonic time, as it is read.
    """

    def __init__(
        self,
        listeners: Sequence[Listener],
        refusals: RefusalTable,
        skew_us: Callable[[], int],
    ) -> None:
        self._listeners = {listener.settings.name: listener for listener in listeners}
        self._refusals = refusals
        self._skew_us = skew_us

    def handlers(self) -> Mapping[type[Request[Any]], Handler]:
        """By request."""
        return {
            ListListeners: self.list_page,
            GetListener: self.show,
            StartListener: self.start,
            StopListener: self.stop,
            RestartListener: self.restart,
            ListUnauthorized: self.unauthorized,
        }

    async def list_page(self, _request: ListListeners, _call: Call) -> ListenerPage:
        """All of them."""
        rows = [_row(listener) for listener in self._listeners.values()]
        return ListenerPage(items=rows, estimated_total=len(rows))

    async def show(self, request: GetListener, _call: Call) -> ListenerRow:
        """One."""
        return _row(self._find(request.name))

    async def start(self, request: StartListener, call: Call) -> ListenerRow:
        """Listen again."""
        listener = self._find(request.name)
        call.before = _row(listener)
        listener.start()
        call.after = _row(listener)
        return _row(listener)

    async def stop(self, request: StopListener, call: Call) -> ListenerRow:
        """Accept no more."""
        listener = self._find(request.name)
        call.before = _row(listener)
        listener.stop_accepting()
        if request.close_connections:
            await listener.close_connections(ADMINISTRATIVE_ACTION)
        call.after = _row(listener)
        return _row(listener)

    async def restart(self, request: RestartListener, call: Call) -> ListenerRow:
        """Close the sockets and open them again."""
        listener = self._find(request.name)
        call.before = _row(listener)
        listener.reload_tls()
        listener.stop_accepting()
        listener.start()
        call.after = _row(listener)
        return _row(listener)

    async def unauthorized(self, request: ListUnauthorized, _call: Call) -> UnauthorizedPage:
        """A page of who was refused, the latest first."""
        skew_us = stepped(self._skew_us())
        rows = [
            Unauthorized(
                packet=one.packet,
                client_id=one.client_id,
                username=one.username,
                address=one.address,
                listener=one.listener,
                reason_code=one.reason_code,
                reason=one.reason,
                topic=one.topic,
                count=one.count,
                first_at=format_time(one.first_us + skew_us),
                first_at_us=one.first_us + skew_us,
                last_at=format_time(one.last_us + skew_us),
                last_at_us=one.last_us + skew_us,
            )
            for one in self._refusals.latest()
            if request.packet in ("", one.packet)
        ]
        # The latest comes first, so the cursor counts down.
        items, following = page_of(rows, request, lambda one: f"{2**63 - one.last_at_us:020}")
        return UnauthorizedPage(items=items, next_cursor=following, estimated_total=len(rows))

    def _find(self, name: str) -> Listener:
        listener = self._listeners.get(name)
        if listener is None:
            raise Refused("not_found", f"there is no listener {name!r}")
        return listener


def _row(listener: Listener) -> ListenerRow:
    settings, stats = listener.settings, listener.stats
    return ListenerRow(
        name=settings.name,
        kind=settings.kind,
        addresses=[f"{host}:{port}" for host, port in listener.addresses]
        if listener.accepting
        else [],
        path=settings.path if settings.kind in ("ws", "wss") else "",
        accepting=listener.accepting,
        connections=listener.connections,
        connections_max=settings.connections_max,
        opened_total=stats.opened_total,
        refused_total=stats.refused_total,
        handshake_failures_total=stats.handshake_failures_total,
    )
