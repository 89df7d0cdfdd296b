"""Logins that end, and logins that are looked at again while their clients are connected.

A token says until when it holds: its client is disconnected then (0xA0 Maximum connect time). A
user in a database, a directory or a service may be gone tomorrow: its method is asked again now and
then, at a reload, and when it says that something has changed. Who is refused then is disconnected
with 0x87 and without its will; what it may do changes with the answer. While a method cannot tell,
clients stay: whoever keeps users must not be able to disconnect a fleet by being away.

Invariant: what is remembered here is bounded by the clients that are connected.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final, TypeAlias, final

from perdure.broker.access.revoking import WITHDRAWN
from perdure.broker.auth.authenticate import AuthRequest, AuthResult
from perdure.mqtt.reason_codes import (
    MAXIMUM_CONNECT_TIME,
    NOT_AUTHORIZED,
    SERVER_BUSY,
    SERVER_UNAVAILABLE,
)

if TYPE_CHECKING:
    from perdure.broker.auth.authorize import Identity
    from perdure.broker.core import BrokerCore
    from perdure.broker.delivery.live_session import LiveSession
    from perdure.broker.delivery.registry import Registry
    from perdure.broker.runtime.scheduler import Timer
    from perdure.broker.shared.subscriptions import SharedSubscriptions

RENEWALS_MAX: Final = 32
"""Methods asked again at once; the others wait, so that clients that connect are served."""

RETRY_US: Final = 30_000_000
"""After an answer that could not be had."""

WAIT_MAX_US: Final = 3_600_000_000
"""Longest wait of one timer: a token may say any number, and event loops take not any."""

SLACK: Final = 64
"""Entries of clients that have gone, before they are taken out."""

_Entry: TypeAlias = "tuple[int, int, LiveSession]"


@final
class LoginExpiry:
    """Holds connected clients to the time of their logins.

    Args:
        core: what every part stands on.
        registry: who is connected.
        shared: the groups that they are members of.
    """

    def __init__(
        self, core: BrokerCore, *, registry: Registry, shared: SharedSubscriptions
    ) -> None:
        self._core = core
        self._registry = registry
        self._shared = shared
        self._heap: list[_Entry] = []
        self._count = 0
        self._timer: Timer | None = None
        self._due: dict[LiveSession, None] = {}
        """In the order in which they came, each once however often something has changed."""
        self._running = 0

    def opened(self, session: LiveSession) -> None:
        """A client was let in whose login ends, or is to be looked at again."""
        due_us = _due_us(session.identity)
        if len(self._heap) > 2 * len(self._registry.live) + SLACK:
            self._heap = [entry for entry in self._heap if self._is_here(entry[2])]
            heapq.heapify(self._heap)
        self._count += 1
        heapq.heappush(self._heap, (due_us, self._count, session))
        if self._heap[0][2] is session:
            self._arm()

    def look_again(self, username: str | None = None, *, method: str = "") -> int:
        """Ask now about connected clients, because something has changed.

        Args:
            username: of whom; None = of all.
            method: that has let them in; empty = any.

        Returns:
            How many.
        """
        count = 0
        for session in self._registry.live.values():
            identity = session.identity
            if username is not None and identity.username != username:
                continue
            if method and identity.method != method:
                continue
            count += 1
            self._due[session] = None
        self._renew_next()
        return count

    def stop(self) -> None:
        """Wait for nothing any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._heap.clear()
        self._due.clear()

    def _is_here(self, session: LiveSession) -> bool:
        return self._registry.live.get(session.client_id) is session

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._heap:
            core = self._core
            wait_us = min(max(0, self._heap[0][0] - core.clock.monotonic_us()), WAIT_MAX_US)
            self._timer = core.scheduler.call_later(wait_us, self._ring)

    def _ring(self) -> None:
        self._timer = None
        core = self._core
        now_us = core.clock.monotonic_us()
        core.pipeline.now_us = core.clock.now_us()
        while self._heap and self._heap[0][0] <= now_us:
            due_us, _, session = heapq.heappop(self._heap)
            if not self._is_here(session) or due_us != _due_us(session.identity):
                continue  # it has gone, or was asked about meanwhile and has a later entry
            expires_us = session.identity.expires_us
            if expires_us and expires_us <= now_us:
                self._expire(session)
            else:
                self._due[session] = None
        self._renew_next()
        self._arm()

    def _expire(self, session: LiveSession) -> None:
        identity = session.identity
        self._core.log.info(
            "login.expired",
            client_id=session.client_id,
            username=identity.username,
            method=identity.method,
        )
        session.connection.disconnect(MAXIMUM_CONNECT_TIME, "the login has expired", send_will=True)

    def _renew_next(self) -> None:
        while self._due and self._running < RENEWALS_MAX:
            session = next(iter(self._due))
            del self._due[session]
            if self._is_here(session):
                self._running += 1
                self._core.scheduler.spawn(self._renew(session), name="auth.renew")

    async def _renew(self, session: LiveSession) -> None:
        core = self._core
        identity = session.identity
        peer = session.connection.peer
        request = AuthRequest(
            client_id=session.client_id,
            username=identity.username,
            address=peer.address,
            loopback=peer.loopback,
            listener=peer.listener,
            certificate_subject=peer.certificate_subject,
            now_us=core.clock.monotonic_us(),
        )
        try:
            result = await core.standing.renew(request, identity)
            if self._is_here(session) and session.identity is identity:
                self._renewed(session, result)
        except Exception as error:  # noqa: BLE001 - it is about one client
            core.unexpected_errors.report(error, "background", task="auth.renew")
        finally:
            self._running -= 1
            self._renew_next()

    def _renewed(self, session: LiveSession, result: AuthResult) -> None:
        core, identity = self._core, session.identity
        if result.ok:
            superuser = result.superuser or core.standing.is_superuser(identity.username)
            if superuser != identity.superuser or result.grant != identity.grant:
                self._apply(session, result, superuser=superuser)
            identity.proof = result.proof
            identity.expires_us = result.expires_us
            identity.recheck_us = result.recheck_us
        elif result.undecided or result.reason_code in (SERVER_BUSY, SERVER_UNAVAILABLE):
            if identity.recheck_us:
                identity.recheck_us = core.clock.monotonic_us() + RETRY_US
        else:
            core.log.warning(
                "client.revoked",
                client_id=session.client_id,
                username=identity.username,
                address=session.connection.peer.address,
                method=identity.method,
                reason=result.reason or WITHDRAWN,
            )
            core.pipeline.now_us = core.clock.now_us()
            session.connection.disconnect(NOT_AUTHORIZED, WITHDRAWN, send_will=False)
            return
        if identity.expires_us or identity.recheck_us:
            self.opened(session)

    def _apply(self, session: LiveSession, result: AuthResult, *, superuser: bool) -> None:
        """Hold a client to other rights from now on."""
        core, identity = self._core, session.identity
        identity.superuser = superuser
        identity.grant = result.grant
        identity.access = None
        core.pipeline.now_us = core.clock.now_us()
        session.withdraw_pending()
        for group in self._shared.groups.values():
            # One that waits for a member with rights may have another one now, or none.
            group.joined()
        core.pipeline.schedule()


def _due_us(identity: Identity) -> int:
    """The next moment at which there is something to do; 0 = never."""
    return min((us for us in (identity.expires_us, identity.recheck_us) if us), default=0)
