"""Whether a client may have a session, and what the store is to have of it then."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from perdure.broker.auth.authorize import Identity
from perdure.broker.auth.owning import may_hold, owner_after
from perdure.broker.sessions.counts import will_size
from perdure.errors import MqttError
from perdure.model import SessionRecord, Will
from perdure.mqtt.reason_codes import NOT_AUTHORIZED, QUOTA_EXCEEDED
from perdure.observe.instruments import add

if TYPE_CHECKING:
    from perdure.broker.core import BrokerCore
    from perdure.broker.sessions.counts import SessionCounts
    from perdure.broker.sessions.request import SessionRequest

NEAR: Final = 1000
"""So close to ``limits.sessions_max`` a node of a cluster reads on to the log's end before it says
that there is room: others may have made so many sessions that it has not read of."""


@final
class SessionGrants:
    """Grants sessions.

    Args:
        core: what every part stands on.
        session_counts: what else it uses.
    """

    def __init__(self, core: BrokerCore, *, session_counts: SessionCounts) -> None:
        self._core = core
        self._session_counts: SessionCounts = session_counts
        self._promised = 0
        """New sessions that there was room for, and that the log has not given back yet."""

    def check_owner(self, record: SessionRecord, identity: Identity) -> None:
        """Refuse a session that belongs to another user, before anything of it is touched.

        Whoever opens a session has acquired its client id, so two that come at once are asked one
        after the other, and the second finds what the first has made.
        """
        binding = self._core.auth_config.client_id_binding
        if not may_hold(identity, username=record.username, method=record.method, binding=binding):
            add(self._core.metrics.limit_refusals, ("auth.client_id_binding",))
            raise MqttError(NOT_AUTHORIZED, "the client identifier belongs to another user")

    def hold_will(self, request: SessionRequest, live: SessionRecord | None) -> None:
        """Count the will of a session that is to be connected; ``release_will`` must follow.

        Args:
            request: of its client.
            live: its session where it is connected still, and is taken over with this.

        Raises:
            MqttError: the wills of all have no room for it.
        """
        size = will_size(request.will)
        counts, most = self._session_counts, self._core.limits_config.will_bytes_max
        if size and most:
            own = will_size(live.will) if live is not None else 0
            if counts.will_bytes - own + size > most:
                add(self._core.metrics.limit_refusals, ("limits.will_bytes_max",))
                raise MqttError(QUOTA_EXCEEDED, "no room for a will of this size")
        counts.will_bytes += size

    def release_will(self, will: Will | None) -> None:
        """The session that has this will is connected no more."""
        self._session_counts.will_bytes -= will_size(will)

    def check_room(self, request: SessionRequest) -> None:
        """Refuse a new session that a limit has no room for."""
        core = self._core
        limit = self._session_counts.refusal(request.identity.username or "", core.limits_config)
        if limit:
            add(core.metrics.limit_refusals, (limit,))
            raise MqttError(QUOTA_EXCEEDED, "too many sessions")

    async def promise_room(self, request: SessionRequest) -> None:
        """``check_room`` where other nodes make sessions too; ``redeem`` must follow if it returns.

        The store has those of all nodes, as far as this one has read.
        """
        core, peers = self._core, self._core.peers
        assert peers is not None
        most = core.limits_config.sessions_max
        count = await core.database.session_count()
        if most and count + self._promised + NEAR >= most:
            core.committer.batch.echo(peers.node, peers.node, 0)
            await core.pipeline.committed()
            count = await core.database.session_count()
        self._session_counts.sessions = count + self._promised
        self.check_room(request)
        self._promised += 1

    def redeem(self) -> None:
        """The session that was promised room is stored, or will not be."""
        self._promised -= 1

    def record(
        self, request: SessionRequest, old: SessionRecord | None, *, epoch: int
    ) -> SessionRecord:
        """What the store is to have of a session whose client is here; ``old`` is what it has."""
        core = self._core
        peers = core.peers
        wall_us = core.pipeline.wall_us()
        username, method = owner_after(
            request.identity,
            username=old.username if old is not None else "",
            method=old.method if old is not None else "",
        )
        return SessionRecord(
            request.client_id,
            epoch=epoch,
            created_at_us=old.created_at_us if old is not None else wall_us,
            expiry_s=request.expiry_s,
            connected=True,
            changed_at_us=wall_us,
            will=request.will,
            username=username,
            protocol=request.protocol,
            dropped_count=old.dropped_count if old is not None else 0,
            cut_offset=old.cut_offset if old is not None else 0,
            method=method,
            subscription_count=old.subscription_count if old is not None else 0,
            node=peers.node if peers is not None else "",
            incarnation=peers.incarnation if peers is not None else 0,
            window=min(request.receive_maximum, core.session_config.inflight_max)
            if peers is not None
            else 0,
            packet_bytes_max=request.packet_bytes_max if peers is not None else 0,
        )
