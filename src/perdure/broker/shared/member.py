"""A member of a shared group: whether a message may go to it, and whether it has room."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from perdure.model import InboxEntry, Message, Subscription
from perdure.mqtt.encode import publish_size

if TYPE_CHECKING:
    from perdure.broker.auth.authorize import Authorizer
    from perdure.broker.delivery.live_session import LiveSession


@final
class GroupMember:
    """A connected session as a member of one group."""

    __slots__ = (
        "identifiers",
        "is_able",
        "packet_size_max",
        "session",
        "share",
        "sub",
        "takes_runs",
    )

    def __init__(self, session: LiveSession, sub: Subscription) -> None:
        self.session = session
        self.sub = sub
        self.packet_size_max: int = session.sender.packet_size_max
        """As the client said at CONNECT, bytes; 0 = no limit."""
        self.identifiers: tuple[int, ...] = (sub.identifier,) if sub.identifier else ()
        """Subscription identifiers that its messages carry."""
        self.share: list[InboxEntry] = []
        """What it is given in this step (``Shares``)."""
        self.takes_runs: bool = sub.qos > 0
        """Several messages may be one row of a private stream."""
        self.is_able: bool = True
        """It may have the message that a member is being chosen for."""

    @property
    def client_id(self) -> str:
        """Its client id."""
        return self.session.client_id

    @property
    def inflight_count(self) -> int:
        """Messages sent to it, or about to be, and not acknowledged."""
        return self.session.outbound.inflight.count + self.session.inbox_queued

    @property
    def is_available(self) -> bool:
        """Whether its window has room now, and it may have the message in question."""
        session = self.session
        return (
            self.is_able
            and not session.lagging
            and not session.sender.congested
            and session.connection.is_connected
            and not session.outbound.pending
            and self.inflight_count < session.outbound.window_max
        )

    def has_room_for(self, message: Message) -> bool:
        """Whether the client's Maximum Packet Size leaves room for a message."""
        limit = self.packet_size_max
        if not limit:
            return True
        sub = self.sub
        size = publish_size(
            message,
            self.session.sender.version,
            min(sub.qos, message.qos),
            sub.retain_as_published and message.retain,
            False,
            1,
            # However much of it remains: the property has one length.
            1 if message.expires_at_us else -1,
            (sub.identifier,) if sub.identifier else (),
        )
        return size <= limit

    def may_read(self, message: Message, authorizer: Authorizer) -> bool:
        """Whether the rules let the member have a message."""
        return authorizer.allow_all or authorizer.deliver(
            self.session.identity, message.topic, message.publisher
        )
