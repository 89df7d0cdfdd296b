"""What a running broker decides by beyond the store: rights, bans, limits, who is connected.

``explain`` asks here what the broker's own rooms would say of one message to one session. Nothing
is changed by asking: decisions are not remembered in the identity of a connection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from perdure.broker.auth.authorize import Identity
from perdure.broker.delivery.live_session import LiveSession
from perdure.broker.services import Services
from perdure.config.schema import SessionConfig
from perdure.model import Message, SessionRecord
from perdure.mqtt.encode import publish_size


@final
class GroupView:
    """How the connected members of a group stand to a message.

    Attributes:
        free: others that may be given it, and have room now.
        busy: others that may be given it when they have room.
        unable: others that may not read it, or whose Maximum Packet Size is too small.
        is_busy: the client itself may be given it when it has room.
    """

    __slots__ = ("busy", "free", "is_busy", "unable")

    def __init__(self) -> None:
        self.free: list[str] = []
        self.busy: list[str] = []
        self.unable: list[str] = []
        self.is_busy: bool = False


@final
class Rules:
    """The rules of a broker for one session.

    Args:
        services: the parts of the broker.
        record: the session.
        is_superuser: whether a user is exempt from the ACL.
    """

    def __init__(
        self, services: Services, record: SessionRecord, is_superuser: Callable[[str | None], bool]
    ) -> None:
        self._services = services
        self._is_superuser = is_superuser
        self._record = record
        self._live = services.registry.live.get(record.client_id)
        self._identity = self._identity_of(record.client_id, record)

    @property
    def limits(self) -> SessionConfig:
        """The bounds of a session."""
        return self._services.session_config

    @property
    def seam(self) -> int:
        """Up to where replays are given what the archive has; 0 = there is none."""
        return self._services.seam()

    @property
    def archive_problem(self) -> str:
        """Why the archive gives no pages now; empty = it does."""
        past = self._services.past
        return "" if past is None else past.problem

    def is_too_old(self, message: Message) -> bool:
        """Whether ``session.pending_age_max_s`` drops a message that waits."""
        services = self._services
        return services.pending_limits.is_old(message, services.clock.now_us())

    def ban(self) -> str:
        """The ban that keeps the client out, in words; empty = none."""
        services = self._services
        address = self._live.connection.peer.address if self._live is not None else ""
        ban = services.ban_enforcer.bans.find(
            client_id=self._identity.client_id,
            username=self._identity.username,
            address=address,
            now_us=services.ban_enforcer.now_us(),
        )
        if ban is not None:
            return f"{ban.kind} {ban.value}"
        for each in services.ban_enforcer.temporary():
            if (each.kind, each.value) == ("client_id", self._identity.client_id):
                return each.reason
        return ""

    def mutes(self, publisher: str) -> bool:
        """Whether a publisher is banned by its identifier: nothing of it is delivered."""
        return self._services.authorizer.mutes(publisher)

    def may_get(self, topic: str, publisher: str) -> bool:
        """Whether a message may go to the client."""
        return self._services.authorizer.deliver(self._identity, topic, publisher)

    def may_subscribe(self, topic_filter: str) -> bool:
        """Whether the client may hold a subscription."""
        return self._services.authorizer.subscribe(self._identity, topic_filter)

    def may_publish(self, publisher: str, topic: str, stored: SessionRecord | None) -> bool:
        """Whether a publisher may publish there.

        Args:
            publisher: client identifier.
            topic: where.
            stored: its session, if it has one; True of one that is not connected either, because
                nobody knows who it will be.
        """
        live = self._services.registry.live.get(publisher)
        record = stored if live is None else live.record
        if record is None:
            return True
        return self._services.authorizer.publish(self._identity_of(publisher, record), topic)

    def excess(
        self, message: Message, qos: int, retain: bool, identifiers: tuple[int, ...]
    ) -> tuple[int, int]:
        """The size of a PUBLISH and the client's Maximum Packet Size, bytes, if it is smaller;
        else two zeros."""
        live = self._live
        limit = live.sender.packet_size_max if live is not None else 0
        if live is None or not limit:
            return 0, 0
        expiry_s = 0 if message.expires_at_us else -1
        packet_id = 1 if qos else 0
        size = publish_size(
            message, live.sender.version, qos, retain, False, packet_id, expiry_s, identifiers
        )
        return (size, limit) if size > limit else (0, 0)

    def is_recorded(self, message: Message) -> bool:
        """Whether the log takes such a message; else nobody who is offline gets it."""
        return self._services.publish_path.is_recorded(message)

    def unfit(self, message: Message) -> str:
        """Why the broker takes such a message from nobody; empty = it does."""
        return self._services.publish_path.unfit(message)

    def refusal(self, message: Message) -> int:
        """The reason code with which a publisher is refused now, because the store takes no
        messages; 0 = it takes them."""
        return self._services.publish_path.refusal() if message.qos else 0

    def is_congested(self) -> bool:
        """Whether the client's connection takes no more now: QoS 0 is dropped."""
        return self._live is not None and self._live.sender.congested

    def group(self, group_key: str, message: Message) -> GroupView:
        """Who of a group's connected members may be given a message."""
        view = GroupView()
        group = self._services.shared_subscriptions.groups.get(group_key)
        for member in group.members if group is not None else ():
            identity = self._identity_of(member.client_id, member.session.record)
            may_get = self._services.authorizer.deliver(identity, message.topic, message.publisher)
            is_able = may_get and member.has_room_for(message)
            if member.client_id == self._record.client_id:
                view.is_busy = is_able and not member.is_available
            elif is_able:
                (view.free if member.is_available else view.busy).append(member.client_id)
            else:
                view.unable.append(member.client_id)
        return view

    def given_by(self, group_key: str) -> int:
        """Up to which offset a group has given messages to its members; 0 = there is none."""
        group = self._services.shared_subscriptions.groups.get(group_key)
        return 0 if group is None else group.position

    def _identity_of(self, client_id: str, record: SessionRecord) -> Identity:
        """Of a connected client its own, but without what it remembers of decisions."""
        live: LiveSession | None = self._services.registry.live.get(client_id)
        if live is not None:
            known = live.identity
            return Identity(client_id, known.username, known.superuser, grant=known.grant)
        username = record.username or None
        # What its next login will grant nobody knows: only what is denied for all is told.
        grant = self._services.standing.grant_without_login(record.method)
        return Identity(client_id, username, self._is_superuser(username), grant=grant)
