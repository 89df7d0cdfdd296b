"""A member of a shared group: whether a message may go to it, and whether it has room."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from perdure.broker.dispatch.router import Subscriber
from perdure.model import InboxEntry, Message, Subscription
from perdure.mqtt.encode import publish_size

if TYPE_CHECKING:
    from perdure.broker.auth.authorize import Authorizer
    from perdure.broker.delivery.live_session import LiveSession


class GroupMember:
    """A connected session as a member of one group.

    A base class and no protocol: what is compiled calls a method of a class at once.

    Args:
        subscriber: the session.
        sub: its subscription.
        packet_size_max: as the client said at CONNECT, bytes; 0 = no limit.
        version: of the protocol that the client speaks.
        window_max: messages that it takes before it acknowledges one.
    """

    __slots__ = (
        "identifiers",
        "is_able",
        "packet_size_max",
        "sub",
        "subscriber",
        "takes_runs",
        "version",
        "window_max",
    )

    def __init__(
        self,
        subscriber: Subscriber,
        sub: Subscription,
        *,
        packet_size_max: int,
        version: int,
        window_max: int,
    ) -> None:
        self.subscriber: Subscriber = subscriber
        self.sub: Subscription = sub
        self.packet_size_max: int = packet_size_max
        self.version: int = version
        self.window_max: int = window_max
        self.identifiers: tuple[int, ...] = (sub.identifier,) if sub.identifier else ()
        """Subscription identifiers that its messages carry."""
        self.takes_runs: bool = False
        """Several messages may be one row of a private stream."""
        self.is_able: bool = True
        """It may have the message that a member is being chosen for."""

    @property
    def client_id(self) -> str:
        """Its client id."""
        return self.subscriber.client_id

    @property
    def inflight_count(self) -> int:
        """Messages sent to it, or about to be, and not acknowledged."""
        raise NotImplementedError

    @property
    def is_available(self) -> bool:
        """Whether its window has room now, and it may have the message in question."""
        raise NotImplementedError

    def may_read(self, message: Message, authorizer: Authorizer) -> bool:
        """Whether the rules let the member have a message."""
        raise NotImplementedError

    def has_room_for(self, message: Message) -> bool:
        """Whether the client's Maximum Packet Size leaves room for a message."""
        limit = self.packet_size_max
        if not limit:
            return True
        sub = self.sub
        size = publish_size(
            message,
            self.version,
            min(sub.qos, message.qos),
            sub.retain_as_published and message.retain,
            False,
            1,
            # However much of it remains: the property has one length.
            1 if message.expires_at_us else -1,
            self.identifiers,
        )
        return size <= limit


@final
class LocalMember(GroupMember):
    """One whose connection is here.

    Args:
        session: its session.
        sub: its subscription.
        is_alone: there are no other nodes, who would have to tell for each entry whether it counts.
    """

    __slots__ = ("session", "share")

    def __init__(self, session: LiveSession, sub: Subscription, *, is_alone: bool) -> None:
        super().__init__(
            session,
            sub,
            packet_size_max=session.sender.packet_size_max,
            version=session.sender.version,
            window_max=session.outbound.window_max,
        )
        self.session = session
        self.share: list[InboxEntry] = []
        """What it is given in this step (``MemberShares``)."""
        self.takes_runs = sub.qos > 0 and is_alone

    @property
    def inflight_count(self) -> int:
        return self.session.outbound.inflight.count + self.session.inbox_queued

    @property
    def is_available(self) -> bool:
        session = self.session
        return (
            self.is_able
            and not session.lagging
            and not session.sender.congested
            and session.connection.is_connected
            and not session.outbound.pending
            and self.inflight_count < session.outbound.window_max
        )

    @property
    def room(self) -> int:
        """How many more messages its window takes now."""
        return self.window_max - self.inflight_count

    def may_read(self, message: Message, authorizer: Authorizer) -> bool:
        return authorizer.allow_all or authorizer.deliver(
            self.session.identity, message.topic, message.publisher
        )
